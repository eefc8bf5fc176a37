package clusterresources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/text"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

const (
	// settle is how long events are collected before it is looked.
	settle = 500 * time.Millisecond
	// again is when it is looked again while something is not as it should be.
	again = 15 * time.Second
	// mostNamed bounds the sentences of a status.
	mostNamed = 20
)

// Payload is the resources of a bundle.
type Payload struct {
	// Bundle is the bundle's name.
	Bundle string
	Data   []byte
}

// From reads payloads from the nodes.
func From(r *bundlefiles.Reader) func(context.Context, string) (*Payload, error) {
	return func(ctx context.Context, digest string) (*Payload, error) {
		f, err := r.File(ctx, digest, bundle.PayloadResources, maxBytes)
		if err != nil || f == nil {
			return nil, err
		}
		return &Payload{Bundle: f.Bundle.Name, Data: f.Data}, nil
	}
}

// Reconciler applies what finished updates bring, and compares what others would.
type Reconciler struct {
	// Client is the manager's; Objects reads and writes past the cache.
	Client  client.Client
	Objects client.Client
	// Payload of a bundle by its digest; nil if it has none, bundlefiles.ErrNotYet while
	// that is not known.
	Payload func(ctx context.Context, digest string) (*Payload, error)
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("resources").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		Watches(&v1alpha1.ClusterUpdate{}, queue.Debounce("resources", settle)).
		Complete(r)
}

