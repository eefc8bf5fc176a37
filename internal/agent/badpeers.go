package agent

import (
	"context"
	"fmt"
	"time"
)

// eventBadPeer is the reason of an event about a neighbour.
const eventBadPeer = "PeerLied"

// badPeerGap is how often a bad peer is reported again.
const badPeerGap = 10 * time.Minute

// reportBadPeer names a neighbour whose chunks are not what was asked for.
func (a *Agent) reportBadPeer(ctx context.Context, peer string) {
	a.mu.Lock()
	before, said := a.badPeers[peer]
	say := !said || time.Since(before) > badPeerGap
	if say {
		if a.badPeers == nil {
			a.badPeers = map[string]time.Time{}
		}
		a.badPeers[peer] = time.Now()
	}
	a.mu.Unlock()
	if say {
		a.tell(context.WithoutCancel(ctx), eventBadPeer, fmt.Sprintf("node %s sends chunks that are not what they should be: nothing of it was kept, and it is asked less; look at that node's disk and memory, and at who is on it", peer))
	}
}
