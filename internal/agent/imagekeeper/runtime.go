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
func (c Containerd) Present(ctx context.Context) ([]pin.RuntimeImage, error) {
	return present(ctx, c.CRI())
}

// MaxParallel is two: a node has other work for its processors, and little memory.
func (c Containerd) MaxParallel() int { return min(2, runtime.GOMAXPROCS(0)) }

// Remove removes an image with all its names.
func (c CRIO) Remove(ctx context.Context, name string) error { return c.CRI().Remove(ctx, name) }

// RemovePods removes all pods.
func (c Containerd) RemovePods(ctx context.Context) error { return c.CRI().RemovePods(ctx) }

// RemovePods removes all pods.
func (c CRIO) RemovePods(ctx context.Context) error { return c.CRI().RemovePods(ctx) }

// Version is the runtime's name and version.
func (c Containerd) Version(ctx context.Context) (string, string, error) {
	return c.CRI().Version(ctx)
}

// CRIO is the Runtime of a node with CRI-O, and of one with an unknown runtime: what works
// in the same way is used, and the rest fails with an error.
type CRIO struct{ *crio.Client }

// Present lists the images over CRI.
func (c CRIO) Present(ctx context.Context) ([]pin.RuntimeImage, error) { return present(ctx, c.CRI()) }

func present(ctx context.Context, c *cri.Client) ([]pin.RuntimeImage, error) {
	all, err := c.Images(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]pin.RuntimeImage, 0, len(all))
	for _, i := range all {
		out = append(out, pin.RuntimeImage{ID: i.ID, Tags: i.Tags, Digests: i.Digests, Pinned: i.Pinned})
	}
	return out, nil
}

// NodeRuntime is a node's container runtime of either kind.
type NodeRuntime interface {
	Runtime
	CRI() *cri.Client
	// Parts of an image in the runtime's store. Refresh makes the runtime read an image
	// again that was repaired there. Remove removes one.
	Parts(ctx context.Context, img cri.Target) ([]cri.Part, error)
	Refresh(ctx context.Context, img cri.Target) error
	Remove(ctx context.Context, name string) error
	RemovePods(ctx context.Context) error
	// Root is a directory of the file system that stores the images.
	Root(ctx context.Context) (string, error)
	// Version is the runtime's name and version.
	Version(ctx context.Context) (name, version string, err error)
	// Watch calls changed when images were removed or the runtime came back.
	Watch(ctx context.Context, changed func())
	Close() error
}

// versionTimeout is how long a starting runtime may take to report its name.
const versionTimeout = 10 * time.Second

// Open asks the runtime at a socket which one it is, and makes a client. The name of the
// socket decides for a runtime that does not answer.
func Open(ctx context.Context, socket string, places crio.Places, log *slog.Logger) (NodeRuntime, error) {
	if isContainerd(ctx, socket) {
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

func isContainerd(ctx context.Context, socket string) bool {
	c, err := cri.Open(socket)
	if err != nil {
		return !strings.Contains(socket, "crio")
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
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
