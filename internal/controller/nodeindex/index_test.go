package nodeindex

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func node(name, uid, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

// testIndex is an index with a clock of the test.
func testIndex() *Index {
	x := New()
	x.now = func() time.Time { return start }
	return x
}

// shown is what the index shows at a time: the name and the version of every node.
func shown(x *Index, at time.Time) string {
	x.now = func() time.Time { return at }
	v := x.refresh()
	var out []string
	for i, n := range v.Nodes {
		if place, known := Place(v.Nodes, n.Name); !known || place != i {
			return fmt.Sprintf("%s is not in its place", n.Name)
		}
		out = append(out, n.Name+"@"+n.ResourceVersion)
	}
	return fmt.Sprint(out)
}

// apply feeds events about nodes to an index, each as "SOURCE NAME/UID@VERSION".
func apply(t *testing.T, x *Index, events string) {
	t.Helper()
	for event := range strings.SplitSeq(events, ", ") {
		source, object, _ := strings.Cut(event, " ")
		name, rest, _ := strings.Cut(object, "/")
		uid, version, _ := strings.Cut(rest, "@")
		n := node(name, uid, version)
		switch source {
		case "cached":
			x.nodes.put(n)
		case "answered":
			x.PutNode(n)
		case "deleted":
			x.nodes.remove(n)
		default:
			t.Fatalf("event %q", event)
		}
	}
}

func TestNewestIsShown(t *testing.T) {
	t.Parallel()
	soon, late := start.Add(time.Second), start.Add(2*answerLifetime)
	cases := map[string]struct {
		events string
		at     time.Time
		want   string
	}{
		"nodes are sorted by name":                                      {"cached b/1@5, cached a/2@6", soon, "[a@6 b@5]"},
		"an answer that is newer than the cache is shown":               {"cached a/1@5, answered a/1@9", soon, "[a@9]"},
		"an event that is older than the answer changes nothing":        {"answered a/1@9, cached a/1@8", soon, "[a@9]"},
		"the cache is shown once it has caught up":                      {"cached a/1@5, answered a/1@9, cached a/1@10", soon, "[a@10]"},
		"versions are compared as numbers":                              {"cached a/1@99, answered a/1@100", soon, "[a@100]"},
		"an older answer does not replace a newer one":                  {"answered a/1@9, answered a/1@7", soon, "[a@9]"},
		"an answer expires, because the cache may have reverted":        {"answered a/1@9, cached a/1@3", late, "[a@3]"},
		"a deleted node is gone, although a later version was answered": {"cached a/1@5, answered a/1@9, deleted a/1@10", soon, "[]"},
		"a late deletion of the old node leaves its replacement":        {"cached a/1@5, answered a/2@12, deleted a/1@10", soon, "[a@12]"},
		"a node that was only answered leaves when the answer expires":  {"answered a/1@9", late, "[]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, early := range []bool{false, true} { // also with refreshes in between
				x := testIndex()
				if early {
					shown(x, start)
				}
				apply(t, x, c.events)
				if early {
					shown(x, soon)
				}
				if got := shown(x, c.at); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
		})
	}
}

// A view stays as it is while later views show what came since.
func TestAViewNeverChanges(t *testing.T) {
	t.Parallel()
	x := testIndex()
	apply(t, x, "cached b/1@1, cached c/3@1")
	x.updates.put(report("b", "1"))
	x.updates.put(report("gone", "1"))
	before := x.refresh()
	want := View{slices.Clone(before.Nodes), slices.Clone(before.Reports), slices.Clone(before.Departed), before.Edition}
	for _, step := range []struct{ events, want string }{
		{"cached b/1@3", "[b@3 c@1]"}, {"cached a/2@2", "[a@2 b@3 c@1]"}, {"deleted a/2@4", "[b@3 c@1]"},
	} {
		apply(t, x, step.events)
		x.updates.put(report("b", step.want))
		x.updates.put(report("gone", step.want))
		if got := shown(x, start); got != step.want {
			t.Errorf("after %s: %s, want %s", step.events, got, step.want)
		}
	}
	if diff := cmp.Diff(want, *before); diff != "" {
		t.Errorf("the first view changed (-before +after):\n%s", diff)
	}
	if first := x.refresh(); first != x.refresh() {
		t.Error("nothing changed, and the view is a copy")
	}
}

func report(name, version string) *v1alpha1.NodeUpdate {
	return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: version}}
}

