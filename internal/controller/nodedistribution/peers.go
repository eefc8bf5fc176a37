package nodedistribution

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

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
	self v1alpha1.Peer
	peerGroup
	places transfer.Places
	// peers are those in its desired state, since that edition.
	peers   []v1alpha1.Peer
	edition int
}

// peerGroup is with which others a node exchanges most.
type peerGroup struct {
	zone string
	// kind of nodes that want the same parts of bundles.
	kind string
	// source: it has a medium with a bundle, or fetches one from a registry.
	source bool
}

// refresh takes in the agents as they are now.
func (p *peerIndex) refresh(w *fleetSnapshot, publicKey string) *peerIndex {
	p.controller = v1alpha1.Peer{Node: v1alpha1.ControllerPeer, PublicKey: publicKey}
	if !p.moved(w) && p.edition > 0 {
		return p
	}
	p.edition++
	var agents []*agentAt
	var places []transfer.Places
	var kinds []string
	var sources []int32
	for i, n := range w.nodes {
		a, _ := p.row.At(i, n, w.reports[i])
		if a.self.Node == "" {
			p.setPeers(a, nil)
			continue
		}
		if a.source {
			sources = append(sources, int32(len(agents)))
		}
		agents, places, kinds = append(agents, a), append(places, a.places), append(kinds, a.kind)
	}
	all := transfer.Links(places)
	transfer.LinkSources(all, kinds, sources)
	now := make([]v1alpha1.Peer, 0, transfer.MaxSourcePeers)
	for i, links := range all {
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
	moved := p.row.Under(w.pinningAll(), w.edition, w.nodes)
	for i, n := range w.nodes {
		nu := w.reports[i]
		a, same := p.row.At(i, n, nu)
		if same {
			continue
		}
		now, group := w.reachedAt(n, nu)
		if a.self == now && a.peerGroup == group {
			continue
		}
		if moved = true; now.Node != "" {
			a.places = transfer.PlacesIn(group.kind, group.zone, now.Node)
		}
		a.self, a.peerGroup = now, group
	}
	return moved
}

// pinningAll names the pools whose nodes pin all of a bundle.
func (w *fleetSnapshot) pinningAll() string {
	var b strings.Builder
	for i := range w.pools {
		if p := &w.pools[i]; p.Spec.PinImages == v1alpha1.PinAll && p.DeletionTimestamp.IsZero() {
			fmt.Fprintf(&b, "%s %d,", p.UID, p.Generation)
		}
	}
	return b.String()
}

// reachedAt is where a node's agent is, nothing while there is none.
func (w *fleetSnapshot) reachedAt(n *corev1.Node, nu *v1alpha1.NodeUpdate) (self v1alpha1.Peer, g peerGroup) {
	if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.PublicKey == "" {
		return self, g
	}
	g = peerGroup{zone: n.Labels[corev1.LabelTopologyZone], kind: fmt.Sprint(w.needsOf(n, nu))}
	g.source = slices.ContainsFunc(nu.Status.Media, func(m v1alpha1.Medium) bool { return m.Digest != "" }) || fetches(nu, "")
	return v1alpha1.Peer{Node: n.Name, Address: nu.Status.Agent.Address, PublicKey: nu.Status.Agent.PublicKey}, g
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
