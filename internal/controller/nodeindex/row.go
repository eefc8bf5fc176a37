package nodeindex

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Row caches what was derived from each node and its NodeUpdate until one of the two
// changes, in the order of a View. A node that did not change costs two comparisons and no
// lookup by name. The zero value is empty.
//
// A row holds the objects that At saw, also after the cache has replaced them. Who does not
// look for long sets it to its zero value, or holds a second copy of all nodes.
type Row[T any] struct {
	of      any
	edition int
	got     []derived[T]
}

type derived[T any] struct {
	node   *corev1.Node
	update *v1alpha1.NodeUpdate
	value  T
}

// Under sets the nodes of a View, sorted by name, and the other input of the values (a
// comparable value). Another input drops all values; in another order every node keeps its
// value. moved reports whether the order changed, or there was no value.
func (m *Row[T]) Under(of any, edition int, nodes []*corev1.Node) (moved bool) {
	if m.of != of {
		m.of, m.got = of, nil
	}
	if m.got != nil && m.edition == edition && len(m.got) == len(nodes) {
		return false
	}
	old := m.got
	m.edition, m.got = edition, make([]derived[T], len(nodes))
	at := 0
	for i, n := range nodes {
		for at < len(old) && (old[at].node == nil || old[at].node.Name < n.Name) {
			at++
		}
		if at < len(old) && old[at].node.Name == n.Name {
			m.got[i] = old[at]
			at++
		}
	}
	return true
}

// At returns a pointer to the i-th node's value. same reports whether the value was derived
// from these very objects; otherwise the caller stores the new value there.
func (m *Row[T]) At(i int, n *corev1.Node, nu *v1alpha1.NodeUpdate) (value *T, same bool) {
	d := &m.got[i]
	if d.node == n && d.update == nu && n != nil {
		return &d.value, true
	}
	d.node, d.update = n, nu
	return &d.value, false
}

// Forget drops the i-th value, which could not be derived: At asks for it again.
func (m *Row[T]) Forget(i int) { m.got[i].node = nil }
