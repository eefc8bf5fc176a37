package rolloutfacts

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

const labelControlPlane = "node-role.kubernetes.io/control-plane"

// ControlPlane reports whether a node is one of the control plane.
func ControlPlane(n *corev1.Node) bool {
	_, ok := n.Labels[labelControlPlane]
	return ok
}

// Ready reports whether the kubelet says so, and since when.
func Ready(n *corev1.Node) (ready bool, since time.Time) {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// Node is what a Node object shows of a node in an update.
func Node(n *corev1.Node, uid string) rollout.Node {
	out := rollout.Node{Name: n.Name, Unschedulable: n.Spec.Unschedulable, Zone: n.Labels[corev1.LabelTopologyZone]}
	out.Ready, out.ReadySince = Ready(n)
	out.HeldBecause, out.Held = n.Annotations[v1alpha1.AnnotationHold]
	if m := MarkOf(n); m != nil && m.UID == uid {
		out.Started, out.StartedAt, out.Attempt = true, m.At, m.Attempt
	}
	if r := RecordOf(n); r != nil && r.UID == uid {
		out.FinishedAt = r.End
	}
	return out
}

// Run is what was permitted to a node in an update with a plan, and what came of
// it; nil if nothing was.
func Run(nu *v1alpha1.NodeUpdate, uid, planDigest string) *rollout.Run {
	p := nu.Spec.Run
	if p == nil || p.UID != uid || p.PlanDigest != planDigest {
		return nil
	}
	out := &rollout.Run{Attempt: counted(p.Attempt, p.Retry, p.Try), Undo: p.Undo, Because: p.Cause}
	if s := nu.Status.Run; s != nil && s.UID == p.UID && s.PlanDigest == p.PlanDigest && s.Attempt >= p.Attempt {
		out.State, out.Step, out.Reason, out.Message = string(s.State), s.Step, s.Reason, s.Message
		out.Ended = ended(nu)
		if s.Attempt > p.Attempt {
			later(out, s)
		}
	}
	return out
}

// later: the node has made more attempts than anybody here remembers. Its Node object
// was deleted in the middle, with mark and permission, and made again; the node's own
// journal was not. It begins no attempt anew, so the latest is what counts.
func later(out *rollout.Run, s *v1alpha1.NodeRunStatus) {
	out.Attempt.Number = s.Attempt
	if out.Undo = s.State == v1alpha1.RunUndone; out.Undo {
		out.Because = "an attempt failed before the Node object was made again"
	}
}

// ended is how long ago a node's run ended by the node's own clock, which may be
// wrong: the last heartbeat is by the same clock. At least a second, 0 if it did
// not end.
func ended(nu *v1alpha1.NodeUpdate) time.Duration {
	end := nu.Status.Run.FinishedAt
	if end == nil {
		return 0
	}
	if a := nu.Status.Agent; a != nil && a.Heartbeat != nil {
		return max(time.Second, a.Heartbeat.Sub(end.Time))
	}
	return time.Second
}

// Unhealthy says of control-plane nodes that are not well why not.
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

// Health is what the Nodes and the static pods of the control plane say.
func Health(pods []corev1.Pod, nodes []*corev1.Node) rollout.ControlPlane {
	out := rollout.ControlPlane{Unhealthy: Unhealthy(nodes), Etcd: Etcd(pods, nodes)}
	for i := range pods {
		p := &pods[i]
		// etcd has its own count, and its own sentence.
		if p.Labels["component"] == "etcd" || p.Spec.NodeName == "" || p.DeletionTimestamp != nil || PodReady(p) || out.Unhealthy[p.Spec.NodeName] != "" {
			continue
		}
		out.Unhealthy[p.Spec.NodeName] = "has " + p.Name + " not Ready"
	}
	return out
}

// Etcd tells which control-plane nodes run an etcd member in a static pod, true
// if it is Ready. Once one of them has a member, a node whose pod is not there
// has one that is away. Empty if etcd runs elsewhere.
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
