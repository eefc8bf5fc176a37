package nodeindex

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// answerLifetime is how long an answer of the API server counts more than a cache that
// shows an older version: as long as a watch takes to start again after an outage.
const answerLifetime = 90 * time.Second

// Index of all nodes, for any number of goroutines.
type Index struct {
	nodes   objects[*corev1.Node]
	updates objects[*v1alpha1.NodeUpdate]
	readers []*Reader
	synced  []toolscache.InformerSynced
	filled  atomic.Bool
	now     func() time.Time

	mu   sync.Mutex
	view *View
	size atomic.Int64
}

// New creates an empty index.
func New() *Index {
	return &Index{nodes: newObjects[*corev1.Node](), updates: newObjects[*v1alpha1.NodeUpdate](), now: time.Now, view: &View{}}
}

// Watch follows a cache that has not started yet. All readers exist before it is called.
func (x *Index) Watch(ctx context.Context, c cache.Cache) error {
	err := follow(ctx, x, c, &corev1.Node{}, &x.nodes, func(r *Reader, before, after *corev1.Node) bool {
		return r.changes.Node == nil || r.changes.Node(before, after)
	})
	if err != nil {
		return err
	}
	err = follow(ctx, x, c, &v1alpha1.NodeUpdate{}, &x.updates, func(r *Reader, before, after *v1alpha1.NodeUpdate) bool {
		return r.changes.Update == nil || r.changes.Update(before, after)
	})
	if err != nil {
		return err
	}
	go x.fill(ctx)
	return nil
}

// fill sorts the tens of thousands of nodes that exist at the start, before the first
// reconcile.
func (x *Index) fill(ctx context.Context) {
	if toolscache.WaitForCacheSync(ctx.Done(), x.synced...) {
		x.refresh()
		x.filled.Store(true)
	}
}

// Synced reports whether the index has sorted all objects that existed at the start. No
// reconciler may refresh before.
func (x *Index) Synced() bool { return x.filled.Load() }

// Size is the number of nodes at the last refresh of any reader.
func (x *Index) Size() int { return int(x.size.Load()) }

// PutNode stores a node as the API server answered it.
func (x *Index) PutNode(n *corev1.Node) { x.nodes.putAnswer(n, x.now()) }

// PutUpdate stores a NodeUpdate as the API server answered it.
func (x *Index) PutUpdate(nu *v1alpha1.NodeUpdate) { x.updates.putAnswer(nu, x.now()) }

// refresh applies the changes since the last refresh, whichever reader asked for it.
// Answers age by the index's clock alone: readers have clocks of their own.
func (x *Index) refresh() *View {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	updates := x.updates.drain(now) // first: a NodeUpdate without its node counts as departed
	x.view = x.view.with(x.nodes.drain(now), updates)
	x.size.Store(int64(len(x.view.Nodes)))
	return x.view
}

// follow feeds the objects of one kind to the index and wakes the readers that wait for
// the change.
func follow[T client.Object](ctx context.Context, x *Index, c cache.Cache, kind T, s *objects[T], wakes func(r *Reader, before, after T) bool) error {
	inf, err := c.GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	reg, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if added, ok := o.(T); ok {
				s.put(added)
				x.wakeReaders(func(*Reader) bool { return true })
			}
		},
		UpdateFunc: func(before, after any) {
			a, okA := before.(T)
			b, okB := after.(T)
			if !okA || !okB {
				return
			}
			s.put(b)
			x.wakeReaders(func(r *Reader) bool { return wakes(r, a, b) })
		},
		DeleteFunc: func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if deleted, ok := o.(T); ok {
				s.remove(deleted)
				x.wakeReaders(func(*Reader) bool { return true })
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	x.synced = append(x.synced, reg.HasSynced)
	return nil
}

func (x *Index) wakeReaders(which func(*Reader) bool) {
	for _, r := range x.readers {
		if which(r) {
			r.wake()
		}
	}
}
