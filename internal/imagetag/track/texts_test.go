package track

import (
	"flag"
	"fmt"
	"testing"

	"github.com/refit-dev/refit/test/results"

	"github.com/refit-dev/refit/internal/imagetag"
)

var update = flag.Bool("update", false, "write golden files")

// Each state of a workload with its whole message and the one step that follows.
func TestRollMessages(t *testing.T) {
	t.Parallel()
	ready := Preload{Wanted: true, Done: 3, Nodes: 3}
	budgets := func(b ...Budget) func(*Target) { return func(w *Target) { w.Budgets = b } }
	stops := func(n int) func(*Target) { return func(w *Target) { w.TakesDown = n } }
	onDelete := func(old ...string) func(*Target) {
		return func(w *Target) { w.OnDelete, w.Old = true, old }
	}
	critical := func(w *Target) { w.Critical = true }
	closed := func(w *Target) { w.Closed = "opens at night" }
	owner := func(w *Target) { w.Owner = "Argo CD" }
	denied := func(w *Target) { w.Denied = "no permission" }
	empty := func(w *Target) { w.Containers = nil }
	type targets = []Target
	var got []string
	for _, c := range []struct {
		name     string
		approved *Image
		pre      Preload
		propose  bool
		targets  targets
	}{
		{"nothing approved", nil, ready, false, targets{target(Deployment, "a")}},
		{"no container", approved, ready, false, targets{target(Deployment, "a", empty), target(Deployment, "b")}},
		{"propose", approved, ready, true, targets{target(Deployment, "a"), target(Deployment, "b", done)}},
		{"owner", approved, ready, false, targets{target(Deployment, "a", owner), target(Deployment, "b", owner, done)}},
		{"owner and propose", approved, ready, true, targets{target(Deployment, "a", owner)}},
		{"preload stopped", approved, Preload{Wanted: true, Done: 1, Nodes: 3, Why: "n3 is full"}, false, targets{target(Deployment, "a"), target(Deployment, "b", done, unwell)}},
		{"preload", approved, Preload{Wanted: true, Done: 2, Nodes: 3}, false, targets{target(Deployment, "a"), target(Deployment, "b")}},
		{"preload not wanted", approved, Preload{Done: 0, Nodes: 3}, false, targets{target(Deployment, "a")}},
		{"preload has more than the nodes", approved, Preload{Wanted: true, Done: 4, Nodes: 3}, false, targets{target(Deployment, "a")}},
		{"the unfinished one keeps the turn", approved, ready, false, targets{target(Deployment, "b", done, unwell), target(Deployment, "a", done), target(Deployment, "c"), target(Deployment, "d", done, unwell)}},
		{"denied", approved, ready, false, targets{target(Deployment, "a", denied), target(Deployment, "b")}},
		{"closed", approved, ready, false, targets{target(Deployment, "a", closed), target(Deployment, "b")}},
		{"critical stops two", approved, ready, false, targets{target(DaemonSet, "a", critical, stops(2))}},
		{"critical stops one", approved, ready, false, targets{target(DaemonSet, "a", critical, stops(1))}},
		{"ordinary stops two", approved, ready, false, targets{target(DaemonSet, "a", stops(2))}},
		{"critical with OnDelete", approved, ready, false, targets{target(DaemonSet, "a", critical, stops(2), onDelete())}},
		{"OnDelete ignores the strategy", approved, ready, false, targets{target(DaemonSet, "a", stops(2), onDelete(), budgets(Budget{"b", 0, 1}))}},
		{"a CronJob ignores the strategy", approved, ready, false, targets{target(CronJob, "a", critical, stops(2), budgets(Budget{"b", 0, 1}))}},
		{"budget too small", approved, ready, false, targets{target(Deployment, "a", stops(3), budgets(Budget{"x", 9, 9}, Budget{"y", 2, 2}))}},
		{"budget just enough", approved, ready, false, targets{target(Deployment, "a", stops(2), budgets(Budget{"y", 2, 2}))}},
		{"budget used up", approved, ready, false, targets{target(Deployment, "a", stops(4), budgets(Budget{"x", 4, 4}, Budget{"y", 2, 4}))}},
		{"budget used up, none stopped", approved, ready, false, targets{target(Deployment, "a", stops(0), budgets(Budget{"y", 0, 0}))}},
		{"budget used up, broken", approved, ready, false, targets{target(Deployment, "a", unwell, stops(2), budgets(Budget{"y", 0, 2}))}},
		{"OnDelete evicts", approved, ready, false, targets{target(Deployment, "z", done), target(DaemonSet, "a", done, onDelete("p1", "p2"), budgets(Budget{"x", 1, 1}))}},
		{"OnDelete, budget", approved, ready, false, targets{target(DaemonSet, "a", done, onDelete("p1"), budgets(Budget{"x", 1, 1}, Budget{"y", 0, 1}))}},
		{"OnDelete, closed", approved, ready, false, targets{target(DaemonSet, "a", done, onDelete("p1"), closed)}},
		{"OnDelete, settled", approved, ready, false, targets{target(DaemonSet, "a", done, onDelete())}},
		{"old pods of another strategy", approved, ready, false, targets{target(Deployment, "a", done, func(w *Target) { w.Old, w.Progress = []string{"p1"}, "1 old pod" })}},
		{"a CronJob has it", approved, ready, false, targets{target(CronJob, "a", done, unwell), target(Deployment, "b")}},
		{"order", approved, ready, false, targets{staticTarget(), target(DaemonSet, "c", critical), target(DaemonSet, "b"), target(Deployment, "d"), target(Deployment, "c", critical)}},
	} {
		rows, step := Roll(c.targets, c.approved, c.pre, Gate{}, c.propose)
		got = append(got, fmt.Sprintf("%s: write %d, evict %q of %d, turn %q of %d", c.name, step.Write, step.Evict, step.Of, step.Turn, step.TurnOf))
		for _, r := range rows {
			got = append(got, fmt.Sprintf("- %s %s closed %t: %s", r.Key, r.State, r.Closed, r.Message))
		}
	}
	results.CompareGolden(t, "testdata/roll-messages.golden", got, *update)
}

