package fleet

import (
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/distribute"
)

// controllerPeer is the name of the controller among the peers.
const controllerPeer = "refit-controller"

// agentAt is how an agent is reached.
type agentAt struct{ node, address, key string }

// peers remembers who is whose neighbour while no agent comes, goes or moves.
type peers struct {
	agents []agentAt
	// edition grows with every change.
	edition    int
	controller v1alpha1.Peer
	neighbours map[string][]string
	byNode     map[string]agentAt
}

// look takes in the agents as they are now.
func (p *peers) look(w *world, publicKey string) *peers {
	now := make([]agentAt, 0, len(w.nodes))
	for _, n := range w.nodes {
		if nu := w.updates[n.Name]; nu != nil && nu.Status.Agent != nil && nu.Status.Agent.PublicKey != "" {
			now = append(now, agentAt{n.Name, nu.Status.Agent.Address, nu.Status.Agent.PublicKey})
		}
	}
	p.controller = v1alpha1.Peer{Node: controllerPeer, PublicKey: publicKey}
	if p.byNode != nil && slices.Equal(p.agents, now) {
		return p
	}
	if p.byNode == nil || !slices.EqualFunc(p.agents, now, func(a, b agentAt) bool { return a.node == b.node }) {
		names := make([]string, 0, len(now))
		for _, a := range now {
			names = append(names, a.node)
		}
		p.neighbours = distribute.Neighbours(names)
	}
	p.agents, p.byNode = now, make(map[string]agentAt, len(now))
	for _, a := range now {
		p.byNode[a.node] = a
	}
	p.edition++
	return p
}

// of gives a node its neighbours and the controller.
func (p *peers) of(node string) []v1alpha1.Peer {
	out := []v1alpha1.Peer{p.controller}
	for _, name := range p.neighbours[node] {
		a := p.byNode[name]
		out = append(out, v1alpha1.Peer{Node: name, Address: a.address, PublicKey: a.key})
	}
	return out
}
