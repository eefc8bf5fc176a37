package nodedrain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
)

// Evictor speaks with the API server; Live reads past any cache.
type Evictor struct {
	Client client.Client
	Live   client.Reader
}

// Decide reads the pods of a node from the API server (pods are not cached), and decides
// about each with the drain options of an update.
func (e *Evictor) Decide(ctx context.Context, node string, o *v1alpha1.DrainOptions) (drain.Decision, error) {
	rules := clusterfacts.RulesOf(o)
	pods, err := clusterfacts.PodsOn(ctx, e.Live, node, rules)
	if err != nil {
		return drain.Decision{}, err
	}
	return drain.DecideWith(pods, rules.Options()), nil
}

// Evict asks the Eviction API for every pod of a node that must go, once; what
// it refuses is explained, and asked for again at the next look.
func (e *Evictor) Evict(ctx context.Context, node string, d drain.Decision, o *v1alpha1.DrainOptions) ([]model.Blocker, error) {
	var verdicts []model.Blocker
	var errs []error
	spaces := map[string]clusterfacts.Budgets{}
	for _, p := range d.Evict {
		err := e.evict(ctx, p, o)
		switch {
		case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of that name
		case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err) && strings.Contains(err.Error(), "PodDisruptionBudget"): // the latter: two budgets for one pod
			v, err := e.explainBudgets(ctx, node, p, spaces)
			verdicts = append(verdicts, v)
			errs = append(errs, err)
		default:
			verdicts = append(verdicts, model.Blocker{Reason: v1alpha1.ReasonDrainBlocked, Object: p.Object(), Waiting: true,
				Message: fmt.Sprintf("node %s: the eviction of pod %s is refused: %v", node, p.Key(), err)})
		}
	}
	return verdicts, errors.Join(errs...)
}

// evict asks for one pod: that very one, and no other of its name.
func (e *Evictor) evict(ctx context.Context, p drain.Pod, o *v1alpha1.DrainOptions) error {
	uid := types.UID(p.UID)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	ev := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
	if o != nil && o.GracePeriodSeconds != nil {
		seconds := max(1, *o.GracePeriodSeconds) // 0 would take the pod out of the API while it still runs
		ev.DeleteOptions.GracePeriodSeconds = &seconds
	}
	return e.Client.SubResource("eviction").Create(ctx, pod, ev)
}

// explainBudgets names the budgets that protect a pod; those of a namespace are read
// once for all pods of a look.
func (e *Evictor) explainBudgets(ctx context.Context, node string, p drain.Pod, spaces map[string]clusterfacts.Budgets) (model.Blocker, error) {
	var pod corev1.Pod
	if err := e.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, &pod); err != nil {
		return drain.EvictionBlocked(node, p, nil), client.IgnoreNotFound(err)
	}
	if spaces[p.Namespace] == nil {
		bs, err := clusterfacts.ListBudgets(ctx, e.Live, client.InNamespace(p.Namespace))
		if err != nil {
			return drain.EvictionBlocked(node, p, nil), err
		}
		spaces[p.Namespace] = bs
	}
	return drain.EvictionBlocked(node, p, spaces[p.Namespace].Protecting(&pod)), nil
}
