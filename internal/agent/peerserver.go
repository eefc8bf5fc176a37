package agent

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
)

// peerServer serves chunks to peers, and the log to the controller.
type peerServer struct {
	*shared
	// journal reads the log; nil: it is not served.
	journal peerapi.Journal
}

// Run listens until the context ends.
func (srv *peerServer) Run(ctx context.Context) { srv.listener().Run(ctx) }

// listener listens at this node's own address, on the port of the configuration file, of the
// node's UpdatePool, or the default.
func (srv *peerServer) listener() *peertransfer.Listener {
	return &peertransfer.Listener{Address: srv.listenAddress, Serve: srv.serve, Changed: srv.wakeServer, Report: func(_ string, err error) {
		if err != nil {
			srv.log.Warn("chunk server is not listening", "error", err)
		}
		srv.update(func(s *state) { s.serverVerdict = serverVerdict(srv.conf.Node, err) })
	}}
}

// listenAddress returns the address to listen at, and stores the address for peers in the state.
func (srv *peerServer) listenAddress() (string, error) {
	port := int32(0)
	if w := srv.desiredState(); w != nil {
		port = w.Spec.PeerPort
	}
	if by := model.PortUsedBy(port); by != "" {
		return "", fmt.Errorf("port %d for peers belongs to %s. Set another spec.peerPort in the UpdatePool", port, by)
	}
	address, err := srv.conf.PeerAddress(port)
	if err != nil {
		return "", err
	}
	srv.update(func(s *state) { s.address = address })
	return srv.conf.ListenAddress(address)
}

// serverVerdict returns why this node does not serve its peers.
func serverVerdict(node string, err error) *model.Blocker {
	if err == nil {
		return nil
	}
	v := &model.Blocker{Reason: v1alpha1.ReasonNoSource, Waiting: true, Object: "Node/" + node, Message: err.Error()}
	if busy := (*peertransfer.BusyError)(nil); errors.As(err, &busy) {
		v.Reason, v.Waiting = v1alpha1.ReasonPortInUse, false
	}
	return v
}

// serve answers the peers in spec.peers and refuses all other clients. Only the controller reads
// the log.
func (srv *peerServer) serve(ctx context.Context, l net.Listener) {
	who := peerapi.Alive{Node: srv.conf.Node, Version: agentVersion()}
	h := peerapi.Handler(peertransfer.Shelves{Library: srv.library, Medium: srv.media.Reader, RawHeader: srv.foundHeader, Relay: srv.registries.get}, who)
	if srv.journal != nil {
		h = peerapi.WithLogs(h, srv.isController, srv.journal)
	}
	if err := peertransfer.ServeHandler(ctx, l, h, srv.id, srv.isPeer, &srv.limit); err != nil {
		srv.log.Error("chunk server stopped", "error", err)
	}
}

func (srv *peerServer) isPeer(publicKey string) bool {
	return srv.hasPeer(func(p *v1alpha1.Peer) bool { return p.PublicKey == publicKey })
}

// isController reports whether a key is the controller's. No node has an empty address.
func (srv *peerServer) isController(publicKey string) bool {
	return srv.hasPeer(func(p *v1alpha1.Peer) bool {
		return p.PublicKey == publicKey && p.Node == v1alpha1.ControllerPeer && p.Address == ""
	})
}

func (srv *peerServer) hasPeer(is func(*v1alpha1.Peer) bool) bool {
	w := srv.desiredState()
	if w == nil {
		return false
	}
	for i := range w.Spec.Peers {
		if is(&w.Spec.Peers[i]) {
			return true
		}
	}
	return false
}

// foundHeader returns the header of a bundle on a medium in this node, nil if there is none.
// The agent does not parse it: the controller does, before an administrator approves it.
func (srv *peerServer) foundHeader(digest string) []byte {
	m := srv.media.With(digest)
	if m == nil || m.Header() == nil {
		return srv.headerOfDelta(digest)
	}
	raw, err := m.RawHeader()
	if err != nil {
		srv.media.Fail(m, err)
		return nil
	}
	return raw
}

// headerOfDelta returns the header of the bundle that a delta on a medium in this node makes, nil if
// there is none.
func (srv *peerServer) headerOfDelta(digest string) []byte {
	d := srv.media.Delta(digest)
	if d == nil {
		return nil
	}
	raw, err := srv.media.RawDeltaHeader(context.Background(), d)
	if err != nil {
		srv.log.Warn("failed to read the header in a delta", "medium", d.Path, "error", err)
		d.Fail(err)
		return nil
	}
	return raw
}