// A NodeUpdate has the place of its node, whichever comes first, and is departed without one.
func TestReportsHaveThePlaceOfTheirNodes(t *testing.T) {
	t.Parallel()
	x := testIndex()
	check := func(what, want string) {
		t.Helper()
		v := x.refresh()
		var out []string
		for i, n := range v.Nodes {
			version := "-"
			if v.Reports[i] != nil {
				version = v.Reports[i].ResourceVersion
			}
			out = append(out, n.Name+"@"+version)
		}
		for _, nu := range v.Departed {
			out = append(out, nu.Name+" departed@"+nu.ResourceVersion)
		}
		if got := fmt.Sprintf("%d %v", v.Edition, out); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
		all := 0
		for range v.Updates() {
			all++
		}
		if len(x.updates.cached) != all {
			t.Errorf("%s: %d NodeUpdates of %d", what, all, len(x.updates.cached))
		}
	}
	x.updates.put(report("b", "1"))
	check("a NodeUpdate before its node", "0 [b departed@1]")
	apply(t, x, "cached b/1@1")
	check("its node joined", "1 [b@1]")
	x.updates.put(report("b", "2"))
	check("the NodeUpdate changed", "1 [b@2]")
	apply(t, x, "cached a/2@3")
	check("another node joined", "2 [a@- b@2]")
	x.updates.remove(report("b", "3"))
	check("the NodeUpdate was deleted", "2 [a@- b@-]")
	x.updates.put(report("b", "4"))
	apply(t, x, "deleted b/1@4")
	check("the node left", "3 [a@- b departed@4]")
	x.updates.put(report("b", "5"))
	x.updates.put(report("c", "1"))
	check("NodeUpdates without nodes changed", "3 [a@- b departed@5 c departed@1]")
	x.updates.remove(report("b", "6"))
	check("one of them was deleted", "3 [a@- c departed@1]")
}

// Readers share the index: each is woken by its own changes, and all see every object.
func TestReadersShareTheIndex(t *testing.T) {
	t.Parallel()
	x := testIndex()
	never := func(_, _ *corev1.Node) bool { return false }
	every, some := x.Reader(Changes{}), x.Reader(Changes{Node: never})
	x.wakeReaders(func(r *Reader) bool { return r.changes.Node == nil || r.changes.Node(nil, nil) })
	if len(every.Changed()) != 1 || len(some.Changed()) != 0 {
		t.Error("a reader is woken by a change that it did not ask for, or not by one that it asked for")
	}
	var wg sync.WaitGroup
	for _, r := range []*Reader{every, some} {
		wg.Go(func() {
			for range 200 {
				if v := r.Refresh(); len(v.Nodes) != len(v.Reports) {
					t.Errorf("%d nodes, %d reports", len(v.Nodes), len(v.Reports))
				}
			}
		})
	}
	for i := range 200 {
		apply(t, x, fmt.Sprintf("cached n%d/1@%d", i%20, i))
		x.updates.put(report(fmt.Sprint("n", i%30), fmt.Sprint(i)))
	}
	wg.Wait()
	if a, b := every.Refresh(), some.Refresh(); a != b || len(a.Nodes) != 20 || len(a.Departed) != 10 || x.Size() != 20 {
		t.Errorf("%d nodes, %d departed, size %d", len(a.Nodes), len(a.Departed), x.Size())
	}
}

// What is remembered of a node is given while its two objects are the same, also
// when its place changes; never for another object.
func TestRow(t *testing.T) {
	t.Parallel()
	var m Row[int]
	made := 0
	ask := func(i int, n *corev1.Node) int {
		v, same := m.At(i, n, nil)
		if !same {
			made++
			*v = made
		}
		return *v
	}
	a, b, c := node("a", "1", "1"), node("b", "1", "1"), node("c", "1", "1")
	if !m.Under("x", 1, []*corev1.Node{a, c}) || m.Under("x", 1, []*corev1.Node{a, c}) {
		t.Error("the first order is another than none, the second the same")
	}
	ask(0, a)
	ask(1, c)
	if ask(0, a) != 1 || ask(1, c) != 2 {
		t.Error("what did not change is derived again")
	}
	if !m.Under("x", 2, []*corev1.Node{a, b, c}) || ask(2, c) != 2 || ask(0, a) != 1 || ask(1, b) != 3 {
		t.Error("a node that came made others forget, or takes their value")
	}
	if m.Under("x", 3, []*corev1.Node{b, c}); ask(0, b) != 3 || ask(1, c) != 2 {
		t.Error("a node that went made others forget")
	}
	if ask(0, node("b", "1", "2")) != 4 {
		t.Error("what changed is not derived again")
	}
	if _, same := m.At(1, c, &v1alpha1.NodeUpdate{}); same {
		t.Error("another report, and the old value is given")
	}
	if ask(1, c); ask(1, c) != 5 {
		t.Error("the report that left is not seen to leave")
	}
	m.Forget(1)
	if ask(1, c) != 6 {
		t.Error("what could not be derived is given")
	}
	if m.Under("other pools", 3, []*corev1.Node{b, c}); ask(1, c) != 7 {
		t.Error("what it was derived under changed, and the old value is given")
	}
}
