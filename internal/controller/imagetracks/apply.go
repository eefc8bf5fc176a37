package imagetracks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/imagetag/track"
)

// WriterRole is the ClusterRole with the right to change workloads. An installation does
// not bind it: an administrator binds it in each namespace that a track may change.
const WriterRole = "refit-image-writer"

// act brings the image to the nodes, writes down what was decided, and then does
// the one thing that is next.
func (r *Reconciler) act(ctx context.Context, l *turn) error {
	var err error
	sets := Sets{Client: r.Client, Live: r.Live, WriterRole: WriterRole}
	if l.pre, err = sets.Preload(ctx, l.o, l.t, &l.state, l.ws, l.bundles); err != nil {
		return err
	}
	if err := r.decide(ctx, l); err != nil {
		return err
	}
	if err := r.writeMarks(ctx, &l.marks); err != nil {
		return err
	}
	switch {
	case l.step.Write >= 0:
		return r.write(ctx, l.ws[l.step.Write], l.state.Approved)
	case l.step.Drain != "":
		return r.drain(ctx, l)
	case l.step.Evict != "":
		return r.evict(ctx, l.ws[l.step.Of], l.step.Evict)
	case l.step.Node.Node != "":
		return r.nodes().Permit(ctx, l.roll(), l.ws[l.step.TurnOf], l.step.Node)
	}
	return nil
}

// decide what is next, and write it down.
func (r *Reconciler) decide(ctx context.Context, l *turn) error {
	propose := l.o.Spec.Mode != v1alpha1.ModeWrite
	if err := errors.Join(r.describeBatches(ctx, l), r.describeDrains(ctx, l)); err != nil {
		return err
	}
	l.applyWindows()
	list, err := r.targetsOf(ctx, l, propose)
	if err != nil {
		return err
	}
	var gate track.Gate
	if !propose && slices.ContainsFunc(list, func(w track.Target) bool { return w.Kind == track.StaticPod && !w.Kubeadm || w.Drains }) {
		r.turns.Lock()
		defer r.turns.Unlock()
		if gate, err = r.nodes().Gate(ctx, l.o); err != nil {
			return err
		}
	}
	l.rows, l.step = track.Roll(list, l.state.Approved, l.pre, gate, propose)
	if l.o.Spec.Freeze {
		l.markFrozenTargets()
	}
	if err := r.writeProposal(ctx, l); err != nil {
		return err
	}
	l.describe()
	if err := r.keepTurn(ctx, l); err != nil {
		return err
	}
	return r.writeTurn(ctx, l)
}

// writeTurn releases the node that has no turn any more, and writes the status. A node is cordoned
// only after that, so the status always names it.
func (r *Reconciler) writeTurn(ctx context.Context, l *turn) error {
	if err := r.releaseUnused(ctx, l); err != nil {
		return err
	}
	return r.writeStatus(ctx, l.o, &l.status)
}

// keepTurn keeps the turn of a workload that is not seen now: its only pod is
// being replaced, or it is no target any more.
func (r *Reconciler) keepTurn(ctx context.Context, l *turn) error {
	t := l.o.Status.Turn
	if t == nil || l.status.Turn != nil || slices.ContainsFunc(l.ws, func(w *workloads.Workload) bool { return w.Key() == t.Workload }) {
		return nil
	}
	runs, err := r.nodes().Runs(ctx, l.o, t)
	if err == nil && runs {
		l.status.Turn = t
	}
	return err
}

// targetsOf a turn, with what refit may not write to.
func (r *Reconciler) targetsOf(ctx context.Context, l *turn, propose bool) ([]track.Target, error) {
	list := make([]track.Target, len(l.ws))
	for i, w := range l.ws {
		if !propose && w.Owner == "" && !w.Kubeadm && l.state.Approved != nil && w.Changes(l.state.Approved) {
			var err error
			if w.Denied, err = r.writeDenial(ctx, w); err != nil {
				return nil, err
			}
		}
		list[i] = w.Target
	}
	return list, nil
}

// markFrozenTargets reports for targets that would start that the track is frozen. A node
// whose turn has started continues, and may undo it.
func (l *turn) markFrozenTargets() {
	begins := l.step.Write
	switch n := l.step.Node; {
	case n.Undo:
	case n.Node != "" || l.step.Drain != "" || l.step.Evict != "" && l.step.Turn != "":
		begins = l.step.TurnOf
		l.step.Node, l.step.Drain, l.step.Turn = track.NodeStep{}, "", ""
	}
	l.step.Write, l.step.Evict = -1, ""
	if begins >= 0 {
		l.rows[begins].State, l.rows[begins].Message = track.Stopped, "the track is frozen (spec.freeze)"
	}
}

