package interlocks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/queue"
)

const (
	// debounce is how long changes are gathered before a look.
	debounce = 2 * time.Second
	// sweepEvery is how often the Machines and NodePools that are held are listed.
	sweepEvery = 30 * time.Second
	// missingFor is how long a kind that the cluster does not have is not asked
	// for again.
	missingFor = time.Minute
)

var (
	machineKind  = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
	nodePoolKind = schema.GroupKind{Group: "karpenter.sh", Kind: "NodePool"}
)

// Reconciler holds and restores.
type Reconciler struct {
	// Client writes, and reads nodes if Nodes is nil; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Nodes reads the node index; Setup sets it.
	Nodes *nodeindex.Reader
	// WithoutMachines: this installation has no right on Machines of Cluster API.
	WithoutMachines bool
	Now             func() time.Time

	// nodeRows has what the decision needs of each node; nil of one that is of no
	// interest.
	nodeRows nodeindex.Row[*Node]

	mu sync.Mutex
	// missing kinds, and when they were asked for. Only ever a reason not to ask.
	missing map[schema.GroupKind]time.Time
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager, index *nodeindex.Index, times *queue.Times) error {
	never := func(_, _ *v1alpha1.NodeUpdate) bool { return false }
	r.Nodes = index.Reader(nodeindex.Changes{Node: nodeChanged, Update: never})
	return ctrl.NewControllerManagedBy(mgr).Named("interlocks").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		WatchesRawSource(source.Channel(r.Nodes.Changed(), queue.Debounce("interlocks", debounce))).
		Watches(&v1alpha1.ClusterUpdate{}, queue.Debounce("interlocks", debounce), builder.WithPredicates(predicate.Funcs{UpdateFunc: updateChanged})).
		Complete(times.Of("interlocks", r))
}

// nodeChanged: a mark or a record came or went.
func nodeChanged(a, b *corev1.Node) bool {
	return a.Annotations[v1alpha1.AnnotationUpdating] != b.Annotations[v1alpha1.AnnotationUpdating] ||
		a.Annotations[v1alpha1.AnnotationInterlock] != b.Annotations[v1alpha1.AnnotationInterlock]
}

// updateChanged: it started or ended.
func updateChanged(e event.UpdateEvent) bool {
	a, okA := e.ObjectOld.(*v1alpha1.ClusterUpdate)
	b, okB := e.ObjectNew.(*v1alpha1.ClusterUpdate)
	return !okA || !okB || running(a) != running(b)
}

func running(u *v1alpha1.ClusterUpdate) bool {
	return u.Status.StartedAt != nil && u.Status.Phase != v1alpha1.PhaseDone
}

