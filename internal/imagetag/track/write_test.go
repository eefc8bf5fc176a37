package track

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var approved = func() *Image { i := image("b", "2.6.2-rev1-b5.2"); return &i }()

// Follow the intermediate tag, run the digest.
func TestRewrite(t *testing.T) {
	const want = "2.6.2-rev1@"
	for image, c := range map[string]struct {
		out     string
		changed bool
	}{
		"r.example/app":                           {"r.example/app:" + want + d("b"), true},
		"r.example/app:2.6.2-rev1":                {"r.example/app:" + want + d("b"), true},
		"r.example:5000/app:2.6.1-rev4":           {"r.example:5000/app:" + want + d("b"), true},
		"r.example/app@" + d("b"):                 {"r.example/app:" + want + d("b"), true},
		"r.example/app:2.6.2-rev1@" + d("a"):      {"r.example/app:" + want + d("b"), true},
		"r.example/app:2.6.2-rev1@" + d("b"):      {"r.example/app:2.6.2-rev1@" + d("b"), false},
		"r.example:5000/app:2.6.2-rev1@" + d("b"): {"r.example:5000/app:2.6.2-rev1@" + d("b"), false},
	} {
		if out, changed := Rewrite(image, approved); out != c.out || changed != c.changed {
			t.Errorf("%s: %s %v", image, out, changed)
		}
	}
}

func TestMeans(t *testing.T) {
	x := rev()
	x.Scheme, x.Mirrors = scheme("rev:alpine"), []string{"mirror.site:5000/app"}
	for image, want := range map[string]bool{
		"r.example/app:2.6.1-rev1":        true,
		"r.example/app":                   true,
		"r.example/app@" + d("a"):         true,
		"mirror.site:5000/app:2.6.2-rev1": true,
		"r.example/app:2.6.2-alpine-rev1": false,
		"r.example/app-debug:2.6.2-rev1":  false,
		"other.example/app:2.6.2-rev1":    false,
		"app:2.6.2-rev1":                  false,
		"r.example/app:latest":            true,
	} {
		if got := AppliesTo(x, approved, image); got != want {
			t.Errorf("%s: %v", image, got)
		}
	}
}

// target runs an older image, well, and its strategy stops one pod at a time.
func target(kind, name string, change ...func(*Target)) Target {
	w := Target{Kind: kind, Namespace: "shop", Name: name, TakesDown: 1, Strategy: "maxUnavailable 1", Settled: true,
		Containers: []Container{{Name: "app", Image: "r.example/app:2.6.2-rev1@" + d("a")}}}
	for _, c := range change {
		c(&w)
	}
	return w
}

func done(w *Target) { w.Containers[0].Image = "r.example/app:2.6.2-rev1@" + d("b") }
func unwell(w *Target) {
	w.Settled, w.Progress = false, "2 of 3 pods are ready"
}

// batch is a DaemonSet with OnDelete whose old pods a-1 and a-2 are on nodes of pools with budgets;
// one of 1 is no batch.
func batch(down, first, second int) func(*Target) {
	return func(w *Target) {
		w.OnDelete, w.Observed, w.Down, w.Old = true, true, down, []string{"a-1", "a-2"}
		w.Batch = map[string]int{"a-1": first, "a-2": second}
		if first == 1 {
			w.Batch = nil
		}
	}
}

