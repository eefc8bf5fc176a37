package roster

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Memo remembers what was derived from a node and its NodeUpdate, until one of
// the two changes. The zero value is empty.
type Memo[T any] struct {
	of  any
	got map[string]derived[T]
}

type derived[T any] struct {
	node   *corev1.Node
	update *v1alpha1.NodeUpdate
	value  T
}

// Under names what else the values were derived from; another name forgets all.
func (m *Memo[T]) Under(of any) {
	if m.of != of || m.got == nil {
		m.of, m.got = of, map[string]derived[T]{}
	}
}

// Of is the remembered value, or what derive makes.
func (m *Memo[T]) Of(n *corev1.Node, nu *v1alpha1.NodeUpdate, derive func() T) T {
	d, ok := m.got[n.Name]
	if ok && d.node == n && d.update == nu {
		return d.value
	}
	if m.got == nil {
		m.got = map[string]derived[T]{}
	}
	v := derive()
	m.got[n.Name] = derived[T]{n, nu, v}
	return v
}

// Keep forgets nodes that are not here any more, once there are twice as many
// values as nodes.
func (m *Memo[T]) Keep(nodes int, here func(name string) bool) {
	if len(m.got) <= 2*nodes+16 {
		return
	}
	for name := range m.got {
		if !here(name) {
			delete(m.got, name)
		}
	}
}

// Again is like Of; derive is given the value of before, to keep it if it still
// holds. A value with an error is not remembered.
func (m *Memo[T]) Again(n *corev1.Node, nu *v1alpha1.NodeUpdate, derive func(before T) (T, error)) (T, error) {
	d, ok := m.got[n.Name]
	if ok && d.node == n && d.update == nu {
		return d.value, nil
	}
	v, err := derive(d.value)
	if err != nil {
		return v, err
	}
	if m.got == nil {
		m.got = map[string]derived[T]{}
	}
	m.got[n.Name] = derived[T]{n, nu, v}
	return v, nil
}
