package peertransfer

import (
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

const (
	// defaultChunkTime is how long a chunk may take without a bandwidth limit.
	defaultChunkTime = time.Minute
	// maxConcurrent is the largest number of chunks that come to a node, or leave one, at
	// the same time.
	maxConcurrent = 16
)

// ChunkTime is how long one chunk may take. With a limit all chunks come at once and slowly,
// and a peer that keeps to the limit must not count as failed.
func ChunkTime(limit *peerapi.Limit, chunkSize int64) time.Duration {
	rate := limit.Rate()
	if rate <= 0 {
		return defaultChunkTime
	}
	return max(defaultChunkTime, time.Duration(2*maxConcurrent*chunkSize/rate+1)*time.Second)
}
