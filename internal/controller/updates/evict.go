package updates

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/drain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/update"
)

// podsOn lists the pods of a node, from the API server: pods are not cached.
func (r *Reconciler) podsOn(ctx context.Context, node string) ([]drain.Pod, error) {
	var l corev1.PodList
	if err := r.Live.List(ctx, &l, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	out := make([]drain.Pod, 0, len(l.Items))
	for i := range l.Items {
		out = append(out, podFacts(&l.Items[i]))
	}
	return out, nil
}

func podFacts(p *corev1.Pod) drain.Pod {
	d := drain.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting: p.DeletionTimestamp != nil, EvictAnyway: p.Annotations[v1alpha1.AnnotationEvict] == "true"}
	_, d.Mirror = p.Annotations[corev1.MirrorPodAnnotationKey]
	_, d.Refit = p.Labels[v1alpha1.LabelComponent]
	if o := metav1.GetControllerOf(p); o != nil {
		d.OwnerKind, d.OwnerName = o.Kind, o.Name
	}
	for _, v := range p.Spec.Volumes {
		d.EmptyDir = d.EmptyDir || v.EmptyDir != nil
	}
	return d
}

// evict asks the Eviction API for every pod that must go, once; what it refuses
// is explained and asked for again at the next look.
func (r *Reconciler) evict(ctx context.Context, u *v1alpha1.ClusterUpdate, node string, d drain.Decision) ([]model.Verdict, error) {
	var verdicts []model.Verdict
	var errs []error
	if lost := d.DataLoss(); len(lost) > 0 && r.once(string(u.UID)+" "+node) {
		r.event(u, nil, corev1.EventTypeNormal, v1alpha1.ReasonDraining, "Evict", "node "+node+": emptyDir data goes with "+strings.Join(lost, ", "))
	}
	for _, p := range d.Evict {
		uid := types.UID(p.UID)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
		ev := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
		err := r.Client.SubResource("eviction").Create(ctx, pod, ev)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of that name
		case apierrors.IsTooManyRequests(err):
			v, err := r.explain(ctx, node, p)
			verdicts = append(verdicts, v)
			errs = append(errs, err)
		case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "PodDisruptionBudget"):
			v, err := r.explain(ctx, node, p) // two budgets for one pod
			verdicts = append(verdicts, v)
			errs = append(errs, err)
		default:
			verdicts = append(verdicts, model.Verdict{Reason: v1alpha1.ReasonDrainBlocked, Object: p.Object(), Waiting: true,
				Message: fmt.Sprintf("node %s: the eviction of pod %s is refused: %v", node, p.Key(), err)})
		}
	}
	return verdicts, errors.Join(errs...)
}

// explain names the budgets that protect a pod.
func (r *Reconciler) explain(ctx context.Context, node string, p drain.Pod) (model.Verdict, error) {
	var pod corev1.Pod
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, &pod); err != nil {
		return drain.Blocked(node, p, nil), client.IgnoreNotFound(err)
	}
	pdbs, err := r.budgets(ctx, client.InNamespace(p.Namespace))
	if err != nil {
		return drain.Blocked(node, p, nil), err
	}
	var protecting []drain.Budget
	for _, b := range pdbs {
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && s.Matches(labels.Set(pod.Labels)) {
			protecting = append(protecting, drain.Budget{Namespace: b.Namespace, Name: b.Name, Allowed: b.Status.DisruptionsAllowed,
				Healthy: b.Status.CurrentHealthy, Wanted: b.Status.DesiredHealthy, Expected: b.Status.ExpectedPods})
		}
	}
	return drain.Blocked(node, p, protecting), nil
}

// controlPlanePods are the static pods that kubeadm makes and versions.
var controlPlanePods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// staticPods says which static pod of a control-plane node is not at the target
// or not Ready, empty if all are.
func (r *Reconciler) staticPods(ctx context.Context, np model.NodePlan) (string, error) {
	var l corev1.PodList
	err := r.Live.List(ctx, &l, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"tier": "control-plane"}, client.MatchingFields{"spec.nodeName": np.Node})
	if err != nil {
		return "", fmt.Errorf("list the static pods of node %s: %w", np.Node, err)
	}
	for _, component := range controlPlanePods {
		found := false
		for i := range l.Items {
			p := &l.Items[i]
			if p.Labels["component"] != component || len(p.Spec.Containers) == 0 {
				continue
			}
			found = true
			if image := p.Spec.Containers[0].Image; !update.Same(tag(image), np.To) {
				return component + " runs " + image + ", not " + np.To, nil
			}
			if !podReady(p) {
				return component + " is not Ready yet", nil
			}
		}
		if !found {
			return component + " has no pod on it", nil
		}
	}
	return "", nil
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tag of an image reference.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[i+1:]
	}
	return ""
}
