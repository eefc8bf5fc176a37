package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/labels"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/fsutil"
)

// place is where a load puts files, and what must be synced after it: the runtime's
// own directory (content and metadata) and that of the snapshots.
type place struct{ root, snapshots, snapshotter string }

// unpack makes files of the layers that are not there as files yet, lowest first.
// The unpacker of containerd's client would do a layer twice that two images share
// and that are loaded at the same time, and would wait for the disk at each.
func (c *Client) unpack(ctx context.Context, img images.Image, at place) error {
	cs := c.api.content
	manifest, err := images.Manifest(ctx, cs, img.Target, c.platform)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	diffs, err := img.RootFS(ctx, cs, c.platform)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	var layers []ocispec.Descriptor
	for _, l := range manifest.Layers {
		if images.IsLayerType(l.MediaType) {
			layers = append(layers, l)
		}
	}
	if len(layers) != len(diffs) {
		return fmt.Errorf("the manifest has %d layers, the configuration %d", len(layers), len(diffs))
	}
	parent := digest.Digest("")
	for i, l := range layers {
		chain := identity.ChainID(diffs[:i+1])
		if err := c.layer(ctx, l, diffs[i], parent, chain, at); err != nil {
			return fmt.Errorf("layer %s: %w", l.Digest, err)
		}
		parent = chain
	}
	// By this the runtime's collector keeps the files as long as the configuration.
	return cs.label(ctx, manifest.Config.Digest, map[string]string{"containerd.io/gc.ref.snapshot." + at.snapshotter: parent.String()})
}

// layer unpacks one layer on top of its parent unless it is there; one at a time.
func (c *Client) layer(ctx context.Context, blob ocispec.Descriptor, diff, parent, chain digest.Digest, at place) error {
	defer c.busy.acquire(chain.String())()
	if found, err := c.api.hasSnapshot(ctx, at.snapshotter, chain.String()); found || err != nil {
		return err
	}
	sn := c.api.snapshots
	key := fmt.Sprintf("extract-refit-%s %s", rand.Text(), chain) // by its form containerd's clients know an unpack
	prepared, err := sn.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Snapshotter: at.snapshotter, Key: key, Parent: parent.String()})
	if err != nil {
		return err
	}
	got, err := c.api.diff.Apply(ctx, &diffapi.ApplyRequest{Diff: descriptorTo(blob), Mounts: prepared.GetMounts()})
	if files := got.GetApplied().GetDigest(); err == nil && files != diff.String() {
		err = fmt.Errorf("its files have the digest %s, the configuration says %s", files, diff)
	}
	if err == nil {
		// Files are synced before the runtime notes that they are there: it never
		// looks again (an image cut off by a power cut would stay empty).
		err = c.syncs.sync(at.snapshots)
	}
	if err == nil {
		_, err = sn.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Snapshotter: at.snapshotter, Name: chain.String(), Key: key})
	}
	if err != nil {
		_, gone := sn.Remove(context.WithoutCancel(ctx), &snapshotsapi.RemoveSnapshotRequest{Snapshotter: at.snapshotter, Key: key})
		if errdefs.IsAlreadyExists(err) { // another client was faster
			return gone
		}
		return errors.Join(err, gone)
	}
	return c.api.content.label(ctx, blob.Digest, map[string]string{labels.LabelUncompressed: diff.String()})
}

// turns let one at a time work on a thing. The zero value is ready.
type turns struct {
	mu  sync.Mutex
	now map[string]chan struct{}
}

// acquire waits for the turn of a key; the returned function ends it.
func (t *turns) acquire(what string) (done func()) {
	for {
		t.mu.Lock()
		other, taken := t.now[what]
		if !taken {
			break
		}
		t.mu.Unlock()
		<-other
	}
	if t.now == nil {
		t.now = map[string]chan struct{}{}
	}
	mine := make(chan struct{})
	t.now[what] = mine
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		delete(t.now, what)
		t.mu.Unlock()
		close(mine)
	}
}

// syncs bring file systems to the disk, for all who ask while one is under way with
// the next one. The zero value is ready.
type syncs struct {
	one  sync.Mutex
	mu   sync.Mutex
	next map[string]*syncRun
}

type syncRun struct {
	done chan struct{}
	err  error
}

// sync returns after a sync that began after the call.
func (s *syncs) sync(dir string) error {
	s.mu.Lock()
	r := s.next[dir]
	if r != nil {
		s.mu.Unlock()
		<-r.done
		return r.err
	}
	r = &syncRun{done: make(chan struct{})}
	if s.next == nil {
		s.next = map[string]*syncRun{}
	}
	s.next[dir] = r
	s.mu.Unlock()
	s.one.Lock()
	s.mu.Lock()
	delete(s.next, dir) // who comes now is too late for this one
	s.mu.Unlock()
	r.err = fsutil.SyncFS(dir)
	s.one.Unlock()
	close(r.done)
	return r.err
}
