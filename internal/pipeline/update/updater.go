package update

import "github.com/refit-dev/refit/internal/model"

// Parts of a node in which it can differ from the target.
const (
	// PartControlPlane is the static pods, the addons and etcd.
	PartControlPlane = "control-plane"
	// PartNodeConfig is the kubelet's configuration as kubeadm writes it.
	PartNodeConfig = "node-config"
	// PartKubelet is the kubelet's binary.
	PartKubelet = "kubelet"
)

// Difference is one part in which a node differs from the target.
type Difference struct {
	Part     string
	From, To string
}

// Claim is an updater's promise to bring one part to the target, or the reason
// why it cannot.
type Claim struct {
	Difference
	Verdict *model.Verdict
}

// question is what an updater is asked.
type question struct {
	in   *Input
	node Node
	// first is true for the node on which kubeadm moves the cluster's own
	// configuration.
	first bool
}

// updater covers some parts. Its steps run in the order of the list.
type updater struct {
	name string
	// payloads it needs from the bundle, for the node's platform.
	payloads []string
	// parts it covers.
	parts map[string]bool
	// able says whether the cluster is one it understands, nil for any.
	able func(question) bool
	// steps for the differences it was given; never empty.
	steps func(question, []Difference) []model.Step
}

// updaters in the order in which their steps run. Adding one is one file, one
// line here and a pass of the conformance test.
func updaters() []updater {
	return []updater{kubeadmUpdater(), kubeletUpdater()}
}

func kubeadmUpdater() updater {
	return updater{
		name:     "kubeadm",
		payloads: []string{"kubeadm"},
		parts:    map[string]bool{PartControlPlane: true, PartNodeConfig: true},
		able:     func(q question) bool { return q.in.KubeadmVersion != "" },
		steps: func(q question, ds []Difference) []model.Step {
			s := model.Step{ID: "kubeadm", Updater: "kubeadm", Verb: "node", By: model.ByAgent, From: ds[0].From, To: ds[0].To, Disruption: model.DisruptionRestart}
			if q.first {
				s.Verb, s.From = "apply", q.in.KubeadmVersion
			}
			if q.node.ControlPlane && minorsBetween(q.node.Kubelet, s.To) > 0 {
				s.NotReversible = "kubeadm does not take a control plane back to an earlier minor version, and what the new API server stored may be unreadable to the old one"
			}
			return []model.Step{s}
		},
	}
}

func kubeletUpdater() updater {
	return updater{
		name:     "kubelet",
		payloads: []string{"kubelet"},
		parts:    map[string]bool{PartKubelet: true},
		steps: func(_ question, ds []Difference) []model.Step {
			return []model.Step{{ID: "kubelet", Updater: "kubelet", Verb: "swap", By: model.ByAgent, From: ds[0].From, To: ds[0].To, Disruption: model.DisruptionRestart}}
		},
	}
}

// differences lists in what a node differs from the target, in a fixed order.
func differences(in *Input, n Node) []Difference {
	to := in.Target.Kubernetes
	if to == "" {
		return nil
	}
	var ds []Difference
	kubelet := Difference{PartKubelet, n.Kubelet, to}
	switch {
	case n.ControlPlane && (!same(n.ControlPlaneVersion, to) || !same(n.Kubelet, to)):
		from := n.ControlPlaneVersion
		if from == "" {
			from = n.Kubelet
		}
		ds = append(ds, Difference{PartControlPlane, from, to})
	case !n.ControlPlane && !same(n.Kubelet, to):
		ds = append(ds, Difference{PartNodeConfig, n.Kubelet, to})
	}
	if !same(n.Kubelet, to) {
		ds = append(ds, kubelet)
	}
	return ds
}

// claim gives every difference to the first updater that covers it.
func claim(q question, ds []Difference) (steps []model.Step, verdicts []model.Verdict) {
	left := ds
	for _, u := range updaters() {
		var mine, rest []Difference
		for _, d := range left {
			if u.parts[d.Part] && (u.able == nil || u.able(q)) {
				mine = append(mine, d)
			} else {
				rest = append(rest, d)
			}
		}
		left = rest
		if len(mine) == 0 {
			continue
		}
		verdicts = append(verdicts, missing(q, u)...)
		steps = append(steps, u.steps(q, mine)...)
	}
	for _, d := range left {
		verdicts = append(verdicts, unclaimed(q.node, d))
	}
	return steps, verdicts
}

func missing(q question, u updater) []model.Verdict {
	var out []model.Verdict
	for _, name := range u.payloads {
		if !q.in.has(name, q.node.Platform) {
			out = append(out, model.Verdict{
				Reason:  reasonPayloadMissing,
				Message: "the bundle brings no " + name + " for " + platformName(q.node.Platform) + ", which node " + q.node.Name + " needs to reach " + q.in.Target.Kubernetes,
				Fix:     "make a bundle with payload:" + name + "=FILE for that platform",
				Object:  "Node/" + q.node.Name,
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

func unclaimed(n Node, d Difference) model.Verdict {
	return model.Verdict{
		Reason:  reasonNoUpdater,
		Message: "no updater covers the " + d.Part + " of node " + n.Name + " (" + d.From + " -> " + d.To + "): the cluster was not made by kubeadm",
		Fix:     "refit moves Kubernetes versions on kubeadm clusters only; take a bundle without kubelet and kubeadm, or update this distribution with its own tool",
		Object:  "Node/" + n.Name,
	}
}
