package nodedrain

import (
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

const (
	maxDrains     = 10
	maxDrainPods  = 10
	maxPodMessage = 512
)

// Timeouts lets an update replace the pools' drain timeout.
func Timeouts(pools map[string]rollout.Pool, u *v1alpha1.ClusterUpdate) map[string]rollout.Pool {
	if u.Spec.Drain == nil || u.Spec.Drain.TimeoutSeconds == nil {
		return pools
	}
	for name, p := range pools {
		p.DrainTimeout = time.Duration(*u.Spec.Drain.TimeoutSeconds) * time.Second
		pools[name] = p
	}
	return pools
}

// DrainFacts is the state of the nodes that are draining, at one reconcile.
type DrainFacts struct {
	Now time.Time
	// Since when a node has been emptied, zero if that is not known.
	Since func(node string) time.Time
	// Decisions over the nodes' pods, and what the Eviction API refused.
	Decisions map[string]drain.Decision
	Verdicts  []model.Blocker
}

// Table says how far the emptying of each node is, and what holds it. Since
// when a pod has its fate is kept from the table before while it has it.
func Table(l DrainFacts, before []v1alpha1.NodeDrain) []v1alpha1.NodeDrain {
	was := map[string]v1alpha1.NodeDrain{}
	for _, d := range before {
		was[d.Node] = d
	}
	names := make([]string, 0, len(l.Decisions))
	for node, d := range l.Decisions {
		if !d.Empty() {
			names = append(names, node)
		}
	}
	sort.Strings(names)
	var out []v1alpha1.NodeDrain
	for _, node := range names[:min(len(names), maxDrains)] {
		d := l.Decisions[node]
		old, left := was[node], int32(d.Left())
		nd := v1alpha1.NodeDrain{Node: node, Left: left, Total: max(old.Total, left), Skipped: int32(len(d.Skipped))}
		if at := l.Since(node); !at.IsZero() {
			nd.Since = timeOf(at)
		}
		nd.Pods = podDrains(drain.Rows(node, d, blockersOf(node, l.Verdicts), l.Now), old.Pods, l.Now)
		out = append(out, nd)
	}
	return out
}

func timeOf(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// blockersOf are the verdicts about one node's pods; they say so first.
func blockersOf(node string, vs []model.Blocker) []model.Blocker {
	var out []model.Blocker
	for _, v := range vs {
		if strings.HasPrefix(v.Message, "node "+node+": ") {
			out = append(out, v)
		}
	}
	return out
}

func podDrains(rows []drain.Row, before []v1alpha1.PodDrain, now time.Time) []v1alpha1.PodDrain {
	since := map[string]*metav1.Time{}
	for _, p := range before {
		since[p.Pod+" "+p.Fate] = p.Since
	}
	var out []v1alpha1.PodDrain
	for _, r := range rows {
		if r.Fate == drain.Skipped || len(out) == maxDrainPods {
			continue
		}
		p := v1alpha1.PodDrain{Pod: r.Pod, Fate: r.Fate, Reason: r.Reason, Message: text.Truncate(r.Message, maxPodMessage), Since: since[r.Pod+" "+r.Fate]}
		switch {
		case !r.Since.IsZero():
			p.Since = timeOf(r.Since)
		case p.Since == nil:
			p.Since = timeOf(now)
		}
		out = append(out, p)
	}
	return out
}
