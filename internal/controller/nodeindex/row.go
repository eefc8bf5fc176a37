package nodeindex

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Row remembers what was derived from each node and its NodeUpdate until one of
// the two changes, in the order of a View: thirty thousand nodes that did not
// change cost two comparisons each and no lookup by name. The zero value is empty.
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

// Under takes in the nodes of a View, sorted by name, and what else the values
// were derived from (a comparable value). Another of forgets all; in another order
// every node keeps its value. moved reports whether there is another order, or
// nothing is remembered.
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

// At is the place of the i-th node's value. same reports whether it was derived
// from these very objects; else the caller puts the new value there, in the place
// of the one of before.
func (m *Row[T]) At(i int, n *corev1.Node, nu *v1alpha1.NodeUpdate) (value *T, same bool) {
	d := &m.got[i]
	if d.node == n && d.update == nu && n != nil {
		return &d.value, true
	}
	d.node, d.update = n, nu
	return &d.value, false
}

// Forget says that the i-th value could not be derived: At asks for it again.
func (m *Row[T]) Forget(i int) { m.got[i].node = nil }
