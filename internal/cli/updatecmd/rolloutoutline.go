package updatecmd

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/rollout/forecast"
	"github.com/refit-dev/refit/internal/render"
)

// defaultPool is the planner's name of the pool of a cluster without UpdatePools.
const defaultPool = "default"

// outlineRollout predicts the rollout of a plan, from the current pools.
func outlineRollout(ctx context.Context, c client.Reader, u *v1alpha1.ClusterUpdate, p model.Plan, now time.Time) ([]string, error) {
	if len(p.Nodes) == 0 {
		return nil, nil
	}
	var nodes corev1.NodeList
	var pools v1alpha1.UpdatePoolList
	for _, l := range []client.ObjectList{&nodes, &pools} {
		if err := c.List(ctx, l); err != nil {
			return nil, fmt.Errorf("cannot list the inputs of the rollout: %w", err)
		}
	}
	var etcd corev1.PodList
	// A user who may not list pods in kube-system does not see the number of members.
	_ = c.List(ctx, &etcd, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "etcd", "tier": "control-plane"})
	return forecast.Outline(rolloutInput(p, u, nodes.Items, pools.Items, etcd.Items, now)), nil
}

// rolloutInput is the controller's input before the first node starts.
func rolloutInput(p model.Plan, u *v1alpha1.ClusterUpdate, nodes []corev1.Node, pools []v1alpha1.UpdatePool, etcd []corev1.Pod, now time.Time) rollout.Input {
	refs := make([]*corev1.Node, len(nodes))
	in := rollout.Input{Plan: p, Nodes: map[string]rollout.Node{}, Now: now, Retry: u.Spec.Retry}
	for i := range nodes {
		refs[i] = &nodes[i]
		n := rolloutfacts.Node(refs[i], u.RunUID())
		n.AtTarget = !n.FinishedAt.IsZero() && !n.Started // updated by this update already
		in.Nodes[n.Name] = n
	}
	in.Pools = rolloutfacts.Pools(pools, refs, func(n *corev1.Node) []string { return poolsOf(pools, n) }, defaultPool)
	in.Learned = rolloutfacts.Learned(refs)
	in.ControlPlane = rollout.ControlPlane{Unhealthy: rolloutfacts.Unhealthy(refs), Etcd: rolloutfacts.Etcd(etcd, refs)}
	return in
}

// poolsOf returns the names of the pools whose selector matches a node.
func poolsOf(pools []v1alpha1.UpdatePool, n *corev1.Node) []string {
	var out []string
	for i := range pools {
		if s, err := metav1.LabelSelectorAsSelector(&pools[i].Spec.NodeSelector); err == nil && s.Matches(labels.Set(n.Labels)) {
			out = append(out, pools[i].Name)
		}
	}
	return out
}

// lastAPIDowntime returns the measured unavailability of the API server in the last finished
// update that had one; nil if none had.
func lastAPIDowntime(ctx context.Context, c client.Reader, but *v1alpha1.ClusterUpdate) (*render.APIAway, error) {
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, inputs.ListError(err)
	}
	return newestAPIDowntime(list.Items, but), nil
}

func newestAPIDowntime(all []v1alpha1.ClusterUpdate, but *v1alpha1.ClusterUpdate) *render.APIAway {
	var last *v1alpha1.ClusterUpdate
	for i := range all {
		x := &all[i]
		if x.UID == but.UID || x.Status.FinishedAt == nil || x.Status.APIUnavailable == nil || x.Status.APIUnavailable.Seconds == 0 {
			continue
		}
		if last == nil || last.Status.FinishedAt.Before(x.Status.FinishedAt) {
			last = x
		}
	}
	if last == nil {
		return nil
	}
	return &render.APIAway{Update: last.Name, TotalSeconds: last.Status.APIUnavailable.Seconds, LongestSeconds: last.Status.APIUnavailable.LongestSeconds}
}