// Reconcile makes what is held what running updates own.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if r.Nodes != nil && !r.Nodes.Synced() {
		return ctrl.Result{RequeueAfter: debounce}, nil
	}
	in, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for _, a := range Decide(in) {
		if err := r.runAction(ctx, a, in); err != nil {
			errs = append(errs, err)
			continue
		}
		if a.Verb == VerbRestore || a.Kind != KindMachine { // a renewal is no news
			log.FromContext(ctx).Info(a.Verb, "kind", a.Kind, "object", a.Key)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	if len(in.Running)+len(in.Machines)+len(in.NodePools) > 0 {
		return ctrl.Result{RequeueAfter: sweepEvery}, nil
	}
	r.nodeRows = nodeindex.Row[*Node]{} // until then it would hold nodes that the cache has replaced
	return ctrl.Result{RequeueAfter: 10 * sweepEvery}, nil
}

func (r *Reconciler) gather(ctx context.Context) (Input, error) {
	in := Input{Now: r.Now(), Running: map[string]bool{}}
	// The nodes come first: an update whose mark they show is then in the list.
	nodes, err := r.allNodes(ctx)
	if err != nil {
		return in, err
	}
	// Read from the API server: a cache that does not show a start yet would have
	// its holds restored.
	var moves v1alpha1.ClusterUpdateList
	if err := r.Live.List(ctx, &moves); err != nil {
		return in, fmt.Errorf("list ClusterUpdates: %w", err)
	}
	for i := range moves.Items {
		if running(&moves.Items[i]) {
			for _, uid := range moves.Items[i].RunUIDs() {
				in.Running[uid] = true
			}
		}
	}
	if in.Nodes, err = r.nodes(ctx, nodes, in.Running); err != nil {
		return in, err
	}
	if in.Machines, err = r.listHeld(ctx, machineKind); err != nil {
		return in, err
	}
	in.NodePools, err = r.listHeld(ctx, nodePoolKind)
	return in, err
}

// nodes are those with a mark or a record.
func (r *Reconciler) nodes(ctx context.Context, seen *nodeindex.View, running map[string]bool) ([]Node, error) {
	r.nodeRows.Under(nil, seen.Edition, seen.Nodes)
	var out []Node
	for i, node := range seen.Nodes {
		kept, same := r.nodeRows.At(i, node, nil)
		if !same {
			*kept = nodeOf(node)
		}
		if *kept == nil {
			continue // as most of tens of thousands
		}
		n := **kept
		if n.MarkedBy != "" && !running[n.MarkedBy] {
			busy, err := r.isBusy(ctx, n)
			if err != nil {
				return nil, err
			}
			n.Busy = busy
		}
		out = append(out, n)
	}
	return out, nil
}

// allNodes are all nodes. Do not change them.
func (r *Reconciler) allNodes(ctx context.Context) (*nodeindex.View, error) {
	if r.Nodes != nil {
		return r.Nodes.Refresh(), nil
	}
	var l corev1.NodeList
	if err := r.Client.List(ctx, &l); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := &nodeindex.View{}
	for i := range l.Items {
		out.Nodes = append(out.Nodes, &l.Items[i])
	}
	return out, nil
}

// nodeOf is what the decision needs of a node, nil if it has no mark and no record.
func nodeOf(n *corev1.Node) *Node {
	marked := markedBy(n.Annotations)
	if marked == "" && n.Annotations[v1alpha1.AnnotationInterlock] == "" {
		return nil
	}
	out := &Node{Name: n.Name, NodePool: n.Labels[nodePoolLabel], Annotations: n.Annotations, MarkedBy: marked}
	if m, ns := n.Annotations[machineName], n.Annotations[machineNamespace]; m != "" && ns != "" {
		out.Machine = ns + "/" + m
	}
	out.HeldBy = heldBy(n.Annotations, out.NodePool)
	return out
}

// markedBy is the UID of the update whose mark a node carries, empty if none.
func markedBy(annotations map[string]string) string {
	if f := strings.Fields(annotations[v1alpha1.AnnotationUpdating]); len(f) > 0 {
		return f[0]
	}
	return ""
}

// isBusy reports whether a node still runs steps for the update that has marked
// it: one that was deleted in the middle.
func (r *Reconciler) isBusy(ctx context.Context, n Node) (bool, error) {
	var nu v1alpha1.NodeUpdate
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: n.Name}, &nu)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	run, st := nu.Spec.Run, nu.Status.Run
	return run != nil && st != nil && run.UID == n.MarkedBy && st.UID == run.UID && st.Attempt >= run.Attempt && st.State == v1alpha1.RunRunning, nil
}

// kindOf finds the served version of a kind; false if the cluster has none.
func (r *Reconciler) kindOf(gk schema.GroupKind) (schema.GroupVersionKind, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.WithoutMachines && gk == machineKind {
		return schema.GroupVersionKind{}, false, nil
	}
	if at, asked := r.missing[gk]; asked && r.Now().Sub(at) < missingFor {
		return schema.GroupVersionKind{}, false, nil
	}
	m, err := r.Client.RESTMapper().RESTMapping(gk)
	if meta.IsNoMatchError(err) {
		if r.missing == nil {
			r.missing = map[schema.GroupKind]time.Time{}
		}
		r.missing[gk] = r.Now()
		return schema.GroupVersionKind{}, false, nil
	}
	if err != nil {
		return schema.GroupVersionKind{}, false, fmt.Errorf("find kind %s: %w", gk, err)
	}
	return m.GroupVersionKind, true, nil
}

// changeKind changes an object of a kind that the cluster may not have.
func (r *Reconciler) changeKind(ctx context.Context, gk schema.GroupKind, key client.ObjectKey, how func(client.Object) bool) error {
	gvk, has, err := r.kindOf(gk)
	if err != nil || !has {
		return err
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return r.changeObject(ctx, u, key, how)
}

// listHeld lists the objects of a kind with our label.
func (r *Reconciler) listHeld(ctx context.Context, gk schema.GroupKind) ([]Object, error) {
	gvk, has, err := r.kindOf(gk)
	if err != nil || !has {
		return nil, err
	}
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := r.Live.List(ctx, l, client.HasLabels{v1alpha1.LabelInterlock}); err != nil {
		return nil, fmt.Errorf("list %s: %w", gk, err)
	}
	out := make([]Object, 0, len(l.Items))
	for i := range l.Items {
		o := &l.Items[i]
		key := o.GetName()
		if ns := o.GetNamespace(); ns != "" {
			key = ns + "/" + key
		}
		out = append(out, Object{Key: key, By: owner(maps.Clone(o.GetAnnotations())), Until: until(o.GetAnnotations())})
	}
	return out, nil
}
