package fleet

import (
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/roster"
	"github.com/refit-dev/refit/internal/pipeline/distribute"
)

// controllerPeer is the name of the controller among the peers.
const controllerPeer = "refit-controller"

// agentAt is how an agent is reached.
type agentAt struct{ node, address, key string }

// peers remembers who is whose neighbour while no agent comes, goes or moves.
type peers struct {
	seen   roster.Row[agentAt]
	agents []agentAt
	// edition grows with every change.
	edition    int
	controller v1alpha1.Peer
	neighbours map[string][]string
	byNode     map[string]agentAt
}

// look takes in the agents as they are now.
func (p *peers) look(w *world, publicKey string) *peers {
	p.controller = v1alpha1.Peer{Node: controllerPeer, PublicKey: publicKey}
	if !p.moved(w) && p.byNode != nil {
		return p
	}
	now := make([]agentAt, 0, len(w.nodes))
	for i, n := range w.nodes {
		if a, _ := p.seen.At(i, n, w.reports[i]); a.node != "" {
			now = append(now, *a)
		}
	}
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

// moved takes in what changed, and reports whether that may be an agent's coming,
// going or moving.
func (p *peers) moved(w *world) bool {
	moved := p.seen.Under(nil, w.edition, w.nodes)
	for i, n := range w.nodes {
		nu := w.reports[i]
		a, same := p.seen.At(i, n, nu)
		if same {
			continue
		}
		now := agentAt{}
		if nu != nil && nu.Status.Agent != nil && nu.Status.Agent.PublicKey != "" {
			now = agentAt{n.Name, nu.Status.Agent.Address, nu.Status.Agent.PublicKey}
		}
		moved, *a = moved || *a != now, now
	}
	return moved
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