// Each state of a static pod with its whole message, the turn and the node step.
func TestStaticPodMessages(t *testing.T) {
	t.Parallel()
	ready := Preload{Wanted: true, Done: 3, Nodes: 3}
	sick := func(why string) func(*NodePod) { return func(n *NodePod) { n.Unready = why } }
	busy := func(who string) func(*NodePod) { return func(n *NodePod) { n.Busy = who } }
	run := func(r NodeRun) func(*NodePod) { return func(n *NodePod) { n.Run = &r } }
	ending := func(n *NodePod) { n.Ending = true }
	kubeadm := func(w *Target) { w.Kubeadm = true }
	var got []string
	for _, c := range []struct {
		name    string
		change  []func(*Target)
		pre     Preload
		gate    Gate
		propose bool
		before  []Target
	}{
		{name: "first", pre: ready},
		{name: "kubeadm", change: []func(*Target){kubeadm}, pre: ready},
		{name: "kubeadm, done", change: []func(*Target){kubeadm, on("n1 n2 n3", hasIt)}, pre: ready},
		{name: "propose", pre: ready, propose: true},
		{name: "propose, done", change: []func(*Target){on("n1 n2 n3", hasIt, noReady)}, pre: ready, propose: true},
		{name: "done, not ready", change: []func(*Target){on("n1 n2 n3", hasIt), on("n3", noReady)}, pre: ready},
		{name: "ending", change: []func(*Target){on("n3", ending)}, pre: ready},
		{name: "permitted", change: []func(*Target){on("n2", run(NodeRun{Attempt: 1}))}, pre: ready},
		{name: "running", change: []func(*Target){on("n2", run(NodeRun{Attempt: 1, State: RunRunning, Message: "pulls"}))}, pre: ready},
		{name: "undo permitted", change: []func(*Target){on("n2", run(NodeRun{Attempt: 2, Undo: true}))}, pre: ready},
		{name: "undo running", change: []func(*Target){on("n2", run(NodeRun{Attempt: 2, Undo: true, State: RunRunning, Message: "writes"}))}, pre: ready},
		{name: "undone", change: []func(*Target){on("n2", run(NodeRun{State: RunUndone, UndoReason: "it hung", Message: "as before"}))}, pre: ready},
		{name: "undone without a cause", change: []func(*Target){on("n2", run(NodeRun{State: RunUndone, Message: "as before"}))}, pre: ready},
		{name: "undo failed", change: []func(*Target){on("n2", run(NodeRun{Undo: true, State: RunFailed, Reason: "StepDeadline", Message: "disk", UndoReason: "it hung"}))}, pre: ready},
		{name: "failed halfway", change: []func(*Target){on("n2", run(NodeRun{Attempt: 4, State: RunFailed, Reason: "StepDeadline", Message: "disk"}))}, pre: ready},
		{name: "failed, as before", change: []func(*Target){on("n2", run(NodeRun{Attempt: 4, State: RunFailed, Reason: "ImagesMissing", Message: "disk"}))}, pre: ready},
		{name: "overwritten", change: []func(*Target){on("n2", run(NodeRun{Attempt: 1, State: RunSucceeded}))}, pre: ready},
		{name: "next", change: []func(*Target){on("n2", hasIt, run(NodeRun{Attempt: 1, State: RunSucceeded}))}, pre: ready},
		{name: "the first is not ready", change: []func(*Target){on("n2", hasIt, noReady)}, pre: ready},
		{name: "no preload"},
		{name: "preload", pre: Preload{Wanted: true, Done: 1, Nodes: 3, Why: "n3 is full"}},
		{name: "denied", change: []func(*Target){func(w *Target) { w.Denied = "no permission" }}, pre: ready},
		{name: "update", pre: ready, gate: Gate{Update: "to-1-36", Turn: "x"}},
		{name: "turn", pre: ready, gate: Gate{Turn: "ImageTrack lb"}, change: []func(*Target){func(w *Target) { w.Closed = "opens at night" }}},
		{name: "closed", pre: ready, change: []func(*Target){func(w *Target) { w.Closed = "opens at night" }}},
		{name: "control plane", pre: ready, gate: Gate{ControlPlane: "etcd is ill"}, change: []func(*Target){on("n2 n3", hasIt)}},
		{name: "all workers busy or sick", pre: ready, gate: Gate{ControlPlane: "etcd is ill"}, change: []func(*Target){on("n2", busy("u")), on("n3", sick("silent"))}},
		{name: "all are busy or sick", pre: ready, change: []func(*Target){on("n2", sick("silent")), on("n3", busy("u")), on("n1", busy("v"))}},
		{name: "busy comes before sick", pre: ready, change: []func(*Target){on("n1 n2 n3", busy("u"), sick("silent"))}},
		{name: "behind a Deployment", pre: ready, before: []Target{target(Deployment, "a", done, unwell)}},
		{name: "started behind a Deployment", pre: ready, before: []Target{target(Deployment, "a", done, unwell)}, change: []func(*Target){on("n2", run(NodeRun{Attempt: 1}))}},
		{name: "a second static pod waits", pre: ready, before: []Target{staticTarget(func(w *Target) { w.Name = "lb" })}},
		{name: "a second static pod behind one that runs", pre: ready, before: []Target{staticTarget(func(w *Target) { w.Name = "lb" }, on("n3", ending))}},
		{name: "a second static pod behind one that is not ready", pre: ready, before: []Target{staticTarget(func(w *Target) { w.Name = "lb" }, on("n1 n2 n3", hasIt), on("n3", noReady))}},
		{name: "a second static pod behind a preload", pre: Preload{Wanted: true, Nodes: 3}, before: []Target{staticTarget(func(w *Target) { w.Name = "lb" })}},
	} {
		rows, step := Roll(append(c.before, staticTarget(c.change...)), approved, c.pre, c.gate, c.propose)
		got = append(got, fmt.Sprintf("%s: write %d, turn %q of %d, node %+v", c.name, step.Write, step.Turn, step.TurnOf, step.Node))
		for _, r := range rows {
			got = append(got, fmt.Sprintf("- %s %s closed %t: %s", r.Key, r.State, r.Closed, r.Message))
		}
	}
	results.CompareGolden(t, "testdata/static-pod-messages.golden", got, *update)
}

