package updateplan

import (
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// notes says of each control-plane node that kubeadm moves what its move means
// for the cluster: who answers meanwhile, and with whom the addons move.
func (p *planner) notes() {
	cps, moving := 0, []*model.NodePlan{}
	for _, n := range p.in.Nodes {
		if n.ControlPlane {
			cps++
		}
	}
	nodes := p.out.Plan.Nodes
	for i := range nodes {
		if nodes[i].Role == model.RoleControlPlane && hasStep(nodes[i], "kubeadm") {
			moving = append(moving, &nodes[i])
		}
	}
	for i, np := range moving {
		np.Notes = append(np.Notes, p.away(cps, hasStep(*np, "control-plane")))
		if i == len(moving)-1 {
			np.Notes = append(np.Notes, p.addons(cps, moving))
		}
	}
}

// liveNotes says of the nodes that are given what a newer image has that it is not booted.
func (p *planner) liveNotes() {
	says := map[string]string{}
	for _, n := range p.in.Nodes {
		if n.Config != nil && n.Config.OS != nil && n.Config.OS.Note != "" {
			says[n.Name] = n.Config.OS.Note
		}
	}
	nodes := p.out.Plan.Nodes
	for i := range nodes {
		if np := &nodes[i]; says[np.Node] != "" && hasStep(*np, "files") {
			np.Notes = append(np.Notes, says[np.Node])
		}
	}
}

func hasStep(np model.NodePlan, updater string) bool {
	for _, s := range np.Steps {
		if s.Updater == updater {
			return true
		}
	}
	return false
}

// away: who answers while a control-plane node moves. The time it takes is not
// part of a plan.
func (p *planner) away(controlPlanes int, together bool) string {
	switch {
	case controlPlanes == 1 && together:
		return "the API server is unavailable for some seconds while the control plane and the kubelet are replaced in one step; workloads go on"
	case controlPlanes == 1 && p.in.ExternalEtcd:
		return "the API server is unavailable while kubeadm replaces it, and again for a moment when the kubelet was replaced; workloads go on"
	case controlPlanes == 1:
		return "the API server is unavailable while kubeadm replaces etcd and it, and again for a moment when the kubelet was replaced; workloads go on"
	case controlPlanes == 2 && !p.in.ExternalEtcd:
		return "while this node's etcd member restarts the other has no quorum alone: both API servers hang until it is back; workloads go on"
	}
	return "this node's API server is unavailable for a while; the others answer"
}

// addons: kubeadm moves kube-proxy and CoreDNS with the last control-plane node.
func (p *planner) addons(controlPlanes int, moving []*model.NodePlan) string {
	const addons = "kube-proxy and CoreDNS"
	if controlPlanes == 1 {
		return addons + " move with this node"
	}
	inPlan := map[string]bool{}
	for _, np := range moving {
		inPlan[np.Node] = true
	}
	var stay []string
	for _, n := range p.in.Nodes {
		if n.ControlPlane && !inPlan[n.Name] && !same(n.ControlPlaneVersion, p.in.Target.Kubernetes) {
			stay = append(stay, n.Name)
		}
	}
	if len(stay) > 0 {
		return fmt.Sprintf("%s do not move yet: they move with the last control-plane node, and %s is not in this plan", addons, strings.Join(stay, ", "))
	}
	return addons + " move with this node, the last of the control plane"
}
