package drain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Each operand of what the Eviction API would refuse, alone.
func TestWhatABudgetHolds(t *testing.T) {
	t.Parallel()
	budget := func(change func(*Budget)) []Budget {
		b := Budget{Namespace: "a", Name: "b", Allowed: 1, Healthy: 3, Wanted: 2, Expected: 3}
		change(&b)
		return []Budget{b}
	}
	none := func(*Budget) {}
	for name, tc := range map[string]struct {
		ready   bool
		budgets []Budget
		held    bool
	}{
		"no budget":                               {true, nil, false},
		"one that allows one":                     {true, budget(none), false},
		"one that allows none":                    {true, budget(func(b *Budget) { b.Allowed = 0 }), true},
		"one that is stale":                       {true, budget(func(b *Budget) { b.Stale = true }), true},
		"two that allow":                          {true, append(budget(none), budget(none)...), true},
		"not ready, unhealthy pods may go":        {false, budget(func(b *Budget) { b.Allowed, b.UnhealthyMayGo = 0, true }), false},
		"ready, only unhealthy pods may go":       {true, budget(func(b *Budget) { b.Allowed, b.UnhealthyMayGo = 0, true }), true},
		"not ready, and only healthy pods may":    {false, budget(func(b *Budget) { b.Allowed = 0 }), true},
		"not ready, stale, unhealthy pods may go": {false, budget(func(b *Budget) { b.Stale, b.UnhealthyMayGo = true, true }), false},
	} {
		p := app("x")
		p.Ready, p.Budgets = tc.ready, tc.budgets
		if got := held(p); got != tc.held {
			t.Errorf("%s: held %t", name, got)
		}
		rows := PredictRows("n1", Decide([]Pod{p}), time.Time{})
		if len(rows) != 1 || (rows[0].Fate == Refused) != tc.held {
			t.Errorf("%s: %+v", name, rows)
		}
	}
}

// Why a budget never lets a pod go, and when a person must act.
func TestBlockedWhole(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ready   bool
		b       Budget
		waiting bool
		says    string // in message and fix
		never   string
	}{
		"it could":                         {true, Budget{Healthy: 2, Wanted: 2, Expected: 3}, true, "make more pods", "unhealthyPodEvictionPolicy"},
		"as many are wanted as there are":  {true, Budget{Healthy: 2, Wanted: 3, Expected: 3}, false, "can never be met", "unhealthyPodEvictionPolicy"},
		"more are wanted than there are":   {true, Budget{Healthy: 2, Wanted: 4, Expected: 3}, false, "can never be met", ""},
		"healthy, but not counted again":   {true, Budget{Healthy: 3, Wanted: 2, Expected: 3}, true, "wait: this takes seconds", "make more pods"},
		"allowed, but the server refused":  {true, Budget{Allowed: 1, Healthy: 3, Wanted: 2, Expected: 3}, true, "make more pods", "wait: this"},
		"no pods are expected":             {true, Budget{Wanted: 1}, true, "make more pods", "never"},
		"one pod, one wanted":              {true, Budget{Healthy: 1, Wanted: 1, Expected: 1}, false, "can never be met", ""},
		"it cannot be computed":            {true, Budget{Broken: "two owners", Expected: 3}, false, "cannot be computed (two owners)", ""},
		"the pod is not ready":             {false, Budget{Healthy: 1, Wanted: 2, Expected: 3}, true, "AlwaysAllow", ""},
		"not ready, enough are healthy":    {false, Budget{Healthy: 2, Wanted: 2, Expected: 3}, true, "make more pods", "AlwaysAllow"},
		"ready, and too few are healthy":   {true, Budget{Healthy: 1, Wanted: 2, Expected: 3}, true, "make more pods", "AlwaysAllow"},
		"not ready, and the policy is set": {false, Budget{Healthy: 1, Wanted: 2, Expected: 3, UnhealthyMayGo: true}, true, "make more pods", "AlwaysAllow"},
	} {
		p := app("x")
		p.Ready = tc.ready
		tc.b.Namespace, tc.b.Name = "shop", "pdb"
		v := EvictionBlocked("n1", p, []Budget{tc.b})
		text := v.Message + " | " + v.Fix
		if v.Waiting != tc.waiting || !strings.Contains(text, tc.says) || tc.never != "" && strings.Contains(text, tc.never) || v.Object != p.Object() || v.Reason != "DisruptionBudget" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if why, _ := (Budget{Wanted: 1, Expected: 1}).neverAllows(); why != "allows no eviction, ever: its rule wants 1 of 1 pods" {
		t.Error(why)
	}
	if why, _ := (Budget{Rule: "minAvailable 1", Wanted: 1, Expected: 1}).neverAllows(); why != "allows no eviction, ever: minAvailable 1 wants 1 of 1 pods" {
		t.Error(why)
	}
	if v := EvictionBlocked("n1", app("x"), nil); !v.Waiting || !strings.Contains(v.Message, "holds back") {
		t.Errorf("%+v", v)
	}
	if v := EvictionBlocked("n1", app("x"), []Budget{{Namespace: "a", Name: "b"}, {Namespace: "a", Name: "c"}}); v.Waiting || !strings.Contains(v.Message, "2 PodDisruptionBudgets, a/b and a/c") || !strings.Contains(v.Fix, "delete one of a/b and a/c") {
		t.Errorf("%+v", v)
	}
}

