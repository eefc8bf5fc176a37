package peertransfer

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

// headerPeer sends a header, or begins to and never ends.
type headerPeer struct {
	raw    []byte
	stalls bool
}

func (headerPeer) Peer() peerapi.Peer { return peerapi.Peer{Name: "p"} }
func (p headerPeer) Header(ctx context.Context, _ string) ([]byte, error) {
	if p.stalls {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.raw, nil
}

// A peer that never finishes does not keep the next one from sending the header.
func TestAStallingPeerDoesNotKeepTheHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		raw, err := FetchHeader(ctx, "sha256:x", []HeaderPeer{headerPeer{stalls: true}, headerPeer{raw: []byte("h")}}, func([]byte) error { return nil })
		if err != nil || !bytes.Equal(raw, []byte("h")) {
			t.Fatalf("%q %v", raw, err)
		}
		if took := time.Since(began); took > 10*time.Minute {
			t.Fatalf("it took %s", took)
		}
	})
}