// One after the other, within the budgets, what nodes
// need last.
func TestRoll(t *testing.T) {
	held := Preload{Wanted: true, Done: 3, Nodes: 3}
	budget := func(allowed, most int) func(*Target) {
		return func(w *Target) { w.Budgets = []Budget{{"shop/app", allowed, most}} }
	}
	for name, c := range map[string]struct {
		targets []Target
		pre     Preload
		propose bool
		// want: the states in order, and who is written to or which pod goes.
		states []string
		write  string
		evict  string
		says   string
	}{
		"nothing before the nodes hold it": {[]Target{target(Deployment, "a")}, Preload{Wanted: true, Done: 1, Nodes: 3}, false, []string{Preloading}, "", "", "1 of 3 nodes"},
		"one at a time, ordinary ones first": {[]Target{target(DaemonSet, "a"), target(Deployment, "z"), target(Deployment, "b")}, held, false,
			[]string{Waiting, Waiting, Rolling}, "Deployment/shop/b", "", ""},
		"the next waits until the one before runs and is ready": {[]Target{target(Deployment, "a", done, unwell), target(Deployment, "b")}, held, false,
			[]string{Rolling, Waiting}, "", "", "2 of 3 pods"},
		"then it is its turn": {[]Target{target(Deployment, "a", done), target(Deployment, "b")}, held, false, []string{Current, Rolling}, "Deployment/shop/b", "", ""},
		"what nodes need comes last": {[]Target{target(DaemonSet, "a", func(w *Target) { w.Critical = true }), target(DaemonSet, "b")}, held, false,
			[]string{Waiting, Rolling}, "DaemonSet/shop/b", "", ""},
		"a strategy that no budget allows does not start": {[]Target{target(Deployment, "a", budget(1, 1), func(w *Target) { w.TakesDown = 2 })}, held, false,
			[]string{Stopped}, "", "", "lower the one or raise the other"},
		"a budget that is used up is waited for": {[]Target{target(Deployment, "a", budget(0, 1))}, held, false, []string{Waiting}, "", "", "0 disruptions"},
		"one that replaces before it stops needs no budget": {[]Target{target(Deployment, "a", budget(0, 0), func(w *Target) { w.TakesDown = 0 })}, held, false,
			[]string{Rolling}, "Deployment/shop/a", "", ""},
		"a broken target may be repaired: its own strategy counts the broken pods": {[]Target{target(Deployment, "a", unwell, budget(0, 1))}, held, false,
			[]string{Rolling}, "Deployment/shop/a", "", ""},
		"a CNI on many nodes at once is refused": {[]Target{target(DaemonSet, "cni", func(w *Target) { w.Critical, w.TakesDown = true, 3 })}, held, false,
			[]string{Stopped}, "", "", "maxUnavailable to 1"},
		"OnDelete: pod by pod, through the Eviction API": {[]Target{target(DaemonSet, "a", done, budget(1, 1), func(w *Target) { w.OnDelete, w.Old = true, []string{"a-1", "a-2"} })}, held, false,
			[]string{Rolling}, "", "a-1", "2 pods"},
		"OnDelete: not while the budget is used up": {[]Target{target(DaemonSet, "a", done, budget(0, 1), func(w *Target) { w.OnDelete, w.Old = true, []string{"a-1"} })}, held, false,
			[]string{Rolling}, "", "", "allows no disruption"},
		"OnDelete: not while the pod before is not ready": {[]Target{target(DaemonSet, "a", done, unwell, func(w *Target) { w.OnDelete, w.Old = true, []string{"a-1"} })}, held, false,
			[]string{Rolling}, "", "", "2 of 3 pods"},
		"what Argo CD owns is proposed":         {[]Target{target(Deployment, "a", func(w *Target) { w.Owner = "Argo CD" })}, held, false, []string{Proposed}, "", "", "Argo CD"},
		"outside of the windows nothing begins": {[]Target{target(Deployment, "a", func(w *Target) { w.Closed = "opens at night" })}, held, false, []string{Waiting}, "", "", "opens at night"},
		"outside of the windows a started roll-out finishes": {[]Target{target(Deployment, "a", done, unwell, func(w *Target) { w.Closed = "opens at night" })}, held, false,
			[]string{Rolling}, "", "", "2 of 3 pods"},
		"OnDelete: as many as the pool's budget": {[]Target{target(DaemonSet, "a", done, unwell, batch(1, 0, 2))}, held, false,
			[]string{Rolling}, "", "a-2", "goes next"},
		"OnDelete: not one more": {[]Target{target(DaemonSet, "a", done, unwell, batch(2, 2, 2))}, held, false,
			[]string{Rolling}, "", "", "2 of 3"},
		"OnDelete: not before its controller saw the template": {[]Target{target(DaemonSet, "a", done, unwell, batch(0, 2, 2), func(w *Target) { w.Observed = false })}, held, false,
			[]string{Rolling}, "", "", "2 of 3"},
		"OnDelete: a pod that is leaving counts before the status says so": {[]Target{target(DaemonSet, "a", done, batch(1, 1, 1))}, held, false,
			[]string{Rolling}, "", "", ""},
		"OnDelete: no pod is old any more": {[]Target{target(DaemonSet, "a", done, unwell, batch(0, 2, 2), func(w *Target) { w.Old, w.Settled = nil, true })}, held, false,
			[]string{Current}, "", "", ""},
		"OnDelete: a disruption budget goes first": {[]Target{target(DaemonSet, "a", done, unwell, batch(1, 2, 2), budget(0, 1))}, held, false,
			[]string{Rolling}, "", "", "allows no disruption"},
		"outside of the windows no pod is evicted": {[]Target{target(DaemonSet, "a", done, func(w *Target) { w.OnDelete, w.Old, w.Closed = true, []string{"a-1"}, "opens at night" })}, held, false,
			[]string{Rolling}, "", "", "opens at night"},
		"a track that only proposes": {[]Target{target(Deployment, "a")}, Preload{Wanted: true, Nodes: 3}, true, []string{Proposed}, "", "", "spec.mode"},
		"a CronJob has it at its next run": {[]Target{target(CronJob, "a", done), target(Deployment, "b")}, held, false, []string{OnNextRun, Rolling},
			"Deployment/shop/b", "", ""},
		"a target without the image is reported": {[]Target{target(Deployment, "a", func(w *Target) { w.Containers = nil })}, held, false, []string{Stopped}, "", "", "no container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, step := Roll(c.targets, approved, c.pre, Gate{}, c.propose)
			var states []string
			said := ""
			for _, r := range rows {
				states = append(states, r.State)
				said += r.Message + "\n"
			}
			write := ""
			if step.Write >= 0 {
				write = c.targets[step.Write].Key()
			}
			if d := cmp.Diff(c.states, states); d != "" || write != c.write || step.Evict != c.evict || !strings.Contains(said, c.says) {
				t.Fatalf("%s write %q evict %q said %s", d, write, step.Evict, said)
			}
		})
	}
}

// A patch is complete and says what it is for people.
func TestPatch(t *testing.T) {
	w := target(CronJob, "a", func(w *Target) {
		w.Containers = append(w.Containers, Container{Name: "init", Init: true, Image: "r.example/app:2.6.2-rev1"})
	})
	want := `# 2.6.2-rev1-b5.2 (sha256:bbbbbbbbbbbb)
spec:
  jobTemplate:
    spec:
      template:
        spec:
          initContainers:
          - name: init
            image: r.example/app:2.6.2-rev1@` + d("b") + `
          containers:
          - name: app
            image: r.example/app:2.6.2-rev1@` + d("b") + "\n"
	if d := cmp.Diff(want, Patch(&w, approved)); d != "" {
		t.Fatal(d)
	}
}

// A static pod is named by its build, because a file follows no tag.
func TestPatchOfAStaticPod(t *testing.T) {
	w := staticTarget()
	want := "# 2.6.2-rev1-b5.2 (sha256:bbbbbbbbbbbb)\nspec:\n  containers:\n  - name: app\n    image: " + longB + d("b") + "\n"
	if diff := cmp.Diff(want, Patch(&w, approved)); diff != "" {
		t.Fatal(diff)
	}
}
