package peertransfer

import (
	"sync"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/peerapi"
)

// Peers keeps one client, and so its connections, for every peer.
type Peers struct {
	// Limit is the bandwidth that the node may use; nil is no limit.
	Limit *peerapi.Limit

	mu  sync.Mutex
	all map[peerapi.Peer]*peerapi.Client
}

// Clients are those of the peers that can be asked: they have an address and are not this
// node itself. Clients of earlier peers are closed.
func (s *Peers) Clients(id *peerapi.Identity, peers []v1alpha1.Peer, self string) []*peerapi.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[peerapi.Peer]*peerapi.Client{}
	var out []*peerapi.Client
	for _, p := range peers {
		if p.Address == "" || p.Node == self {
			continue
		}
		key := peerapi.Peer{Name: p.Node, Address: p.Address, PublicKey: p.PublicKey}
		c := s.all[key]
		if c == nil {
			c = peerapi.NewLimited(id, key, s.Limit)
		}
		now[key] = c
		out = append(out, c)
	}
	for k, c := range s.all {
		if now[k] == nil {
			c.Close()
		}
	}
	s.all = now
	return out
}
