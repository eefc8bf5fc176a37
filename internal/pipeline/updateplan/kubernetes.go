package updateplan

import (
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// Deadlines of the agent's steps in seconds, where the pool names none. They end
// what hangs, not what is slow.
const (
	deadlineKubeadm = 3600
	deadlineKubelet = 900
	deadlineSettle  = 1800
)

// The first and the last minor version of Kubernetes whose kubeadm refit knows: which
// phases `kubeadm upgrade` has, and which files its dry run writes. Other versions are
// left to `kubeadm upgrade` alone.
const (
	firstKnownMinor = "v1.35.0"
	lastKnownMinor  = "v1.36.0"
)

// controlPlaneUpdater replaces the static pods of a control-plane node and the kubelet
// together. kubeadm does the rest. A kubelet of another minor version starts all static pods
// anew: replaced later, it would interrupt the node's API server once more.
func controlPlaneUpdater() Updater {
	return Updater{Name: "control-plane", Claim: func(q Question) Claim {
		mine := q.ChangesBelow(PathControlPlane)
		if len(mine) == 0 || isSupervised(q) || !replacedTogether(q, mine[0].To) || ofAnother(q, mine) != nil {
			return Claim{} // the updater kubeadm says why
		}
		s := model.Step{ID: "control-plane", Verb: "replace-pods", From: currentVersion(q.Node), To: mine[0].To, Disruption: model.DisruptionRestart,
			NotReversible: notReversible(q.Node, mine[0].To), Params: controlPlaneParams(q), DeadlineSeconds: deadlineKubeadm}
		payloads := []string{"kubeadm"}
		if kubelet := q.ChangesBelow(PathKubelet); len(kubelet) > 0 {
			s.Verb, mine, payloads = "replace-together", append(mine, kubelet...), append(payloads, "kubelet")
			if minorsBetween(q.Node.Kubelet, s.To) > 0 {
				s.Disruption = model.DisruptionDrain // the new kubelet may start containers anew
			}
		}
		s.Changes = mine
		return Claim{Steps: []model.Step{s}, Blockers: missingPayloads(q, payloads...)}
	}}
}

// replacedTogether reports whether refit replaces the manifests itself.
func replacedTogether(q Question, to string) bool {
	if q.Input == nil || q.Input.KubeadmVersion == "" || minorsBetween(firstKnownMinor, to) > minorsBetween(firstKnownMinor, lastKnownMinor) || less(to, firstKnownMinor) {
		return false
	}
	return !poolOf(q).Kubeadm && !q.Input.Rootless && q.Current[model.FieldManifestProblem] == ""
}

// poolOf is the only pool of a node, empty if there is none.
func poolOf(q Question) Pool {
	for _, p := range q.Input.Pools {
		if len(q.Node.Pools) == 1 && p.Name == q.Node.Pools[0] {
			return p
		}
	}
	return Pool{}
}

// kubeadmParams are the settings of a step that runs kubeadm.
func kubeadmParams(q Question) map[string]string {
	if dir := poolOf(q).KubeadmPatches; dir != "" {
		return map[string]string{model.ParamPatches: dir}
	}
	return nil
}

// controlPlaneParams are those of the step that replaces a control plane.
func controlPlaneParams(q Question) map[string]string {
	params := kubeadmParams(q)
	if controlPlanes(q.Input) > 1 {
		if params == nil {
			params = map[string]string{}
		}
		params[model.ParamOthersServe] = model.ParamYes
	}
	return params
}

func controlPlanes(in *Input) int {
	n := 0
	for i := range in.Nodes {
		if in.Nodes[i].ControlPlane {
			n++
		}
	}
	return n
}

// notReversible is why a control plane that moved to a version stays there.
func notReversible(n Node, to string) string {
	switch {
	case !n.ControlPlane:
		return ""
	case minorsBetween(n.Kubelet, to) > 0:
		return "kubeadm cannot downgrade a control plane to an earlier minor version, and the old API server may not be able to read objects that the new one stored"
	}
	return "kubeadm cannot undo an upgrade of a control plane; apply a bundle with the older patch release as a new update"
}

// kubeadmUpdater moves the static pods, the addons and etcd of a control-plane
// node, and the kubelet's configuration of any node, in one step.
func kubeadmUpdater() Updater {
	return Updater{Name: "kubeadm", Claim: func(q Question) Claim {
		mine := append(q.ChangesBelow(PathControlPlane), q.ChangesBelow(PathNodeConfig)...)
		if len(mine) == 0 || isSupervised(q) {
			return Claim{}
		}
		if c := ofAnother(q, mine); c != nil {
			return *c
		}
		if q.Input == nil || q.Input.KubeadmVersion == "" {
			return refuseChanges(mine, "the cluster was not made by kubeadm",
				"refit moves Kubernetes versions on kubeadm clusters only; take a bundle without kubelet and kubeadm, or update this distribution with its own tool")
		}
		s := model.Step{ID: "kubeadm", Verb: "node", From: currentVersion(q.Node), To: mine[0].To, Disruption: model.DisruptionRestart, Changes: mine, DeadlineSeconds: deadlineKubeadm}
		if q.First {
			s.Verb, s.From = "apply", q.Input.KubeadmVersion
		}
		s.NotReversible, s.Params = notReversible(q.Node, s.To), kubeadmParams(q)
		return Claim{Steps: []model.Step{s}, Blockers: missingPayloads(q, "kubeadm")}
	}}
}

// currentVersion is the version that a node's step comes from.
func currentVersion(n Node) string {
	if n.ControlPlaneVersion != "" {
		return n.ControlPlaneVersion
	}
	return n.Kubelet
}

// kubeletUpdater replaces the kubelet's binary. A kubelet of another minor
// version may start its pods' containers anew, so their node is drained.
func kubeletUpdater() Updater {
	return Updater{Name: "kubelet", Claim: func(q Question) Claim {
		mine := q.ChangesBelow(PathKubelet)
		if len(mine) == 0 || isSupervised(q) {
			return Claim{}
		}
		if c := ofAnother(q, mine); c != nil {
			return *c
		}
		s := model.Step{ID: "kubelet", Verb: "swap", From: mine[0].From, To: mine[0].To, Disruption: model.DisruptionRestart, Changes: mine, DeadlineSeconds: deadlineKubelet}
		if minorsBetween(s.From, s.To) > 0 {
			s.Disruption = model.DisruptionDrain
		}
		return Claim{Steps: []model.Step{s}, Blockers: missingPayloads(q, "kubelet")}
	}}
}

// ofAnother refuses changes of a node that another distribution than kubeadm made, and those
// to a version of another distribution; nil if neither is so. The kubelet's version says it.
func ofAnother(q Question, mine []model.Change) *Claim {
	why, fix := distribution.MoveProblem(q.Node.Kubelet, mine[0].To)
	if why == "" {
		return nil
	}
	c := refuseChanges(mine, why, fix)
	return &c
}

func refuseChanges(cs []model.Change, why, fix string) Claim {
	var c Claim
	for _, d := range cs {
		c.Refusals = append(c.Refusals, Refusal{Path: d.Path, Why: why, Fix: fix})
	}
	return c
}

// missingPayloads names the payloads that the bundle does not bring for the node.
func missingPayloads(q Question, payloads ...string) []model.Blocker {
	var out []model.Blocker
	for _, name := range payloads {
		if q.Input == nil || !q.Input.hasPayload(name, q.Node.Platform) {
			out = append(out, model.Blocker{
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

func (in *Input) hasPayload(payload, platform string) bool {
	for _, p := range in.Payloads {
		if p.Name == payload && (p.Platform == "" || p.Platform == platform) {
			return true
		}
	}
	return false
}
