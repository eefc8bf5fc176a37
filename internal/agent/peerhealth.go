package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

// peerTime is how long a peer may take to answer that it is there.
const peerTime = 4 * time.Second

// peersReached returns how many peers of this node answer. Only the holder of a peer's key can.
func (sh *shared) peersReached(ctx context.Context) int {
	w := sh.desiredState()
	if w == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	var reached atomic.Int32
	var wg sync.WaitGroup
	for _, p := range w.Spec.Peers {
		if p.Address == "" || p.Node == sh.conf.Node {
			continue
		}
		wg.Go(func() {
			c := peerapi.NewClient(sh.id, peerapi.Peer{Name: p.Node, Address: p.Address, PublicKey: p.PublicKey})
			defer c.Close()
			if _, err := c.Alive(ctx); err == nil {
				reached.Add(1)
			}
		})
	}
	wg.Wait()
	return int(reached.Load())
}
