package imagekeeper

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Containerd is the Runtime of a node with containerd.
type Containerd struct{ *containerd.Client }

// Present lists the images over CRI.
func (c Containerd) Present(ctx context.Context) ([]pin.Present, error) {
	return present(ctx, c.CRI())
}

// AtOnce is two: a node has other work for its processors, and its memory is small.
func (c Containerd) AtOnce() int { return min(2, runtime.GOMAXPROCS(0)) }

// Remove takes an image out with all its names.
func (c CRIO) Remove(ctx context.Context, name string) error { return c.CRI().Remove(ctx, name) }

// RemovePods takes all pods away.
func (c Containerd) RemovePods(ctx context.Context) error { return c.CRI().RemovePods(ctx) }

// RemovePods takes all pods away.
func (c CRIO) RemovePods(ctx context.Context) error { return c.CRI().RemovePods(ctx) }

// Version is the runtime's name and version.
func (c Containerd) Version(ctx context.Context) (string, string, error) {
	return c.CRI().Version(ctx)
}

// CRIO is the Runtime of a node with CRI-O, and of one with a runtime that is not
// known: what works the same way is taken, what does not says so.
type CRIO struct{ *crio.Client }

// Present lists the images over CRI.
func (c CRIO) Present(ctx context.Context) ([]pin.Present, error) { return present(ctx, c.CRI()) }

func present(ctx context.Context, c *cri.Client) ([]pin.Present, error) {
	all, err := c.Images(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pin.Present, 0, len(all))
	for _, i := range all {
		out = append(out, pin.Present{ID: i.ID, Tags: i.Tags, Digests: i.Digests, Pinned: i.Pinned})
	}
	return out, nil
}

// NodeRuntime is a node's container runtime, whichever it is.
type NodeRuntime interface {
	Runtime
	CRI() *cri.Client
	// Parts of an image in the runtime's store, Refresh has it look at one again
	// that was put back there, Remove takes one out.
	Parts(ctx context.Context, img cri.Target) ([]cri.Part, error)
	Refresh(ctx context.Context, img cri.Target) error
	Remove(ctx context.Context, name string) error
	RemovePods(ctx context.Context) error
	// Root is a directory whose file system takes the images.
	Root(ctx context.Context) (string, error)
	// Version is the runtime's name and version.
	Version(ctx context.Context) (name, version string, err error)
	// Watch calls changed when images went or the runtime came back.
	Watch(ctx context.Context, changed func())
	Close() error
}

// nameTime is how long a runtime that starts may take to say what it is.
const nameTime = 10 * time.Second

// Open finds out which runtime listens at a socket, by asking it, and prepares a
// client; one that is away is taken for what its socket is called.
func Open(ctx context.Context, socket string, places crio.Places, log *slog.Logger) (NodeRuntime, error) {
	if ofContainerd(ctx, socket) {
		c, err := containerd.Open(socket)
		if err != nil {
			return nil, err
		}
		return Containerd{c}, nil
	}
	c, err := crio.Open(socket, places, log)
	if err != nil {
		return nil, err
	}
	return CRIO{c}, nil
}

func ofContainerd(ctx context.Context, socket string) bool {
	c, err := cri.Open(socket)
	if err != nil {
		return !strings.Contains(socket, "crio")
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	for {
		name, _, err := c.Version(ctx)
		if err == nil {
			return name == "containerd"
		}
		select {
		case <-ctx.Done():
			return !strings.Contains(socket, "crio")
		case <-time.After(200 * time.Millisecond):
		}
	}
}
