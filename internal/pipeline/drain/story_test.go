package drain

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

var rewrite = flag.Bool("update", false, "write the golden stories")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func on(node, name string, change ...func(*Pod)) Pod {
	p := Pod{Namespace: "shop", Name: name, UID: name, Node: node, OwnerKind: "ReplicaSet", OwnerName: "app-6f", Ready: true}
	for _, c := range change {
		c(&p)
	}
	return p
}

func under(bs ...Budget) func(*Pod) { return func(p *Pod) { p.Budgets = bs } }
func kind(owner string) func(*Pod)  { return func(p *Pod) { p.OwnerKind = owner } }
func broken(p *Pod)                 { p.Ready = false }
func data(p *Pod)                   { p.EmptyDir = true }
func ending(since time.Duration, finalizers ...string) func(*Pod) {
	return func(p *Pod) {
		p.Deleting, p.Since, p.Grace, p.Finalizers = true, noon.Add(-since), 30*time.Second, finalizers
	}
}

var (
	open  = Budget{Namespace: "shop", Name: "app", Rule: "minAvailable 2", Allowed: 1, Healthy: 3, Wanted: 2, Expected: 3}
	spent = Budget{Namespace: "shop", Name: "app", Rule: "minAvailable 2", Allowed: 0, Healthy: 2, Wanted: 2, Expected: 3}
	// Between a granted eviction and the next count of the disruption controller.
	uncounted = Budget{Namespace: "shop", Name: "app", Rule: "minAvailable 2", Allowed: 0, Healthy: 3, Wanted: 2, Expected: 3}
	never     = Budget{Namespace: "shop", Name: "db", Rule: "minAvailable 3", Allowed: 0, Healthy: 3, Wanted: 3, Expected: 3}
	zero      = Budget{Namespace: "shop", Name: "cache", Rule: "maxUnavailable 0", Allowed: 0, Healthy: 2, Wanted: 2, Expected: 2}
	lost      = Budget{Namespace: "shop", Name: "odd", Rule: "maxUnavailable 1", Broken: "found no controllers for pod \"one\""}
	short     = Budget{Namespace: "shop", Name: "app", Rule: "minAvailable 2", Allowed: 0, Healthy: 1, Wanted: 2, Expected: 3}
	lenient   = Budget{Namespace: "shop", Name: "db", Rule: "minAvailable 3", Healthy: 2, Wanted: 3, Expected: 3, UnhealthyMayGo: true}
)

// The stories of one node's drain: the row of every pod, and the blockers that the
// preflight reports before.
func TestStories(t *testing.T) {
	cases := map[string]struct {
		pods    []Pod
		options Options
	}{
		"everything goes or stays by the usual rules":  {pods: []Pod{on("n2", "app-1", under(open)), on("n2", "app-2", data), on("n2", "agent", kind("DaemonSet")), on("n2", "kube-proxy", func(p *Pod) { p.Mirror = true }), on("n2", "job-1", func(p *Pod) { p.Finished = true })}},
		"a budget that is spent now":                   {pods: []Pod{on("n2", "app-1", under(spent)), on("n2", "app-2", under(spent))}},
		"a budget that was not counted again":          {pods: []Pod{on("n2", "app-1", under(uncounted))}},
		"minAvailable is the number of replicas":       {pods: []Pod{on("n2", "db-0", under(never)), on("n3", "db-1", under(never)), on("n3", "db-2", under(never))}},
		"maxUnavailable is 0":                          {pods: []Pod{on("n2", "cache-0", under(zero))}},
		"a selector that the controller cannot follow": {pods: []Pod{on("n2", "one", under(lost))}},
		"two budgets on one pod":                       {pods: []Pod{on("n2", "app-1", under(open, zero)), on("n3", "app-2", under(open, zero))}},
		"broken pods hold their own budget":            {pods: []Pod{on("n2", "app-1", broken, under(short))}},
		"broken pods that their budget lets go":        {pods: []Pod{on("n2", "db-0", broken, under(lenient))}},
		"a pod that nothing would make again":          {pods: []Pod{on("n2", "tool", kind(""))}},
		"one that a person gave up for this run":       {pods: []Pod{on("n2", "tool", kind(""), func(p *Pod) { p.EvictAnyway = true })}},
		"one that a person keeps for this run":         {pods: []Pod{on("n2", "app-1", func(p *Pod) { p.StaysByRun = true })}},
		"data that this run must keep":                 {pods: []Pod{on("n2", "app-1", data)}, options: Options{KeepEmptyDirData: true}},
		"pods that end in time, late, and never":       {pods: []Pod{on("n2", "a", ending(10*time.Second)), on("n2", "b", ending(2*time.Minute)), on("n2", "c", ending(2*time.Minute, "shop/backup"))}},
		"many pods under one hopeless budget":          {pods: many(9)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tell(tc.pods, tc.options)
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != got {
				t.Errorf("%s (%v): run with -update if this is right\n%s", file, err, got)
			}
		})
	}
}

