package peertransfer

import (
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

const (
	// usualTime is how long a chunk may take where nothing is limited.
	usualTime = time.Minute
	// underWay is how many chunks come to a node, and leave one, at the same time at
	// most.
	underWay = 16
)

// ChunkTime is how long one chunk may take: within a limit they all come at once and
// slowly, and a neighbour must not be put aside for keeping to it.
func ChunkTime(limit *peerapi.Limit, chunkSize int64) time.Duration {
	rate := limit.Rate()
	if rate <= 0 {
		return usualTime
	}
	return max(usualTime, time.Duration(2*underWay*chunkSize/rate+1)*time.Second)
}