// A pod is overdue 30 s after its grace period, and the blocker says what keeps it.
func TestLate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	leaving := func(ago time.Duration, finalizers ...string) Pod {
		p := app("x")
		p.Deleting, p.Since, p.Grace, p.Finalizers = true, now.Add(-ago), time.Minute, finalizers
		return p
	}
	for name, tc := range map[string]struct {
		p       Pod
		late    bool
		waiting bool
	}{
		"90 seconds":                 {leaving(90 * time.Second), false, false},
		"91 seconds":                 {leaving(91 * time.Second), true, true},
		"91 seconds with finalizers": {leaving(91*time.Second, "a/b"), true, false},
		"since an unknown time":      {func() Pod { p := leaving(0); p.Since = time.Time{}; return p }(), false, false},
	} {
		d := Decide([]Pod{tc.p, app("y")})
		vs := d.OverdueBlockers(now)
		if (len(vs) == 1) != tc.late || tc.late && (vs[0].Waiting != tc.waiting || vs[0].Reason != "PodStuckTerminating") {
			t.Errorf("%s: %+v", name, vs)
		}
	}
	r := leavingRow(leaving(time.Second, "a/b", "c/d"), now)
	if r.Message != "is ending; it may take 1m0s; finalizers: a/b, c/d" || r.Person {
		t.Errorf("%+v", r)
	}
}

// Rows in order: what a person must see first, then by what happens and by name.
func TestRowsAreInOrder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	var pods []Pod
	for _, name := range []string{"z", "b", "a"} {
		p := app("evict-" + name)
		pods = append(pods, p)
		l := app("leaving-" + name)
		l.Deleting, l.Since = true, now
		pods = append(pods, l)
		s := app("skipped-" + name)
		s.OwnerKind = "DaemonSet"
		r := app("refused-" + name)
		r.OwnerKind = ""
		w := app("waits-" + name)
		w.Budgets = []Budget{{Namespace: "a", Name: "b", Expected: 3}}
		pods = append(pods, s, r, w)
	}
	var got []string
	for _, r := range PredictRows("n1", Decide(pods), now) {
		_, name, _ := strings.Cut(r.Pod, "/")
		got = append(got, name)
	}
	want := []string{"refused-a", "refused-b", "refused-z", "waits-a", "waits-b", "waits-z", "leaving-a", "leaving-b", "leaving-z", "evict-a", "evict-b", "evict-z", "skipped-a", "skipped-b", "skipped-z"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if pods[0].Name != "evict-z" {
		t.Error("the caller's pods were sorted")
	}
	if d := Decide(pods); d.Left() != 12 || d.Empty() {
		t.Errorf("%d are left", d.Left())
	}
	if (Pod{}).Owner() != "nobody" || app("x").Owner() == "nobody" {
		t.Error("owner")
	}
}

