package agent

import (
	"context"
	"fmt"
	"time"
)

// eventLied is the reason of an event about a neighbour.
const eventLied = "PeerLied"

// lieGap is how often a neighbour is called a liar.
const lieGap = 10 * time.Minute

// tellLied names a neighbour whose chunks are not what was asked for.
func (a *Agent) tellLied(ctx context.Context, peer string) {
	a.mu.Lock()
	before, said := a.liars[peer]
	say := !said || time.Since(before) > lieGap
	if say {
		if a.liars == nil {
			a.liars = map[string]time.Time{}
		}
		a.liars[peer] = time.Now()
	}
	a.mu.Unlock()
	if say {
		a.tell(context.WithoutCancel(ctx), eventLied, fmt.Sprintf("node %s sends chunks that are not what they should be: nothing of it was kept, and it is asked less; look at that node's disk and memory, and at who is on it", peer))
	}
}
