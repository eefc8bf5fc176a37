package agent

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// eventBadPeer is the reason of an event about a bad peer.
const eventBadPeer = "PeerLied"

// badPeerGap is the least time between two events about the same peer.
const badPeerGap = 10 * time.Minute

// badPeers remembers when each bad peer was reported. Safe for concurrent use.
type badPeers struct {
	mu       sync.Mutex
	reported map[string]time.Time
}

// due reports whether a bad peer is to be reported now.
func (b *badPeers) due(peer string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, ok := b.reported[peer]; ok && time.Since(last) <= badPeerGap {
		return false
	}
	if b.reported == nil {
		b.reported = map[string]time.Time{}
	}
	b.reported[peer] = time.Now()
	return true
}

// reportBadPeer emits an event about a peer whose chunks do not match their digests.
func (l *bundleLoop) reportBadPeer(ctx context.Context, peer string) {
	if l.badPeers.due(peer) {
		l.emitEvent(context.WithoutCancel(ctx), eventBadPeer, fmt.Sprintf("node %s sends chunks with wrong digests: data discarded, peer deprioritized. Check that node's disk and memory, and whether it is compromised", peer))
	}
}
