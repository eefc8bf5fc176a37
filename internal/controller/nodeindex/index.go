package nodeindex

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// believe is how long an answer of the API server counts more than a cache that
// shows something older: as long as a watch takes to begin again after an outage.
const believe = 90 * time.Second

// View is what is known. It is valid until the next Look.
type View struct {
	// Nodes by name.
	Nodes []*corev1.Node
	// Reports are their NodeUpdates in the same order, nil for a node without one.
	Reports []*v1alpha1.NodeUpdate
	// Edition is another whenever a node came or went: then the order is another.
	Edition int
	// ByName has the same nodes.
	ByName map[string]*corev1.Node
	// Updates by the name of their node; also those whose node has left.
	Updates map[string]*v1alpha1.NodeUpdate
}

// Changes says which changes of an object call for a look; nil is all of them.
type Changes struct {
	Node   func(before, after *corev1.Node) bool
	Update func(before, after *v1alpha1.NodeUpdate) bool
}

// Index of the nodes. Look is for one goroutine, the rest for any.
type Index struct {
	nodes   side[*corev1.Node]
	updates side[*v1alpha1.NodeUpdate]
	wakes   chan event.GenericEvent
	synced  []toolscache.InformerSynced
	filled  atomic.Bool

	view View
	at   map[string]int
	size atomic.Int64
}

// New makes an empty roster.
func New() *Index {
	return &Index{nodes: newSide[*corev1.Node](), updates: newSide[*v1alpha1.NodeUpdate](), wakes: make(chan event.GenericEvent, 1),
		view: View{ByName: map[string]*corev1.Node{}, Updates: map[string]*v1alpha1.NodeUpdate{}}, at: map[string]int{}}
}

// Watch follows a cache that has not started yet.
func (r *Index) Watch(ctx context.Context, c cache.Cache, which Changes) error {
	if err := follow(ctx, r, c, &corev1.Node{}, &r.nodes, which.Node); err != nil {
		return err
	}
	if err := follow(ctx, r, c, &v1alpha1.NodeUpdate{}, &r.updates, which.Update); err != nil {
		return err
	}
	go r.fill(ctx)
	return nil
}

// fill puts in order what was there at the start, before the first look: that is
// tens of thousands of names.
func (r *Index) fill(ctx context.Context) {
	if toolscache.WaitForCacheSync(ctx.Done(), r.synced...) {
		r.Refresh(time.Now())
		r.filled.Store(true)
	}
}

// Changed gets an event, for many changes at once, when there is a reason to look.
func (r *Index) Changed() <-chan event.GenericEvent { return r.wakes }

func (r *Index) wake() {
	select {
	case r.wakes <- event.GenericEvent{}:
	default: // a call is waiting already
	}
}

// Synced reports whether everything that was there at the start is known and in
// its order: nobody may look before.
func (r *Index) Synced() bool { return r.filled.Load() }

// PutNode notes a node as the API server answered it.
func (r *Index) PutNode(n *corev1.Node, now time.Time) { r.nodes.putAnswer(n, now) }

// PutUpdate notes a NodeUpdate as the API server answered it.
func (r *Index) PutUpdate(nu *v1alpha1.NodeUpdate, now time.Time) { r.updates.putAnswer(nu, now) }

// Refresh takes in what is new.
func (r *Index) Refresh(now time.Time) *View {
	if len(r.view.ByName)+len(r.view.Updates) == 0 { // the first: maps that grow by and by cost twice the time
		r.view.ByName, r.view.Updates = make(map[string]*corev1.Node, r.nodes.count()), make(map[string]*v1alpha1.NodeUpdate, r.updates.count())
		r.at = make(map[string]int, r.nodes.count())
	}
	r.updates.drain(now, func(name string, nu *v1alpha1.NodeUpdate, there bool) {
		if i, known := r.at[name]; known {
			r.view.Reports[i] = nu
		}
		if !there {
			delete(r.view.Updates, name)
			return
		}
		r.view.Updates[name] = nu
	})
	moved := false
	r.nodes.drain(now, func(name string, n *corev1.Node, there bool) {
		i, known := r.at[name]
		switch {
		case !there:
			delete(r.view.ByName, name)
			moved = moved || known
			return
		case known:
			r.view.Nodes[i] = n
		default:
			moved = true
		}
		r.view.ByName[name] = n
	})
	if moved {
		r.sort()
		r.size.Store(int64(len(r.view.Nodes)))
	}
	return &r.view
}

// Size is how many nodes the last Look showed.
func (r *Index) Size() int { return int(r.size.Load()) }

func (r *Index) sort() {
	r.view.Nodes = make([]*corev1.Node, 0, len(r.view.ByName))
	for _, n := range r.view.ByName {
		r.view.Nodes = append(r.view.Nodes, n)
	}
	slices.SortFunc(r.view.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	clear(r.at)
	r.view.Reports = make([]*v1alpha1.NodeUpdate, len(r.view.Nodes))
	for i, n := range r.view.Nodes {
		r.at[n.Name] = i
		r.view.Reports[i] = r.view.Updates[n.Name]
	}
	r.view.Edition++
}

// follow takes the events of one kind.
func follow[T client.Object](ctx context.Context, r *Index, c cache.Cache, of T, s *side[T], calls func(before, after T) bool) error {
	inf, err := c.GetInformer(ctx, of)
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	reg, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if x, ok := o.(T); ok {
				s.put(x)
				r.wake()
			}
		},
		UpdateFunc: func(before, after any) {
			a, okA := before.(T)
			b, okB := after.(T)
			if !okA || !okB {
				return
			}
			s.put(b)
			if calls == nil || calls(a, b) {
				r.wake()
			}
		},
		DeleteFunc: func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if x, ok := o.(T); ok {
				s.remove(x)
				r.wake()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	r.synced = append(r.synced, reg.HasSynced)
	return nil
}
