package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/platforms"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// Namespace is the one the kubelet's images are in.
const Namespace = "k8s.io"

// Blobs is where an image's blobs come from.
type Blobs = cri.Blobs

// Client speaks to one containerd.
type Client struct {
	socket   string
	api      *runtimeAPI
	cri      *cri.Client
	platform platforms.MatchComparer
	busy     turns // blobs and layers that are being written
	syncs    syncs
}

// Open prepares a client; the runtime may be unavailable at that time.
func Open(socket string) (*Client, error) {
	c, err := cri.Open(socket)
	if err != nil {
		return nil, err
	}
	api, err := openAPI(strings.TrimPrefix(socket, "unix://"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("containerd at %s: %w", socket, err), c.Close())
	}
	return &Client{socket: socket, api: api, cri: c, platform: platforms.Default()}, nil
}

// Close ends the connections.
func (c *Client) Close() error { return errors.Join(c.api.close(), c.cri.Close()) }

// CRI is the same runtime seen as the kubelet sees it.
func (c *Client) CRI() *cri.Client { return c.cri }

// roots are the directories that must be synced after a load: the runtime's
// own (content and metadata) and that of the snapshots.
func (c *Client) roots(ctx context.Context) (root, snapshots, snapshotter string, err error) {
	snapshots, err = c.cri.ImageRoot(ctx)
	if err != nil {
		return "", "", "", err
	}
	// CRI names the directory of the snapshotter it uses, whose last part is
	// io.containerd.snapshotter.v1.<name>.
	const prefix = "io.containerd.snapshotter.v1."
	name, ok := strings.CutPrefix(filepath.Base(snapshots), prefix)
	if !ok {
		return "", "", "", fmt.Errorf("the runtime unpacks into %s, which names no snapshotter", snapshots)
	}
	return filepath.Dir(snapshots), snapshots, name, nil
}

// Root is the runtime's directory; its file system needs the room for images.
func (c *Client) Root(ctx context.Context) (string, error) {
	root, _, _, err := c.roots(ctx)
	return root, err
}

// Watch calls changed whenever an image record was deleted or the runtime came
// back after a restart, until the context ends.
func (c *Client) Watch(ctx context.Context, changed func()) {
	for ctx.Err() == nil {
		_ = c.api.subscribe(ctx, `topic=="/images/delete"`, changed) // until the runtime goes away, or we
		if !c.waitUntilBack(ctx) {
			return
		}
		changed()
	}
}

// waitUntilBack waits until the runtime answers.
func (c *Client) waitUntilBack(ctx context.Context) bool {
	for {
		t := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			t.Stop()
			return false
		case <-t.C:
		}
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _, err := c.cri.Version(call)
		cancel()
		if err == nil {
			return true
		}
	}
}
