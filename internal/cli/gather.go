package cli

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// gather reads the four lists of a view.
func gather(ctx context.Context, c client.Client) (explain.Facts, error) {
	f := explain.Facts{Now: time.Now()}
	var nodes corev1.NodeList
	var nus v1alpha1.NodeUpdateList
	var bundles v1alpha1.BundleList
	var updates v1alpha1.ClusterUpdateList
	for _, l := range []client.ObjectList{&nodes, &nus, &bundles, &updates} {
		if err := c.List(ctx, l); err != nil {
			return f, inputs.ListError(err)
		}
	}
	byName := map[string]*v1alpha1.NodeUpdate{}
	for i := range nus.Items {
		byName[nus.Items[i].Name] = &nus.Items[i]
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		f.Nodes = append(f.Nodes, nodeFacts(n, byName[n.Name]))
	}
	for i := range bundles.Items {
		f.Bundles = append(f.Bundles, bundleFacts(&bundles.Items[i]))
	}
	if u := inputs.ChooseUpdate(updates.Items); u != nil {
		f.Update = updateFacts(u)
	}
	return f, nil
}

func nodeFacts(n *corev1.Node, nu *v1alpha1.NodeUpdate) explain.Node {
	out := explain.Node{Name: n.Name, Role: model.RoleWorker, Kubelet: n.Status.NodeInfo.KubeletVersion, Unschedulable: n.Spec.Unschedulable, Phase: "NoAgent"}
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
	if h := nu.Status.Pins; h != nil {
		out.ImagesTotal, out.ImagesReady, out.ImagesPinned = int(h.ImagesTotal), int(h.ImagesReady), int(h.ImagesPinned)
		out.BytesTotal, out.BytesDone, out.FromMedia, out.FromPeers = h.BytesTotal, h.BytesDone, h.BytesFromMedia, h.BytesFromPeers
	}
	return out
}

func bundleFacts(b *v1alpha1.Bundle) explain.Bundle {
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

func updateFacts(u *v1alpha1.ClusterUpdate) *explain.Update {
	s := u.Status
	out := &explain.Update{
		Name: u.Name, Version: s.Version, Phase: s.Phase, Paused: u.Spec.Paused, Starting: u.Spec.Start == v1alpha1.StartImmediate, PlanDigest: s.PlanDigest,
		Done: int(s.NodesDone), Total: int(s.NodesTotal), Failed: int(s.NodesFailed), Current: s.Current,
		BlockerCount: int(s.BlockerCount), Blockers: updatecmd.ListBlockers(s.Blockers), Warnings: updatecmd.ListBlockers(s.Warnings),
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
