package peertransfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

// HeaderPeer is a peer that can be asked for a header; peerapi.Client is one.
type HeaderPeer interface {
	Peer() peerapi.Peer
	Header(ctx context.Context, digest string) ([]byte, error)
}

// headerTime is how long one peer may take to send a header.
const headerTime = time.Minute

// FetchHeader asks the peers in order until one sends a header that check accepts. check
// compares it with the digest, and a peer that sends another header is skipped. The error
// has the answer of every peer.
func FetchHeader(ctx context.Context, digest string, peers []HeaderPeer, check func(raw []byte) error) ([]byte, error) {
	var all []error
	for _, p := range peers {
		pctx, cancel := context.WithTimeoutCause(ctx, headerTime, errSlow)
		raw, err := p.Header(pctx, digest)
		cancel()
		if err == nil {
			if err = check(raw); err == nil {
				return raw, nil
			}
			err = fmt.Errorf("peer %s sent a wrong header: %w", p.Peer().Name, err)
		}
		all = append(all, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("bundle %s: no peer to ask: %w", digest, peerapi.ErrNotHere)
	}
	return nil, fmt.Errorf("bundle %s: no peer has it: %w", digest, errors.Join(all...))
}