// writeDenial returns why refit may not write to a workload, with the fix.
func (r *Reconciler) writeDenial(ctx context.Context, w *workloads.Workload) (string, error) {
	group, resource := "apps", strings.ToLower(w.Kind)+"s"
	switch w.Kind {
	case track.CronJob:
		group = "batch"
	case track.StaticPod: // no resource of the API server: its agents write it
		group = v1alpha1.GroupVersion.Group
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: w.Namespace, Verb: "patch", Group: group, Resource: resource, Name: w.Name}}}
	if err := r.Client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("ask whether %s may be changed: %w", w.Key(), err)
	}
	if review.Status.Allowed {
		return "", nil
	}
	return fmt.Sprintf("refit may not change it: kubectl -n %s create rolebinding %s --clusterrole=%s --serviceaccount=%s:%s",
		w.Namespace, WriterRole, WriterRole, v1alpha1.SystemNamespace, v1alpha1.FieldOwnerController), nil
}

// write sets the digest in a workload's template, if the workload has not changed since it
// was read.
func (r *Reconciler) write(ctx context.Context, w *workloads.Workload, approved *track.Image) error {
	before, ok := w.Object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s cannot be copied", w.Key())
	}
	spec := workloads.PodSpecOf(w.Object)
	var runs []string
	for _, c := range w.Containers {
		image, _ := track.Rewrite(c.Image, approved)
		list := spec.Containers
		if c.Init {
			list = spec.InitContainers
		}
		for i := range list {
			if list[i].Name == c.Name {
				list[i].Image = image
			}
		}
		runs = append(runs, c.Name+"="+approved.Name())
	}
	annotations := w.Object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationRuns] = strings.Join(runs, ", ")
	w.Object.SetAnnotations(annotations)
	err := r.Client.Patch(ctx, w.Object, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerTracks))
	if isConflict(err) != nil {
		return fmt.Errorf("write the digest into %s: %w", w.Key(), err)
	}
	if err == nil {
		log.FromContext(ctx).Info("digest written", "workload", w.Key(), "image", approved.Name())
	}
	return nil
}

// evict asks the Eviction API for that very pod. That a budget says no is no
// error: it is asked again.
func (r *Reconciler) evict(ctx context.Context, w *workloads.Workload, name string) error {
	i := slices.IndexFunc(w.Pods, func(p corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	p := &w.Pods[i]
	ev := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}}
	err := r.Client.SubResource("eviction").Create(ctx, p.DeepCopy(), ev)
	if apierrors.IsTooManyRequests(err) {
		return nil
	}
	if isConflict(err) != nil {
		return fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, o *v1alpha1.ImageTrack, st *v1alpha1.ImageTrackStatus) error {
	if equality.Semantic.DeepEqual(o.Status, *st) {
		return nil
	}
	return client.IgnoreNotFound(ssa.Status(ctx, r.Client, ssa.Object{Kind: "ImageTrack", Name: o.Name, UID: string(o.UID)}, st))
}

// writeProposal keeps the ConfigMap with what others must change.
func (r *Reconciler) writeProposal(ctx context.Context, l *turn) error {
	data := map[string]any{}
	for i, row := range l.rows {
		if row.State == track.Proposed {
			data[strings.ReplaceAll(strings.ToLower(row.Key), "/", ".")+".yaml"] = track.Patch(&l.ws[i].Target, l.state.Approved)
		}
	}
	name := Name(l.o.Name)
	var have corev1.ConfigMap
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &have)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read ConfigMap %s/%s: %w", v1alpha1.NodesNamespace, name, err)
	case err != nil && len(data) == 0, err == nil && same(have.Data, data):
		return nil
	case err == nil && have.Labels[v1alpha1.LabelTrack] != l.o.Name:
		return fmt.Errorf("there is a ConfigMap %s/%s that this track did not make: rename it", v1alpha1.NodesNamespace, name)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data}}
	u.SetNamespace(v1alpha1.NodesNamespace)
	u.SetName(name)
	u.SetLabels(map[string]string{v1alpha1.LabelTrack: l.o.Name})
	u.SetOwnerReferences([]metav1.OwnerReference{*ParentOf(l.o)})
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldOwnerTracks), client.ForceOwnership); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", v1alpha1.NodesNamespace, name, err)
	}
	return nil
}

func same(have map[string]string, want map[string]any) bool {
	if len(have) != len(want) {
		return false
	}
	for k, v := range have {
		if want[k] != v {
			return false
		}
	}
	return true
}
