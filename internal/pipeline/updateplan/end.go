package updateplan

import (
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// checkSkewAtEnd checks the cluster as the plan would leave it: no kubelet may be newer
// than the oldest API server, none more than three minors behind.
func (p *planner) checkSkewAtEnd() {
	planned := map[string]bool{}
	for _, np := range p.out.Plan.Nodes {
		planned[np.Node] = true
	}
	oldest := p.oldestAPIServer(planned)
	if oldest == "" || p.in.Target.Kubernetes == "" {
		return
	}
	for _, n := range p.in.Nodes {
		if v := p.skewAtEnd(n, planned[n.Name], oldest); v != nil {
			p.out.Blockers = append(p.out.Blockers, *v)
		}
	}
}

// skewAtEnd says why a node would not go with the oldest API server, nil if it
// would.
func (p *planner) skewAtEnd(n Node, planned bool, oldest string) *model.Blocker {
	v := model.Blocker{Reason: reasonVersionSkew, Object: "Node/" + n.Name}
	to := p.in.Target.Kubernetes
	limited := len(p.in.Only) > 0
	switch {
	case n.ControlPlane && limited:
		return nil // it moves with its own API server; the other members follow one by one
	case planned && less(oldest, to) && minorsBetween(oldest, to) > 0:
		v.Message = fmt.Sprintf("node %s would run kubelet %s under an API server that stays at %s", n.Name, to, oldest)
		v.Fix = "put the control-plane nodes into an UpdatePool, so that they move first"
		if limited {
			v.Fix, v.Waiting = "move the control plane first", true
		}
	case !planned && p.movesNodes() && tooFarBehind(n.Kubelet, oldest):
		v.Message = fmt.Sprintf("node %s would stay at kubelet %s under an API server at %s: more than three minor versions", n.Name, n.Kubelet, oldest)
		v.Fix = p.fixStaying(n)
	default:
		return nil
	}
	return &v
}

// fixStaying is what helps a node that would stay too far behind.
func (p *planner) fixStaying(n Node) string {
	if p.in.controlPlaneOnly && !n.ControlPlane {
		return "let the workers move in every hop (spec.workers: EveryHop)"
	}
	return "put the node into an UpdatePool or remove it from the cluster"
}

// tooFarBehind: Kubernetes supports a kubelet up to three minors older than
// the API server.
func tooFarBehind(kubelet, apiServer string) bool {
	return less(kubelet, apiServer) && minorsBetween(kubelet, apiServer) > maxKubeletSkew
}

func (p *planner) movesNodes() bool { return len(p.out.Plan.Nodes) > 0 }

// oldestAPIServer after the plan; empty if none is known.
func (p *planner) oldestAPIServer(planned map[string]bool) string {
	oldest := ""
	for _, n := range p.in.Nodes {
		if !n.ControlPlane {
			continue
		}
		v := n.ControlPlaneVersion
		if planned[n.Name] {
			v = p.in.Target.Kubernetes
		}
		if v != "" && (oldest == "" || less(v, oldest)) {
			oldest = v
		}
	}
	return oldest
}
