package rolloutfacts

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// ViewFacts converts the four lists of a view of the cluster's state.
func ViewFacts(now time.Time, nodes []corev1.Node, nus []v1alpha1.NodeUpdate, bundles []v1alpha1.Bundle, updates []v1alpha1.ClusterUpdate) explain.Facts {
	f := explain.Facts{Now: now}
	byName := map[string]*v1alpha1.NodeUpdate{}
	for i := range nus {
		byName[nus[i].Name] = &nus[i]
	}
	for i := range nodes {
		n := &nodes[i]
		f.Nodes = append(f.Nodes, statusNode(n, byName[n.Name]))
	}
	for i := range bundles {
		f.Bundles = append(f.Bundles, statusBundle(&bundles[i]))
	}
	if u := ChooseUpdate(updates); u != nil {
		f.Update = statusUpdate(u)
	}
	return f
}

// ChooseUpdate returns the current update: one that is not done, else the newest.
func ChooseUpdate(us []v1alpha1.ClusterUpdate) *v1alpha1.ClusterUpdate {
	var best *v1alpha1.ClusterUpdate
	rank := func(u *v1alpha1.ClusterUpdate) int {
		switch u.Status.Phase {
		case v1alpha1.PhaseUpdating, v1alpha1.PhaseHalted:
			return 2
		case v1alpha1.PhaseDone:
			return 0
		}
		return 1
	}
	for i := range us {
		u := &us[i]
		if best == nil || rank(u) > rank(best) || (rank(u) == rank(best) && best.CreationTimestamp.Before(&u.CreationTimestamp)) {
			best = u
		}
	}
	return best
}

// Blockers converts the reasons of an update for a view.
func Blockers(bs []v1alpha1.Blocker) []explain.Blocker {
	var out []explain.Blocker
	for _, b := range bs {
		e := explain.Blocker{Reason: b.Reason, Message: b.Message, Fix: b.Fix, Object: b.Object}
		if b.Since != nil {
			e.Since = b.Since.Time
		}
		out = append(out, e)
	}
	return out
}

func statusNode(n *corev1.Node, nu *v1alpha1.NodeUpdate) explain.Node {
	out := explain.Node{Name: n.Name, Role: model.RoleWorker, Kubelet: Kubelet(n, nu), Unschedulable: n.Spec.Unschedulable, Phase: "NoAgent"}
	if _, ok := n.Labels["node-role.kubernetes.io/control-plane"]; ok {
		out.Role = model.RoleControlPlane
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	out.OnHoldReason, out.OnHold = n.Annotations[v1alpha1.AnnotationHold]
	if nu == nil || nu.Status.Agent == nil {
		return out
	}
	out.Phase, out.Message, out.Agent = nu.Status.Phase, nu.Status.Message, nu.Status.Agent.Version
	if r := nu.Status.Run; r != nil {
		out.Step = r.Step
	}
	out.StepsDone, out.StepsTotal = steps(nu)
	if h := nu.Status.Pins; h != nil {
		out.ImagesTotal, out.ImagesReady, out.ImagesPinned = int(h.ImagesTotal), int(h.ImagesReady), int(h.ImagesPinned)
		out.BytesTotal, out.BytesDone, out.FromMedia, out.FromPeers = h.BytesTotal, h.BytesDone, h.BytesFromMedia, h.BytesFromPeers
		out.FromRegistry = h.BytesFromRegistry
	}
	return out
}

// steps counts those of the run that a node may do. An undo has steps of its own: they would
// look like progress.
func steps(nu *v1alpha1.NodeUpdate) (done, total int) {
	permitted, run := nu.Spec.Run, nu.Status.Run
	if permitted == nil || permitted.Undo {
		return 0, 0
	}
	total = len(permitted.Steps)
	if run != nil && run.UID == permitted.UID && run.PlanDigest == permitted.PlanDigest {
		done = min(int(run.StepsDone), total)
	}
	return done, total
}

func statusBundle(b *v1alpha1.Bundle) explain.Bundle {
	out := explain.Bundle{Name: b.Name, Version: b.Status.Version, Digest: b.Status.Digest, Loaded: b.Status.Loaded}
	if out.Digest == "" {
		out.Digest = b.Spec.Digest
	}
	out.Approved = meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved)
	if r := b.Status.Retention; r != nil {
		out.Use, out.FreesBytes = string(r.Use), r.FreesBytes
	}
	for _, l := range b.Status.Locations {
		out.Locations = append(out.Locations, l.Node+":"+l.Device)
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		out.Reason, out.Message = c.Reason, c.Message
	}
	return out
}

func statusUpdate(u *v1alpha1.ClusterUpdate) *explain.Update {
	s := u.Status
	out := &explain.Update{
		Name: u.Name, Version: s.Version, Phase: s.Phase, Paused: u.Spec.Paused, Starting: u.Spec.Start == v1alpha1.StartImmediate, PlanDigest: s.PlanDigest,
		Done: int(s.NodesDone), Total: int(s.NodesTotal), Failed: int(s.NodesFailed), Current: s.Current,
		BlockerCount: int(s.BlockerCount), Blockers: Blockers(s.Blockers), Warnings: Blockers(s.Warnings),
	}
	if at := u.Hop(); len(u.Spec.Hops) > 0 {
		out.Hop, out.Hops, out.BetweenHops = at+1, len(u.Bundles()), u.BetweenHops()
		if at < len(s.Hops) {
			out.HopVersion = s.Hops[at].Version
		}
	}
	if s.StartedAt != nil {
		out.StartedAt = s.StartedAt.Time
	}
	if s.FinishedAt != nil {
		out.FinishedAt = s.FinishedAt.Time
	}
	if e := s.Estimate; e != nil {
		out.Earliest, out.Latest, out.FromLab = e.Earliest.Time, e.Latest.Time, e.Samples == 0
	}
	if a := s.APIUnavailable; a != nil {
		out.Away, out.Longest = a.Seconds, a.LongestSeconds
	}
	return out
}
