package nodeindex

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func node(name, uid, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

// seen is the roster in words: name@version.
func seen(r *Index, now time.Time) string {
	var out []string
	v := r.Refresh(now)
	for i, n := range v.Nodes {
		if v.ByName[n.Name] != n || r.at[n.Name] != i || v.Reports[i] != v.Updates[n.Name] {
			return fmt.Sprintf("%s is not where the index says", n.Name)
		}
		out = append(out, n.Name+"@"+n.ResourceVersion)
	}
	if len(v.ByName) != len(v.Nodes) {
		return "the index has other nodes than the list"
	}
	return fmt.Sprint(out)
}

func TestNewestIsShown(t *testing.T) {
	t.Parallel()
	soon, late := start.Add(time.Second), start.Add(2*believe)
	cases := map[string]struct {
		events func(*Index)
		at     time.Time
		want   string
	}{
		"nodes are in the order of their names": {func(r *Index) {
			r.nodes.put(node("b", "1", "5"))
			r.nodes.put(node("a", "2", "6"))
		}, soon, "[a@6 b@5]"},
		"an answer that is newer than the cache is shown": {func(r *Index) {
			r.nodes.put(node("a", "1", "5"))
			r.PutNode(node("a", "1", "9"), start)
		}, soon, "[a@9]"},
		"an event that is older than the answer changes nothing": {func(r *Index) {
			r.PutNode(node("a", "1", "9"), start)
			r.nodes.put(node("a", "1", "8"))
		}, soon, "[a@9]"},
		"the cache that has caught up is shown": {func(r *Index) {
			r.nodes.put(node("a", "1", "5"))
			r.PutNode(node("a", "1", "9"), start)
			r.nodes.put(node("a", "1", "10"))
		}, soon, "[a@10]"},
		"versions are numbers, not texts": {func(r *Index) {
			r.nodes.put(node("a", "1", "99"))
			r.PutNode(node("a", "1", "100"), start)
		}, soon, "[a@100]"},
		"an older answer does not take the place of a newer": {func(r *Index) {
			r.PutNode(node("a", "1", "9"), start)
			r.PutNode(node("a", "1", "7"), start)
		}, soon, "[a@9]"},
		"an answer is not believed for ever: the cache may have gone back": {func(r *Index) {
			r.PutNode(node("a", "1", "9"), start)
			r.nodes.put(node("a", "1", "3"))
		}, late, "[a@3]"},
		"a node that was deleted is gone, whatever was answered": {func(r *Index) {
			r.nodes.put(node("a", "1", "5"))
			r.PutNode(node("a", "1", "9"), start)
			r.nodes.remove(node("a", "1", "10"))
		}, soon, "[]"},
		"a node that was made again stays, although the old one's end comes late": {func(r *Index) {
			r.nodes.put(node("a", "1", "5"))
			r.PutNode(node("a", "2", "12"), start)
			r.nodes.remove(node("a", "1", "10"))
		}, soon, "[a@12]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, early := range []bool{false, true} { // also if somebody looked in between
				r := New()
				if early {
					seen(r, start)
				}
				c.events(r)
				if early {
					seen(r, soon)
				}
				if got := seen(r, c.at); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
		})
	}
}

// A look that follows another sees what came between them.
func TestLookFollows(t *testing.T) {
	t.Parallel()
	r := New()
	r.nodes.put(node("b", "1", "1"))
	before := slices.Clone(r.Refresh(start).Nodes)
	r.nodes.put(node("a", "2", "2"))
	r.nodes.put(node("b", "1", "3"))
	if got := seen(r, start); got != "[a@2 b@3]" {
		t.Errorf("got %s", got)
	}
	r.nodes.remove(node("a", "2", "4"))
	if got := seen(r, start); got != "[b@3]" {
		t.Errorf("got %s", got)
	}
	if before[0].ResourceVersion != "1" {
		t.Error("an object that was handed out changed")
	}
}

// A node's report stays beside its node, whichever comes first.
func TestReportsStandBesideTheirNodes(t *testing.T) {
	t.Parallel()
	report := func(name, version string) *v1alpha1.NodeUpdate {
		return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: version}}
	}
	r := New()
	r.updates.put(report("b", "1"))
	r.nodes.put(node("b", "1", "1"))
	if got := seen(r, start); got != "[b@1]" || r.view.Reports[0] == nil {
		t.Fatalf("%s, %v", got, r.view.Reports)
	}
	edition := r.view.Edition
	r.updates.put(report("b", "2"))
	if seen(r, start); r.view.Reports[0].ResourceVersion != "2" || r.view.Edition != edition {
		t.Error("a report that changed is not shown, or is taken for another order")
	}
	r.nodes.put(node("a", "2", "3"))
	if seen(r, start); r.view.Reports[0] != nil || r.view.Reports[1] == nil || r.view.Edition == edition {
		t.Error("a node that came moved the others away from their reports")
	}
	r.updates.remove(report("b", "3"))
	if seen(r, start); r.view.Reports[1] != nil {
		t.Error("a report that is gone is shown")
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