// What never resolves is in order, names six pods by node, and is known of each pod.
func TestPreflightWhole(t *testing.T) {
	t.Parallel()
	never := Budget{Namespace: "a", Name: "never", Wanted: 3, Expected: 3}
	place := func(node, name string, change func(*Pod)) Pod {
		p := app(name)
		p.Node, p.Ready = node, true
		change(&p)
		return p
	}
	var pods []Pod
	for i, node := range []string{"n3", "n1", "n2", "n1", "n3", "n1", "n2"} {
		pods = append(pods, place(node, string(rune('a'+i)), func(p *Pod) { p.Budgets = []Budget{never} }))
	}
	pods = append(pods, place("n1", "two", func(p *Pod) { p.Budgets = []Budget{{Namespace: "z", Name: "z"}, {Namespace: "z", Name: "a"}} }),
		place("n1", "alone", func(p *Pod) { p.OwnerKind = "" }), place("n2", "also", func(p *Pod) { p.OwnerKind = "" }))
	vs := Preflight(pods, Options{})
	var got []string
	for _, v := range vs {
		got = append(got, v.Object)
	}
	if !slices.IsSorted(got) || len(vs) != 4 {
		t.Fatalf("%v", got)
	}
	has := func(text string) bool {
		return slices.ContainsFunc(vs, func(v model.Blocker) bool { return strings.Contains(v.Message, text) })
	}
	for _, text := range []string{"the drain would wait for node n1: ", "; node n2: ", "; and 1 more", "PodDisruptionBudgets z/a and z/z protect"} {
		if !has(text) {
			t.Errorf("%q is not said: %+v", text, vs)
		}
	}
	for name, tc := range map[string]struct {
		change  func(*Pod)
		o       Options
		hinders bool
	}{
		"nothing":                               {func(*Pod) {}, Options{}, false},
		"no owner":                              {func(p *Pod) { p.OwnerKind = "" }, Options{}, true},
		"no owner, and a person said it may go": {func(p *Pod) { p.OwnerKind, p.EvictAnyway = "", true }, Options{}, false},
		"data that is kept":                     {func(p *Pod) { p.EmptyDir = true }, Options{KeepEmptyDirData: true}, true},
		"data that may go":                      {func(p *Pod) { p.EmptyDir = true }, Options{}, false},
		"no data":                               {func(*Pod) {}, Options{KeepEmptyDirData: true}, false},
		"two budgets":                           {func(p *Pod) { p.Budgets = []Budget{{Name: "a"}, {Name: "b"}} }, Options{}, true},
		"a budget that never allows":            {func(p *Pod) { p.Budgets = []Budget{never} }, Options{}, true},
		"the same, not ready, unhealthy may go": {func(p *Pod) { b := never; b.UnhealthyMayGo = true; p.Budgets, p.Ready = []Budget{b}, false }, Options{}, false},
		"the same, ready":                       {func(p *Pod) { b := never; b.UnhealthyMayGo = true; p.Budgets = []Budget{b} }, Options{}, true},
		"the same, not ready, no such policy":   {func(p *Pod) { p.Budgets, p.Ready = []Budget{never}, false }, Options{}, true},
		"nowhere to go, one budget":             {func(p *Pod) { p.Nowhere, p.Budgets = true, []Budget{{Name: "a", Expected: 3}} }, Options{}, true},
		"nowhere to go, no budget":              {func(p *Pod) { p.Nowhere = true }, Options{}, false},
		"one budget, somewhere to go":           {func(p *Pod) { p.Budgets = []Budget{{Name: "a", Expected: 3}} }, Options{}, false},
		"nowhere to go, it stays": {func(p *Pod) {
			p.Nowhere, p.OwnerKind, p.Budgets = true, "DaemonSet", []Budget{{Name: "a", Expected: 3}}
		}, Options{}, false},
	} {
		p := place("n1", "x", tc.change)
		if got := Hinders(p, tc.o); got != tc.hinders {
			t.Errorf("%s: hinders %t", name, got)
		}
	}
}
