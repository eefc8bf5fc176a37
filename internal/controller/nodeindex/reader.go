package nodeindex

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Changes reports which updates of an object wake a reconciler; nil wakes it for all.
// A new object and a deleted one always wake it.
type Changes struct {
	Node   func(before, after *corev1.Node) bool
	Update func(before, after *v1alpha1.NodeUpdate) bool
}

// Reader is the access of one reconciler to the index.
type Reader struct {
	*Index
	changes Changes
	wakes   chan event.GenericEvent
}

// Reader adds a reader, before Watch.
func (x *Index) Reader(c Changes) *Reader {
	r := &Reader{Index: x, changes: c, wakes: make(chan event.GenericEvent, 1)}
	x.readers = append(x.readers, r)
	return r
}

// Changed gets one event for many changes when there is a reason to reconcile.
func (r *Reader) Changed() <-chan event.GenericEvent { return r.wakes }

func (r *Reader) wake() {
	select {
	case r.wakes <- event.GenericEvent{}:
	default: // an event is waiting already
	}
}

// Refresh returns the nodes as they are now.
func (r *Reader) Refresh() *View { return r.refresh() }
