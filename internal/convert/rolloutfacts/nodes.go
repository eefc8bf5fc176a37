package rolloutfacts

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

const labelControlPlane = "node-role.kubernetes.io/control-plane"

// ControlPlane reports whether a node is a control-plane node.
func ControlPlane(n *corev1.Node) bool {
	_, ok := n.Labels[labelControlPlane]
	return ok
}

// RunsControlPlane reports whether a node runs a control plane: its label says so, or its
// agent observed an API server's static pod, also on a node without the label. nu may be nil.
func RunsControlPlane(n *corev1.Node, nu *v1alpha1.NodeUpdate) bool {
	return ControlPlane(n) || nu != nil && nu.Status.Observed != nil && nu.Status.Observed.ControlPlane != ""
}

// Kubelet returns the version that a node runs: what its kubelet reports, or the release that
// its agent observed where the kubelet does not report the build. nu may be nil.
func Kubelet(n *corev1.Node, nu *v1alpha1.NodeUpdate) string {
	reported := n.Status.NodeInfo.KubeletVersion
	if nu == nil || nu.Status.Observed == nil {
		return reported
	}
	return distribution.Release(reported, nu.Status.Observed.KubeletVersion)
}

// FitNode converts what decides whether a bundle fits a node. nu may be nil.
func FitNode(n *corev1.Node, nu *v1alpha1.NodeUpdate) updateplan.FitNode {
	info := &n.Status.NodeInfo
	f := updateplan.FitNode{Name: n.Name, Kubelet: Kubelet(n, nu)}
	if info.OperatingSystem != "" {
		f.Platform = info.OperatingSystem + "/" + info.Architecture
	}
	f.Runtime, f.RuntimeVersion, _ = strings.Cut(info.ContainerRuntimeVersion, "://")
	if nu != nil && nu.Status.Observed != nil {
		f.ControlPlaneVersion = nu.Status.Observed.ControlPlane
	}
	return f
}

// Ready reports whether a node is Ready, and since when.
func Ready(n *corev1.Node) (ready bool, since time.Time) {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// Node converts a Node object for one update.
func Node(n *corev1.Node, uid string) rollout.Node {
	out := rollout.Node{Name: n.Name, Unschedulable: n.Spec.Unschedulable, Zone: n.Labels[corev1.LabelTopologyZone]}
	out.Ready, out.ReadySince = Ready(n)
	if _, out.Excluded = n.Labels[corev1.LabelNodeExcludeBalancers]; out.Excluded {
		out.ExcludedAt, _ = time.Parse(time.RFC3339, n.Annotations[v1alpha1.AnnotationExcluded])
	}
	out.HoldReason, out.OnHold = n.Annotations[v1alpha1.AnnotationHold]
	if m := MarkOf(n); m != nil && m.UID == uid {
		out.Started, out.StartedAt, out.Attempt = true, m.At, m.Attempt
	}
	if r := RecordOf(n); r != nil && r.UID == uid {
		out.FinishedAt = r.End
	}
	return out
}

// Run returns a node's run in an update with a plan and its result, nil if it has none.
func Run(nu *v1alpha1.NodeUpdate, uid, planDigest string) *rollout.Run {
	p := nu.Spec.Run
	if p == nil || p.UID != uid || p.PlanDigest != planDigest {
		return nil
	}
	out := &rollout.Run{Attempt: attemptOf(p.Attempt, p.Retry, p.Try), Undo: p.Undo, UndoReason: p.Cause}
	if s := nu.Status.Run; s != nil && s.UID == p.UID && s.PlanDigest == p.PlanDigest && s.Attempt >= p.Attempt {
		out.State, out.Step, out.Reason, out.Message = string(s.State), s.Step, s.Reason, s.Message
		out.EndedAgo = timeSinceEnd(nu)
		if s.Attempt > p.Attempt {
			useLaterAttempt(out, s)
		}
	}
	return out
}

// useLaterAttempt uses an attempt of the node that the API objects do not know. Its Node object
// was deleted during the update, with mark and spec.run, and created again, or the undo of a
// server restored the database from before its attempt. The node's journal survived. A node
// never starts an attempt twice, so the latest one counts.
func useLaterAttempt(out *rollout.Run, s *v1alpha1.NodeRunStatus) {
	out.Attempt.Number = s.Attempt
	if out.Undo = s.State == v1alpha1.RunUndone; out.Undo {
		out.UndoReason = "an attempt failed before the Node object was made again, or before an undo restored the database"
	}
}

// timeSinceEnd returns how long ago a node's run ended. The node's clock may be wrong, so it is
// compared with the last heartbeat of the same clock. It is at least a second, or 0 if the run
// has not ended.
func timeSinceEnd(nu *v1alpha1.NodeUpdate) time.Duration {
	end := nu.Status.Run.FinishedAt
	if end == nil {
		return 0
	}
	if a := nu.Status.Agent; a != nil && a.Heartbeat != nil {
		return max(time.Second, a.Heartbeat.Sub(end.Time))
	}
	return time.Second
}

// Unhealthy returns why control-plane nodes are unhealthy, by node.
func Unhealthy(nodes []*corev1.Node) map[string]string {
	out := map[string]string{}
	for _, n := range nodes {
		if !ControlPlane(n) {
			continue
		}
		if ok, _ := Ready(n); !ok {
			out[n.Name] = "is not Ready"
		}
	}
	return out
}

// Health returns the state of the control plane from Nodes and static pods.
func Health(pods []corev1.Pod, nodes []*corev1.Node) rollout.ControlPlane {
	out := rollout.ControlPlane{Unhealthy: Unhealthy(nodes), Etcd: Etcd(pods, nodes)}
	for i := range pods {
		p := &pods[i]
		// etcd members are counted separately.
		if p.Labels["component"] == "etcd" || p.Spec.NodeName == "" || p.DeletionTimestamp != nil || PodReady(p) || out.Unhealthy[p.Spec.NodeName] != "" {
			continue
		}
		out.Unhealthy[p.Spec.NodeName] = "has " + p.Name + " not Ready"
	}
	return out
}

// Etcd returns the control-plane nodes with an etcd static pod, true if it is Ready. Once one
// of them has a member, a node without the pod has a missing member. It is empty if etcd is
// external.
func Etcd(pods []corev1.Pod, nodes []*corev1.Node) map[string]bool {
	out := map[string]bool{}
	for i := range pods {
		p := &pods[i]
		if p.Labels["component"] != "etcd" || p.Spec.NodeName == "" {
			continue
		}
		out[p.Spec.NodeName] = PodReady(p)
	}
	if len(out) == 0 {
		return out
	}
	for _, n := range nodes {
		if _, has := out[n.Name]; ControlPlane(n) && !has {
			out[n.Name] = false
		}
	}
	return out
}

// PodReady reports whether a pod is Ready.
func PodReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
