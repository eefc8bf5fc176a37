package nodeindex

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// View is one state of all nodes. It never changes, so that all reconcilers share it.
type View struct {
	// Nodes are sorted by name.
	Nodes []*corev1.Node
	// Reports are their NodeUpdates in the same order, nil for a node without one.
	Reports []*v1alpha1.NodeUpdate
	// Departed are the NodeUpdates without a node, sorted by name.
	Departed []*v1alpha1.NodeUpdate
	// Edition changes whenever a node joins or leaves: then the places change.
	Edition int
}

// Updates are all NodeUpdates, also those of nodes that have left.
func (v *View) Updates() iter.Seq[*v1alpha1.NodeUpdate] { return AllUpdates(v.Reports, v.Departed) }

// AllUpdates are the NodeUpdates of several lists without their gaps.
func AllUpdates(lists ...[]*v1alpha1.NodeUpdate) iter.Seq[*v1alpha1.NodeUpdate] {
	return func(yield func(*v1alpha1.NodeUpdate) bool) {
		for _, list := range lists {
			for _, nu := range list {
				if nu != nil && !yield(nu) {
					return
				}
			}
		}
	}
}

// Place is where a node is among nodes that are sorted by name.
func Place(nodes []*corev1.Node, name string) (int, bool) { return placeOf(nodes, name) }

func placeOf[T client.Object](sorted []T, name string) (int, bool) {
	return slices.BinarySearchFunc(sorted, name, func(o T, name string) int { return strings.Compare(o.GetName(), name) })
}

// with returns the view after changes, v itself if nothing changed. Readers keep v, so
// changed lists are copies.
func (v *View) with(nodes []change[*corev1.Node], updates []change[*v1alpha1.NodeUpdate]) *View {
	next := *v
	var moved []change[*corev1.Node] // nodes that joined or left
	for _, c := range nodes {
		i, known := placeOf(v.Nodes, c.name)
		switch {
		case known != c.exists:
			moved = append(moved, c)
		case known:
			next.Nodes = replace(v.Nodes, next.Nodes, i, c.object)
		}
	}
	var departed []change[*v1alpha1.NodeUpdate]
	for _, c := range updates {
		if i, known := placeOf(v.Nodes, c.name); known {
			next.Reports = replace(v.Reports, next.Reports, i, c.object)
		} else {
			departed = append(departed, c)
		}
	}
	next.Departed = merge(next.Departed, departed)
	if len(moved) > 0 {
		next.move(moved)
	}
	if next.Edition == v.Edition && sameList(next.Nodes, v.Nodes) && sameList(next.Reports, v.Reports) && sameList(next.Departed, v.Departed) {
		return v
	}
	return &next
}

// move adds the nodes that joined and removes those that left. Their NodeUpdates become
// reports, or departed.
func (v *View) move(moved []change[*corev1.Node]) {
	before, reports := v.Nodes, v.Reports
	v.Edition++
	v.Nodes = merge(before, moved)
	v.Reports = make([]*v1alpha1.NodeUpdate, len(v.Nodes))
	var departed []change[*v1alpha1.NodeUpdate]
	old := 0
	for i, n := range v.Nodes {
		for old < len(before) && before[old].Name < n.Name {
			departed = appendReport(departed, reports[old])
			old++
		}
		if old < len(before) && before[old].Name == n.Name {
			v.Reports[i] = reports[old]
			old++
		} else if at, waits := placeOf(v.Departed, n.Name); waits {
			v.Reports[i] = v.Departed[at]
			departed = append(departed, change[*v1alpha1.NodeUpdate]{name: n.Name})
		}
	}
	for _, nu := range reports[old:] {
		departed = appendReport(departed, nu)
	}
	v.Departed = merge(v.Departed, departed)
}

func appendReport(to []change[*v1alpha1.NodeUpdate], nu *v1alpha1.NodeUpdate) []change[*v1alpha1.NodeUpdate] {
	if nu == nil {
		return to
	}
	return append(to, change[*v1alpha1.NodeUpdate]{nu.Name, nu, true})
}

// replace returns now with another i-th object. It copies now while now is still old.
func replace[T comparable](old, now []T, i int, object T) []T {
	if now[i] == object {
		return now
	}
	if sameList(old, now) {
		now = slices.Clone(old)
	}
	now[i] = object
	return now
}

// merge returns objects that are sorted by name after changes: a copy if one differs.
func merge[T interface {
	comparable
	client.Object
}](objects []T, changes []change[T]) []T {
	changes = slices.DeleteFunc(changes, func(c change[T]) bool {
		i, known := placeOf(objects, c.name)
		return known == c.exists && (!known || objects[i] == c.object)
	})
	if len(changes) == 0 {
		return objects
	}
	slices.SortFunc(changes, func(a, b change[T]) int { return strings.Compare(a.name, b.name) })
	out := make([]T, 0, len(objects)+len(changes))
	at := 0
	for _, c := range changes {
		i, known := placeOf(objects[at:], c.name)
		out = append(out, objects[at:at+i]...)
		at += i
		if known {
			at++
		}
		if c.exists {
			out = append(out, c.object)
		}
	}
	return append(out, objects[at:]...)
}

// sameList reports whether two lists are the same memory.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
