package agent

import (
	"context"
	"fmt"
	"net"

	"github.com/refit-dev/refit/internal/agent/peering"
	"github.com/refit-dev/refit/internal/pipeline/distribute/exchange"
)

// listen opens the chunk server's port on all addresses of the node.
func (a *Agent) listen(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(a.address)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", a.address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		host = ""
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("chunk server: %w; another port can be given with --address", err)
	}
	return l, nil
}

// serve answers peers; whoever is not in spec.peers is refused.
func (a *Agent) serve(ctx context.Context, l net.Listener) {
	who := exchange.Alive{Node: a.conf.Node, Version: agentVersion()}
	if err := peering.Serve(ctx, l, peering.Shelves{Library: a.library, Medium: a.media.Reader, Found: a.foundHeader}, who, a.id, a.isPeer, &a.limit); err != nil {
		a.log.Error("the chunk server ended", "because", err)
	}
}

func (a *Agent) isPeer(publicKey string) bool {
	w := a.wanted()
	if w == nil {
		return false
	}
	for _, p := range w.Spec.Peers {
		if p.PublicKey == publicKey {
			return true
		}
	}
	return false
}

// foundHeader is the header of a bundle on a medium in this node, nil if there is none.
func (a *Agent) foundHeader(digest string) []byte {
	if m := a.media.With(digest); m != nil {
		return m.Header().Raw
	}
	return nil
}