func many(n int) []Pod {
	var out []Pod
	for i := range n {
		out = append(out, on(fmt.Sprintf("n%d", 2+i%3), fmt.Sprintf("db-%d", i), under(never)))
	}
	return out
}

func tell(pods []Pod, o Options) string {
	var b strings.Builder
	b.WriteString("before the update:\n")
	for _, v := range Preflight(pods, o) {
		fmt.Fprintf(&b, "  %s %s: %s\n    fix: %s\n", v.Reason, v.Object, v.Message, v.Fix)
	}
	var here []Pod
	for _, p := range pods {
		if p.Node == "n2" {
			here = append(here, p)
		}
	}
	b.WriteString("node n2:\n")
	for _, r := range PredictRows("n2", DecideWith(here, o), noon) {
		fmt.Fprintf(&b, "  %s %s %s: %s", r.Fate, r.Pod, r.Reason, r.Message)
		if !r.Since.IsZero() {
			fmt.Fprintf(&b, " (since %s)", r.Since.Format(time.TimeOnly))
		}
		if r.Person {
			b.WriteString(" [a person must act]")
		}
		if r.Fix != "" {
			b.WriteString("\n    fix: " + r.Fix)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Every pod of a node has one row, refused ones say what would help, and the
// look ahead never names a pod that stays.
func TestEveryPodIsExplained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []Pod
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			p := on("n2", fmt.Sprint(i), kind(rapid.SampledFrom([]string{"", "ReplicaSet", "DaemonSet", "Node"}).Draw(t, "owner")))
			p.Ready, p.StaysByRun, p.EmptyDir = rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "stays"), rapid.Bool().Draw(t, "data")
			if rapid.Bool().Draw(t, "ends") {
				ending(time.Duration(rapid.IntRange(0, 200).Draw(t, "since")) * time.Second)(&p)
			}
			for _, b := range []Budget{open, spent, never, lost} {
				if rapid.IntRange(0, 3).Draw(t, "budget") == 0 {
					p.Budgets = append(p.Budgets, b)
				}
			}
			pods = append(pods, p)
		}
		o := Options{KeepEmptyDirData: rapid.Bool().Draw(t, "keep")}
		d := DecideWith(pods, o)
		rows := PredictRows("n2", d, noon)
		if len(rows) != len(pods) {
			t.Fatalf("%d pods, %d rows", len(pods), len(rows))
		}
		var hinder []Pod
		for _, p := range pods {
			if Hinders(p, o) {
				hinder = append(hinder, p)
			}
		}
		if fmt.Sprint(Preflight(hinder, o)) != fmt.Sprint(Preflight(pods, o)) {
			t.Fatal("a pod that hinders was passed over")
		}
		stays := map[string]bool{}
		for _, r := range rows {
			if r.Message == "" || r.Fate == Refused && (r.Fix == "" || r.Reason == "") {
				t.Fatalf("%+v", r)
			}
			stays[r.Pod] = r.Fate == Skipped
		}
		for _, p := range d.Evict {
			if p.EmptyDir && o.KeepEmptyDirData || p.OwnerKind == "" || p.StaysByRun {
				t.Fatalf("%+v is evicted with %+v", p, o)
			}
		}
		for _, v := range Preflight(pods, o) {
			if v.Fix == "" || v.Reason == "" {
				t.Fatalf("%+v", v)
			}
			if pod, ok := strings.CutPrefix(v.Object, "Pod/"); ok && stays[pod] {
				t.Fatalf("%s stays and is an obstacle: %+v", pod, v)
			}
		}
	})
}

// A refusal of the Eviction API is reported as it is and overrides the prediction.
func TestRefusalsWin(t *testing.T) {
	p := on("n2", "app-1", under(open))
	rows := Rows("n2", Decide([]Pod{p}), []model.Blocker{EvictionBlocked("n2", p, []Budget{spent})}, noon)
	if len(rows) != 1 || rows[0].Fate != Refused || !strings.Contains(rows[0].Message, "allows 0 disruptions") || rows[0].Person {
		t.Errorf("%+v", rows)
	}
}
