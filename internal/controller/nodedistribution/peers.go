package nodedistribution

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// controllerPeer is the name of the controller among the peers.
const controllerPeer = "refit-controller"

// peerIndex caches the peers of every node until an agent joins, leaves or moves.
type peerIndex struct {
	row nodeindex.Row[agentAt]
	// edition grows with every change of an agent.
	edition    int
	controller v1alpha1.Peer
}

// agentAt is how a node's agent is reached, and by whom.
type agentAt struct {
	// self has no name while there is no agent.
	self   v1alpha1.Peer
	zone   string
	places transfer.Places
	// peers are those in its desired state, since that edition.
	peers   []v1alpha1.Peer
	edition int
}

// refresh takes in the agents as they are now.
func (p *peerIndex) refresh(w *fleetSnapshot, publicKey string) *peerIndex {
	p.controller = v1alpha1.Peer{Node: controllerPeer, PublicKey: publicKey}
	if !p.moved(w) && p.edition > 0 {
		return p
	}
	p.edition++
	var agents []*agentAt
	var places []transfer.Places
	for i, n := range w.nodes {
		a, _ := p.row.At(i, n, w.reports[i])
		if a.self.Node == "" {
			p.setPeers(a, nil)
			continue
		}
		agents, places = append(agents, a), append(places, a.places)
	}
	now := make([]v1alpha1.Peer, 0, transfer.MaxPeers)
	for i, links := range transfer.Links(places) {
		now = now[:0]
		for _, j := range links {
			now = append(now, agents[j].self)
		}
		p.setPeers(agents[i], now)
	}
	return p
}

// setPeers stores the peers of a node, and the edition if they changed.
func (p *peerIndex) setPeers(a *agentAt, now []v1alpha1.Peer) {
	if !slices.Equal(a.peers, now) {
		a.peers, a.edition = slices.Clone(now), p.edition
	}
}

// moved takes in what changed, and reports whether that may be an agent's coming,
// going or moving.
func (p *peerIndex) moved(w *fleetSnapshot) bool {
	moved := p.row.Under(nil, w.edition, w.nodes)
	for i, n := range w.nodes {
		nu := w.reports[i]
		a, same := p.row.At(i, n, nu)
		if same {
			continue
		}
		now, zone := reachedAt(n, nu)
		if a.self == now && a.zone == zone {
			continue
		}
		if moved = true; now.Node != "" && (a.self.Node != now.Node || a.zone != zone) {
			a.places = transfer.PlacesIn(zone, now.Node)
		}
		a.self, a.zone = now, zone
	}
	return moved
}

// reachedAt is where a node's agent is, nothing while there is none.
func reachedAt(n *corev1.Node, nu *v1alpha1.NodeUpdate) (self v1alpha1.Peer, zone string) {
	if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.PublicKey == "" {
		return self, ""
	}
	return v1alpha1.Peer{Node: n.Name, Address: nu.Status.Agent.Address, PublicKey: nu.Status.Agent.PublicKey}, n.Labels[corev1.LabelTopologyZone]
}

// peersOf are the controller and the peers of the i-th node.
func (p *peerIndex) peersOf(w *fleetSnapshot, i int) []v1alpha1.Peer {
	a, _ := p.row.At(i, w.nodes[i], w.reports[i])
	return append([]v1alpha1.Peer{p.controller}, a.peers...)
}

// since is the edition in which the i-th node's peers changed last.
func (p *peerIndex) since(w *fleetSnapshot, i int) int {
	a, _ := p.row.At(i, w.nodes[i], w.reports[i])
	return a.edition
}