// Each class of a step, with the whole reason, also where only pointers are known.
func TestClassifyMessages(t *testing.T) {
	t.Parallel()
	x := Track{Scheme: scheme("rev:alpine")}
	i := func(letter, tag, long string, change ...func(*Image)) *Image {
		out := Image{Digest: d(letter), Tag: tag, Long: long}
		for _, c := range change {
			c(&out)
		}
		return &out
	}
	app := func(v string) func(*Image) { return func(i *Image) { i.App = v } }
	var got []string
	for _, c := range []struct{ from, to *Image }{
		{nil, i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2")},
		{i("b", "", ""), i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2")},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2")},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2", secure(false))},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2", secure(true))},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev2", "2.6.2-rev2-b1.1", secure(true))},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.3-rev1", "2.6.3-rev1-b1.1", secure(true))},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev1", "2.6.2-rev1-b5.0", secure(true))},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev1", "2.6.2-rev1-b5.1")},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-alpine-rev1", "2.6.2-alpine-rev1-b5.2")},
		{i("a", "2.6.2-rev1", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev1", "")},
		{i("a", "", "2.6.2-rev1-b5.1"), i("b", "2.6.2-rev2", "")},
		{i("a", "2.6.2-rev1", ""), i("b", "2.6.2-rev2", "2.6.2-rev2-b1.1")},
		{i("a", "2.6.2-rev1", ""), i("b", "2.6.3-rev1", "")},
		{i("a", "2.6.2-rev2", ""), i("b", "2.6.2-rev1", "")},
		{i("a", "2.6.2-rev1", ""), i("b", "2.6.2", "")},
		{i("a", "2.6.2-rev0", ""), i("b", "2.6.2-rev1", "")},
		{i("a", "2.6.2-rev1", ""), i("b", "2.6.2-rev0", "")},
		{i("a", "2.6.2-rev1", ""), i("b", "2.6.2-alpine-rev2", "")},
		{nil, i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2", app("2.6.3"))},
		{nil, i("b", "2.6.2-rev1", "2.6.2-rev1-b5.2", app("v2.6.2"))},
		{nil, i("b", "v2.6.2-rev1", "", app("2.6.2.1"))},
		{nil, i("b", "2.6.2-rev1", "", app("2.6.21"))},
		{nil, i("b", "2.6.2-rev1", "", app("2.6.2-rc.1"))},
		{nil, i("b", "2.6.2_5-rev1", "", app("2.6.2+5"))},
		{nil, i("b", "latest", "2.6.2-rev1-b5.2", app("2.6.3"))},
		{nil, i("b", "latest", "", app("2.6.3"))},
		{nil, i("b", "2.6.3-rev1", "2.6.2-rev1-b5.2", app("2.6.2"))},
	} {
		class, why := Classify(x, c.from, c.to)
		got = append(got, fmt.Sprintf("%s: %s", class, why))
	}
	results.CompareGolden(t, "testdata/classify-messages.golden", got, *update)
}

// Two names of lines in their order, seen from either.
func TestComparePointers(t *testing.T) {
	t.Parallel()
	tag := func(app, variant string, rev uint64, build ...uint64) imagetag.Tag {
		return imagetag.Tag{App: app, Variant: variant, Rev: rev, Build: build}
	}
	opposite := map[imagetag.Order]imagetag.Order{imagetag.Older: imagetag.Newer, imagetag.Newer: imagetag.Older, imagetag.Same: imagetag.Same, imagetag.Incomparable: imagetag.Incomparable}
	for name, c := range map[string]struct {
		a, b imagetag.Tag
		want imagetag.Order
		why  string
	}{
		"another variant":                      {tag("2.6.2", "alpine", 1), tag("2.6.2", "", 1), imagetag.Incomparable, "they are two variants"},
		"another variant of a newer version":   {tag("2.6.3", "alpine", 1), tag("2.6.2", "", 1), imagetag.Incomparable, "they are two variants"},
		"a newer version of an older revision": {tag("2.6.3", "", 1), tag("2.6.2", "", 9), imagetag.Newer, "version 2.6.3 is above 2.6.2"},
		"no versions":                          {tag("stable", "", 1), tag("edge", "", 1), imagetag.Incomparable, "stable and edge are not both versions"},
		"a later revision":                     {tag("2.6.2", "", 10), tag("2.6.2", "", 9), imagetag.Newer, "of one version, by revision"},
		"a later revision of an older build":   {tag("2.6.2", "", 2, 1), tag("2.6.2", "", 1, 9), imagetag.Newer, "of one version, by revision"},
		"a later build":                        {tag("2.6.2", "", 1, 5, 10), tag("2.6.2", "", 1, 5, 9), imagetag.Newer, "of one revision, by build"},
		"a revision and none":                  {tag("2.6.2", "", 1), tag("2.6.2", "", 0), imagetag.Incomparable, "one has a revision and the other has none"},
		"one line":                             {tag("2.6.2", "", 1), tag("2.6.2", "", 1), imagetag.Same, "one line"},
	} {
		if got, why := comparePointers(c.a, c.b); got != c.want || why != c.why {
			t.Errorf("%s: %s (%s)", name, got, why)
		}
		if got, _ := comparePointers(c.b, c.a); got != opposite[c.want] {
			t.Errorf("%s, the other way: %s", name, got)
		}
	}
}

// Which container a track means when a variant or the version cannot be read.
func TestMeansByVariant(t *testing.T) {
	t.Parallel()
	x := rev()
	x.Scheme = scheme("rev:alpine")
	alpine := "2.6.2-alpine-rev1"
	for name, c := range map[string]struct {
		approved *Image
		image    string
		want     bool
	}{
		"nothing is approved":            {nil, "r.example/app:" + alpine, true},
		"nothing is approved elsewhere":  {nil, "r.example/web:" + alpine, false},
		"the same variant":               {&Image{Tag: alpine}, "r.example/app:2.6.1-alpine-rev4", true},
		"another variant":                {&Image{Tag: alpine}, "r.example/app:2.6.2-rev1", false},
		"no tag":                         {&Image{Tag: alpine}, "r.example/app", true},
		"only a digest":                  {&Image{Tag: alpine}, "r.example/app@" + d("a"), true},
		"a tag that cannot be read":      {&Image{Tag: alpine}, "r.example/app:2.6.2-rev0", true},
		"an approved one likewise":       {&Image{Tag: "2.6.2-rev0"}, "r.example/app:" + alpine, true},
		"a floating tag":                 {&Image{Tag: alpine}, "r.example/app:latest", true},
		"an approved floating tag":       {&Image{Tag: "latest"}, "r.example/app:" + alpine, true},
		"a reference that is none":       {&Image{Tag: alpine}, "r.example/App:" + alpine, false},
		"a reference that is none, none": {nil, "r.example/App:" + alpine, false},
	} {
		if got := AppliesTo(x, c.approved, c.image); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Which image of the old list each image of the new one replaces.
func TestPredecessors(t *testing.T) {
	t.Parallel()
	n := func(name, letter string) Named { return Named{"r.example/" + name, d(letter)} }
	var got []string
	for _, c := range []struct {
		name string
		a, b []Named
	}{
		{"the one that had the tag, not the newest", []Named{n("app:2.6.1-rev1", "a"), n("app:2.6.1-rev1-b1", "a"), n("app:2.6.2-rev1", "b"), n("app:2.6.2-rev1-b1", "b")},
			[]Named{n("app:2.6.1-rev1", "c"), n("app:2.6.1-rev1-b2", "c")}},
		{"the tag may be its second name", []Named{n("app:2.6.2-rev1-b1", "b"), n("app:2.6.2-rev1", "b"), n("app:2.6.1-rev1-b1", "a"), n("app:2.6.1-rev1", "a")},
			[]Named{n("app:2.6.1-rev1-b2", "c"), n("app:2.6.1-rev1", "c")}},
		{"the newest where no tag is shared", []Named{n("app:2.6.1-rev1-b1", "a"), n("app:2.6.3-rev1-b1", "b"), n("app:2.6.2-rev1-b1", "e")}, []Named{n("app:2.6.4-rev1-b1", "c")}},
		{"the newest revision and build", []Named{n("app:2.6.1-rev1-b1", "a"), n("app:2.6.1-rev2-b1", "b"), n("app:2.6.1-rev2-b2", "e")}, []Named{n("app:2.6.4-rev1-b1", "c")}},
		{"each replaces one", []Named{n("app:2.6.1-rev1-b1", "a"), n("app:2.6.1-rev1-b2", "b")}, []Named{n("app:2.6.1-rev1-b3", "c"), n("app:2.6.1-rev1-b4", "e")}},
		{"more than before", []Named{n("app:2.6.1-rev1-b1", "a")}, []Named{n("app:2.6.1-rev1-b3", "c"), n("app:2.6.1-rev1-b4", "e")}},
		{"only of its variant", []Named{n("app:2.6.1-alpine-rev1-b1", "a"), n("app:2.6.1-rev1-b1", "b")}, []Named{n("app:2.6.2-rev1-b1", "c")}},
		{"only of its repository", []Named{n("web:2.6.1-rev1-b1", "a")}, []Named{n("app:2.6.2-rev1-b1", "c")}},
		{"one digest in two repositories", []Named{n("web:2.6.1-rev1-b1", "a")}, []Named{n("app:2.6.1-rev1-b1", "a"), n("web:2.6.1-rev1-b1", "a")}},
		{"a digest that stays is no predecessor", []Named{n("app:2.6.1-rev1-b1", "a")}, []Named{n("app:2.6.1-rev1-b1", "a"), n("app:2.6.1-rev1-b2", "b")}},
		{"names that cannot be read", []Named{n("App:1", "a"), n("web:1-rev0", "e")}, []Named{n("App:2", "a"), n("web:2-rev0", "f"), n("web:3-rev0", "f")}},
		{"an image without a tag", nil, []Named{n("app", "a"), n("web@"+d("b"), "b")}},
		{"a security rebuild", []Named{n("app:1-rev1-b1", "a"), n("web:1-rev1-b1", "b")}, []Named{n("app:1-rev1-b2", "e"), n("web:1-rev1-b2", "c")}},
		{"nothing", nil, nil},
	} {
		s := Compare(scheme("rev:alpine"), c.a, c.b, func(digest string) bool { return digest == d("e") && len(c.a) == 2 })
		got = append(got, c.name+": "+s.Sentence())
		for _, x := range s.Changed {
			got = append(got, fmt.Sprintf("- %s: %s (%.14s) > %s (%.14s) %s: %s", x.Repository, x.From, x.FromDigest, x.To, x.ToDigest, x.Class, x.Why))
		}
	}
	results.CompareGolden(t, "testdata/predecessors.golden", got, *update)
}

// The sentence counts each class in the singular and the plural.
func TestSentence(t *testing.T) {
	t.Parallel()
	got := []string{}
	for _, class := range []Class{Rebuild, Security, ImageFix, NewVersion, Backwards, Unordered, TagVersionMismatch, New, Gone} {
		for n := range 3 {
			s := Summary{Same: n}
			for range n {
				s.Changed = append(s.Changed, Changed{Class: class})
			}
			got = append(got, s.Sentence())
		}
	}
	results.CompareGolden(t, "testdata/sentence.golden", got, *update)
}
