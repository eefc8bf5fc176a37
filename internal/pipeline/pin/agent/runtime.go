package agent

import (
	"context"

	"github.com/refit-dev/refit/internal/host/containerd"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Containerd is the Runtime of a node with containerd.
type Containerd struct{ *containerd.Client }

// Present lists the images over CRI.
func (c Containerd) Present(ctx context.Context) ([]pin.Present, error) {
	all, err := c.CRI().Images(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pin.Present, 0, len(all))
	for _, i := range all {
		out = append(out, pin.Present{Tags: i.Tags, Digests: i.Digests, Pinned: i.Pinned})
	}
	return out, nil
}