// Reconcile looks at the last finished update, at the one whose nodes move, and at
// those that wait.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var list v1alpha1.ClusterUpdateList
	if err := r.Client.List(ctx, &list); err != nil {
		return ctrl.Result{}, err
	}
	wait := time.Duration(0)
	for _, u := range concerned(list.Items) {
		later, err := r.reconcileOne(ctx, u)
		if err != nil {
			return ctrl.Result{}, err
		}
		if later {
			wait = again
		}
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// concerned are the updates that something may have to be done for.
func concerned(all []v1alpha1.ClusterUpdate) []*v1alpha1.ClusterUpdate {
	var out []*v1alpha1.ClusterUpdate
	if last := lastDone(all); last != nil {
		out = append(out, last)
	}
	for i := range all {
		u := &all[i]
		if u.Spec.Bundle != "" && u.Status.Phase != v1alpha1.PhaseDone && u.Status.PlanDigest != "" && u.DeletionTimestamp.IsZero() {
			out = append(out, u)
		}
	}
	return out
}

// lastDone is the update that was completed last and brought a bundle.
func lastDone(all []v1alpha1.ClusterUpdate) *v1alpha1.ClusterUpdate {
	var last *v1alpha1.ClusterUpdate
	for i := range all {
		u := &all[i]
		if u.Spec.Bundle != "" && u.Status.Phase == v1alpha1.PhaseDone && u.Status.FinishedAt != nil && (last == nil || u.Status.FinishedAt.After(last.Status.FinishedAt.Time)) {
			last = u
		}
	}
	return last
}

// longMessage of a status, in bytes.
const longMessage = 1000

// parts of the work on an update's resources.
type part int

const (
	compared part = iota // nothing is changed
	begun                // those that come before the nodes
	applied              // all
)

// partOf is what is to be done for an update; ok is false if it is done: once, for
// what people change afterwards is theirs.
func partOf(u *v1alpha1.ClusterUpdate) (p part, ok bool) {
	have := u.Status.Resources
	switch {
	case u.Status.Phase == v1alpha1.PhaseDone:
		return applied, have == nil || have.State != v1alpha1.ResourcesApplied
	case u.Status.StartedAt != nil:
		return begun, have != nil && have.Before > 0 && !have.BeforeApplied
	}
	return compared, true
}

// reconcileOne compares or applies; later asks for another look soon.
func (r *Reconciler) reconcileOne(ctx context.Context, u *v1alpha1.ClusterUpdate) (later bool, err error) {
	what, ok := partOf(u)
	if !ok {
		return false, nil
	}
	p, err := r.Payload(ctx, u.Spec.Bundle)
	if err != nil || p == nil {
		return errors.Is(err, bundlefiles.ErrNotYet), notYet(err)
	}
	objects, err := parse(p.Data)
	if err != nil {
		return false, r.writeStatus(ctx, u, &v1alpha1.ResourcesStatus{State: v1alpha1.ResourcesFailed, Message: err.Error()})
	}
	o, err := r.runPart(ctx, what, p.Bundle, objects)
	if err != nil {
		return false, err
	}
	st := o.status(what)
	there := st.State == v1alpha1.ResourcesStarted || st.State == v1alpha1.ResourcesApplied
	if st.Before = int32(len(early(objects))); st.Before > 0 {
		st.BeforeApplied = there
		if what == compared {
			st.Message += fmt.Sprintf("; %d of them come before the nodes", st.Before)
		}
	}
	return !there, r.writeStatus(ctx, u, st)
}

// notYet is no error: others say why nothing is known of a bundle.
func notYet(err error) error {
	if errors.Is(err, bundlefiles.ErrNotYet) {
		return nil
	}
	return err
}

func (r *Reconciler) runPart(ctx context.Context, what part, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
	switch what {
	case applied:
		return r.bring(ctx, bundle, objects)
	case begun:
		return r.start(ctx, bundle, early(objects))
	}
	return r.compare(ctx, bundle, objects)
}

// early are the objects that are applied before the nodes move.
func early(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, u := range objects {
		if u.GetAnnotations()[v1alpha1.AnnotationApply] == v1alpha1.ApplyBeforeNodes {
			out = append(out, u)
		}
	}
	return out
}

func (r *Reconciler) compare(ctx context.Context, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
	o, err := r.apply(ctx, objects, true)
	if err != nil {
		return o, err
	}
	have, err := r.readInventory(ctx, bundle)
	if err != nil {
		return o, err
	}
	_, err = r.prune(ctx, gone(have, items(objects)), true, &o)
	return o, err
}

// start applies what comes before the nodes, and removes nothing. What was applied is
// in the inventory, so that it is removed some day although the update may end here.
func (r *Reconciler) start(ctx context.Context, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
	have, err := r.readInventory(ctx, bundle)
	if err != nil {
		return outcome{}, err
	}
	if err := r.writeInventory(ctx, bundle, merge(have, items(objects))); err != nil {
		return outcome{}, err
	}
	o, err := r.apply(ctx, objects, false)
	if err != nil {
		return o, err
	}
	return o, r.writeInventory(ctx, bundle, merge(o.applied, merge(have, items(objects))))
}

// bring applies and removes. The inventory is written before anything is: an object
// that nobody remembers could never be removed.
func (r *Reconciler) bring(ctx context.Context, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
	have, err := r.readInventory(ctx, bundle)
	if err != nil {
		return outcome{}, err
	}
	now := items(objects)
	if err := r.writeInventory(ctx, bundle, merge(have, now)); err != nil {
		return outcome{}, err
	}
	o, err := r.apply(ctx, objects, false)
	if err != nil || len(o.conflicts)+len(o.problems)+len(o.unready) > 0 {
		return o, err // nothing is removed before all that replaces it works
	}
	stay, err := r.prune(ctx, gone(have, now), false, &o)
	if err != nil {
		return o, err
	}
	return o, r.writeInventory(ctx, bundle, append(stay, o.applied...))
}

func items(objects []*unstructured.Unstructured) []item {
	out := make([]item, 0, len(objects))
	for _, u := range objects {
		out = append(out, itemOf(u))
	}
	return out
}

// status says it in the words of the API.
func (o outcome) status(what part) *v1alpha1.ResourcesStatus {
	st := &v1alpha1.ResourcesStatus{State: v1alpha1.ResourcesCompared, Create: int32(o.create), Change: int32(o.change), Unchanged: int32(o.same), Remove: int32(o.remove),
		Conflicts: o.conflicts[:min(len(o.conflicts), mostNamed)]}
	st.Message = fmt.Sprintf("%d to make, %d to change, %d to remove, %d as they should be", o.create, o.change, o.remove, o.same)
	if what != compared {
		st.State = v1alpha1.ResourcesApplied
		if what == begun {
			st.State = v1alpha1.ResourcesStarted
		}
		st.Message = fmt.Sprintf("%d made, %d changed, %d removed, %d as they should be", o.create, o.change, o.remove, o.same)
	}
	switch {
	case len(o.conflicts) > 0:
		st.State = v1alpha1.ResourcesConflict
		st.Message = fmt.Sprintf("%d objects have fields that somebody else owns; nothing is forced: let the owner give them up, or take them out of the bundle", len(o.conflicts))
	case len(o.problems) > 0:
		st.State = v1alpha1.ResourcesFailed
		st.Message = text.Truncate(strings.Join(o.problems[:min(len(o.problems), 3)], "; "), longMessage)
	case len(o.unready) > 0 && what != compared:
		st.State = v1alpha1.ResourcesWaiting
		st.Message = text.Truncate("applied, and not ready yet: "+strings.Join(o.unready[:min(len(o.unready), 3)], "; "), longMessage)
	}
	return st
}

// writeStatus writes the status, if it is another. The part of the status is this
// reconciler's alone.
func (r *Reconciler) writeStatus(ctx context.Context, u *v1alpha1.ClusterUpdate, st *v1alpha1.ResourcesStatus) error {
	st.Message = text.Truncate(st.Message, longMessage)
	slices.Sort(st.Conflicts)
	if equality.Semantic.DeepEqual(u.Status.Resources, st) {
		return nil
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(st)
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"resources": m}}}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind("ClusterUpdate")
	o.SetName(u.Name)
	o.SetUID(u.UID)
	err = r.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of ClusterUpdate %s: %w", u.Name, err)
	}
	return nil
}
