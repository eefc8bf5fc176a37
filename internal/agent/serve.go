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

// door is where peers find this node: at its own address, on the port that the
// configuration file names, the node's UpdatePool, or none of them.
func (a *Agent) door() *peertransfer.Door {
	return &peertransfer.Door{Where: a.listenAddress, Serve: a.serve, Changed: a.wakeDoor, Tell: func(_ string, err error) {
		if err != nil {
			a.log.Warn("chunk server is not listening", "error", err)
		}
		a.update(func(s *state) { s.doorVerdict = doorVerdict(a.conf.Node, err) })
	}}
}

// listenAddress also takes over what peers are to be told.
func (a *Agent) listenAddress() (string, error) {
	port := int32(0)
	if w := a.wanted(); w != nil {
		port = w.Spec.PeerPort
	}
	if by := model.PortUsedBy(port); by != "" {
		return "", fmt.Errorf("the controller names port %d for peers, which is of %s: it is not opened; set another spec.peerPort in the UpdatePool", port, by)
	}
	address, err := a.conf.PeerAddress(port)
	if err != nil {
		return "", err
	}
	a.update(func(*state) { a.address = address })
	return a.conf.ListenAddress(address)
}

// doorVerdict says why this node has nothing for its peers.
func doorVerdict(node string, err error) *model.Verdict {
	if err == nil {
		return nil
	}
	v := &model.Verdict{Reason: v1alpha1.ReasonNoSource, Waiting: true, Object: "Node/" + node, Message: err.Error()}
	if busy := (*peertransfer.BusyError)(nil); errors.As(err, &busy) {
		v.Reason, v.Waiting = v1alpha1.ReasonPortInUse, false
	}
	return v
}

// serve answers peers; whoever is not in spec.peers is refused.
func (a *Agent) serve(ctx context.Context, l net.Listener) {
	who := peerapi.Alive{Node: a.conf.Node, Version: agentVersion()}
	if err := peertransfer.Serve(ctx, l, peertransfer.Shelves{Library: a.library, Medium: a.media.Reader, Found: a.foundHeader}, who, a.id, a.isPeer, &a.limit); err != nil {
		a.log.Error("chunk server ended", "error", err)
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

// foundHeader is the header of a bundle on a medium in this node, nil if there is none. It
// is not parsed here: the controller does that, before people are asked to approve it.
func (a *Agent) foundHeader(digest string) []byte {
	m := a.media.With(digest)
	if m == nil {
		return nil
	}
	raw, err := m.RawHeader()
	if err != nil {
		a.media.Fail(m, err)
		return nil
	}
	return raw
}
