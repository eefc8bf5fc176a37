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
	// debounce is how long events are collected before a reconcile.
	debounce = 500 * time.Millisecond
	// retryInterval is when the controller checks again while something is not applied or not ready.
	retryInterval = 15 * time.Second
	// maxNamed is how many conflicts a status lists.
	maxNamed = 20
)

// Payload is the resources of a bundle.
type Payload struct {
	// Bundle is the name of the bundle.
	Bundle string
	Data   []byte
}

// PayloadFrom reads payloads from the nodes.
func PayloadFrom(r *bundlefiles.Reader) func(context.Context, string) (*Payload, error) {
	return func(ctx context.Context, digest string) (*Payload, error) {
		f, err := r.File(ctx, digest, bundle.PayloadResources, maxBytes)
		if err != nil || f == nil {
			return nil, err
		}
		return &Payload{Bundle: f.Bundle.Name, Data: f.Data}, nil
	}
}

// Reconciler applies the resources of finished updates, and compares those of others.
type Reconciler struct {
	// Client is the manager's; Objects reads and writes without a cache.
	Client  client.Client
	Objects client.Client
	// Payload of a bundle by its digest; nil if it has none, bundlefiles.ErrNotYet while
	// that is not known.
	Payload func(ctx context.Context, digest string) (*Payload, error)
}

// Setup registers the reconciler with a manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("resources").WithOptions(controller.Options{RateLimiter: queue.Backoff()}).
		Watches(&v1alpha1.ClusterUpdate{}, queue.Debounce("resources", debounce)).
		Complete(r)
}

// Reconcile handles the last finished update, the one whose nodes move, and the waiting ones.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var list v1alpha1.ClusterUpdateList
	if err := r.Client.List(ctx, &list); err != nil {
		return ctrl.Result{}, err
	}
	wait := time.Duration(0)
	for _, u := range relevantUpdates(list.Items) {
		later, err := r.reconcileOne(ctx, u)
		if err != nil {
			return ctrl.Result{}, err
		}
		if later {
			wait = retryInterval
		}
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// relevantUpdates returns the updates whose resources may need work.
func relevantUpdates(all []v1alpha1.ClusterUpdate) []*v1alpha1.ClusterUpdate {
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

// lastDone returns the last completed update with a bundle.
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

// maxMessage of a status, in bytes.
const maxMessage = 1000

// part is a part of the work on an update's resources.
type part int

const (
	compared part = iota // dry run only
	started              // the objects that come before the nodes
	applied              // all objects
)

// partOf returns the part to run for an update; ok is false if it is complete. Resources are
// applied once: later changes by people stay.
func partOf(u *v1alpha1.ClusterUpdate) (p part, ok bool) {
	have := u.Status.Resources
	switch {
	case u.Status.Phase == v1alpha1.PhaseDone:
		return applied, have == nil || have.State != v1alpha1.ResourcesApplied
	case u.Status.StartedAt != nil && !u.LastHop():
		return compared, have == nil // the resources are those of the last hop's bundle
	case u.Status.StartedAt != nil:
		return started, have != nil && have.Before > 0 && !have.BeforeApplied
	}
	return compared, true
}

// reconcileOne compares or applies the resources of one update; later is true if it must run
// again soon.
func (r *Reconciler) reconcileOne(ctx context.Context, u *v1alpha1.ClusterUpdate) (later bool, err error) {
	what, ok := partOf(u)
	if !ok {
		return false, nil
	}
	p, err := r.Payload(ctx, u.Spec.Bundle)
	if err != nil || p == nil {
		return errors.Is(err, bundlefiles.ErrNotYet), ignoreNotYet(err)
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
	done := st.State == v1alpha1.ResourcesStarted || st.State == v1alpha1.ResourcesApplied
	if st.Before = int32(len(beforeNodes(objects))); st.Before > 0 {
		st.BeforeApplied = done
		if what == compared {
			st.Message += fmt.Sprintf("; %d of them come before the nodes", st.Before)
		}
	}
	return !done, r.writeStatus(ctx, u, st)
}

// ignoreNotYet drops ErrNotYet: the update's status already says that the bundle is unknown.
func ignoreNotYet(err error) error {
	if errors.Is(err, bundlefiles.ErrNotYet) {
		return nil
	}
	return err
}

func (r *Reconciler) runPart(ctx context.Context, what part, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
	switch what {
	case applied:
		return r.applyAndPrune(ctx, bundle, objects)
	case started:
		return r.applyBeforeNodes(ctx, bundle, beforeNodes(objects))
	}
	return r.compare(ctx, bundle, objects)
}

// beforeNodes returns the objects that are applied before the nodes move.
func beforeNodes(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
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
	_, err = r.prune(ctx, notIn(have, items(objects)), true, &o)
	return o, err
}

// applyBeforeNodes applies the objects that come before the nodes, and removes nothing. The
// inventory lists them, so that they are removed later even if the update ends here.
func (r *Reconciler) applyBeforeNodes(ctx context.Context, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
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

// applyAndPrune applies and removes objects. The inventory is written first: an object that is
// in no inventory could never be removed.
func (r *Reconciler) applyAndPrune(ctx context.Context, bundle string, objects []*unstructured.Unstructured) (outcome, error) {
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
		return o, err // nothing is removed before its replacement is ready
	}
	stay, err := r.prune(ctx, notIn(have, now), false, &o)
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

// status returns the outcome as API status.
func (o outcome) status(what part) *v1alpha1.ResourcesStatus {
	st := &v1alpha1.ResourcesStatus{State: v1alpha1.ResourcesCompared, Create: int32(o.create), Change: int32(o.change), Unchanged: int32(o.same), Remove: int32(o.remove),
		Conflicts: o.conflicts[:min(len(o.conflicts), maxNamed)]}
	st.Message = fmt.Sprintf("%d to create, %d to change, %d to remove, %d unchanged", o.create, o.change, o.remove, o.same)
	if what != compared {
		st.State = v1alpha1.ResourcesApplied
		if what == started {
			st.State = v1alpha1.ResourcesStarted
		}
		st.Message = fmt.Sprintf("%d created, %d changed, %d removed, %d unchanged", o.create, o.change, o.remove, o.same)
	}
	switch {
	case len(o.conflicts) > 0:
		st.State = v1alpha1.ResourcesConflict
		st.Message = fmt.Sprintf("fields of %s belong to other field managers; nothing is forced: let the owner release them, or remove them from the bundle", text.Count(len(o.conflicts), "object"))
	case len(o.problems) > 0:
		st.State = v1alpha1.ResourcesFailed
		st.Message = text.Truncate(strings.Join(o.problems[:min(len(o.problems), 3)], "; "), maxMessage)
	case len(o.unready) > 0 && what != compared:
		st.State = v1alpha1.ResourcesWaiting
		st.Message = text.Truncate("applied but not ready yet: "+strings.Join(o.unready[:min(len(o.unready), 3)], "; "), maxMessage)
	}
	return st
}

// writeStatus writes the status if it changed. This reconciler alone owns status.resources.
func (r *Reconciler) writeStatus(ctx context.Context, u *v1alpha1.ClusterUpdate, st *v1alpha1.ResourcesStatus) error {
	st.Message = text.Truncate(st.Message, maxMessage)
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
