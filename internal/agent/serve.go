package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/refit-dev/refit/internal/host/blobstore"
	"github.com/refit-dev/refit/internal/pipeline/distribute/exchange"
	load "github.com/refit-dev/refit/internal/pipeline/load/agent"
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
	h := exchange.Handler(shelves{a.library}, exchange.Alive{Node: a.conf.Node, Version: agentVersion()})
	srv := exchange.NewServer(exchange.OnlyPeers(h, a.isPeer))
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(tls.NewListener(l, a.id.ServerTLS(a.isPeer)))
	if !errors.Is(err, http.ErrServerClosed) {
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

// shelves is the library as peers see it.
type shelves struct{ lib *load.Library }

func (s shelves) Header(digest string) ([]byte, error) {
	if sh := s.lib.Served(digest); sh != nil {
		return sh.Bundle().Raw, nil
	}
	return nil, exchange.ErrNotHere
}

func (s shelves) Have(digest string) ([]byte, error) {
	if sh := s.lib.Served(digest); sh != nil {
		return sh.Bitmap()
	}
	return nil, exchange.ErrNotHere
}

func (s shelves) Chunk(digest string, n int) ([]byte, error) {
	sh := s.lib.Served(digest)
	if sh == nil {
		return nil, exchange.ErrNotHere
	}
	b, err := sh.Get(n)
	if errors.Is(err, blobstore.ErrAbsent) {
		return nil, exchange.ErrNotHere
	}
	return b, err
}
