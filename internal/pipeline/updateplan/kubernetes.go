package updateplan

import (
	"github.com/refit-dev/refit/internal/model"
)

// Deadlines of the agent's steps in seconds, where the pool names none. They end
// what hangs, not what is slow.
const (
	deadlineKubeadm = 3600
	deadlineKubelet = 900
	deadlineSettle  = 1800
)

// kubeadmUpdater moves the static pods, the addons and etcd of a control-plane
// node, and the kubelet's configuration of any node, in one step.
func kubeadmUpdater() Updater {
	return Updater{Name: "kubeadm", Claim: func(q Question) Claim {
		mine := append(q.Of(PathControlPlane), q.Of(PathNodeConfig)...)
		if len(mine) == 0 {
			return Claim{}
		}
		if q.Input == nil || q.Input.KubeadmVersion == "" {
			return refuse(mine, "the cluster was not made by kubeadm",
				"refit moves Kubernetes versions on kubeadm clusters only; take a bundle without kubelet and kubeadm, or update this distribution with its own tool")
		}
		s := model.Step{ID: "kubeadm", Verb: "node", From: runs(q.Node), To: mine[0].To, Disruption: model.DisruptionRestart, Changes: mine, DeadlineSeconds: deadlineKubeadm}
		if q.First {
			s.Verb, s.From = "apply", q.Input.KubeadmVersion
		}
		switch {
		case !q.Node.ControlPlane:
		case minorsBetween(q.Node.Kubelet, s.To) > 0:
			s.NotReversible = "kubeadm does not take a control plane back to an earlier minor version, and what the new API server stored may be unreadable to the old one"
		default:
			s.NotReversible = "kubeadm does not take a control plane back by itself; an older patch release is an update of its own"
		}
		return Claim{Steps: []model.Step{s}, Verdicts: missing(q, "kubeadm")}
	}}
}

// runs is the version that a node is said to come from.
func runs(n Node) string {
	if n.ControlPlaneVersion != "" {
		return n.ControlPlaneVersion
	}
	return n.Kubelet
}

// kubeletUpdater replaces the kubelet's binary. A kubelet of another minor
// version may start its pods' containers anew, so their node is drained.
func kubeletUpdater() Updater {
	return Updater{Name: "kubelet", Claim: func(q Question) Claim {
		mine := q.Of(PathKubelet)
		if len(mine) == 0 {
			return Claim{}
		}
		s := model.Step{ID: "kubelet", Verb: "swap", From: mine[0].From, To: mine[0].To, Disruption: model.DisruptionRestart, Changes: mine, DeadlineSeconds: deadlineKubelet}
		if minorsBetween(s.From, s.To) > 0 {
			s.Disruption = model.DisruptionDrain
		}
		return Claim{Steps: []model.Step{s}, Verdicts: missing(q, "kubelet")}
	}}
}

func refuse(cs []model.Change, why, fix string) Claim {
	var c Claim
	for _, d := range cs {
		c.Refusals = append(c.Refusals, Refusal{Path: d.Path, Why: why, Fix: fix})
	}
	return c
}

// missing names the payloads that the bundle does not bring for the node.
func missing(q Question, payloads ...string) []model.Verdict {
	var out []model.Verdict
	for _, name := range payloads {
		if q.Input == nil || !q.Input.has(name, q.Node.Platform) {
			out = append(out, model.Verdict{
				Reason:  reasonPayloadMissing,
				Message: "the bundle brings no " + name + " for " + platformName(q.Node.Platform) + ", which node " + q.Node.Name + " needs to reach " + q.Desired[PathKubelet],
				Fix:     "make a bundle with payload:" + name + "=FILE for that platform",
				Object:  "Node/" + q.Node.Name,
			})
		}
	}
	return out
}

func platformName(p string) string {
	if p == "" {
		return "an unknown platform"
	}
	return p
}

func (in *Input) has(payload, platform string) bool {
	for _, p := range in.Payloads {
		if p.Name == payload && (p.Platform == "" || p.Platform == platform) {
			return true
		}
	}
	return false
}
