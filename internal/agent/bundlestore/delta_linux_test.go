package bundlestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// deltaFiles are a bundle, the next one, and the delta between them.
type deltaFiles struct {
	old, target, delta []byte
}

func makeDelta(t testing.TB) deltaFiles {
	t.Helper()
	spec := func(release byte) bundletest.Spec {
		content := noise(700_000)
		for i := 500; i < len(content); i += 1000 {
			content[i] = release
		}
		return bundletest.Spec{Name: "site", Version: "1.0." + string('0'+rune(release)), ChunkSize: 64 << 10, Images: []bundletest.Image{
			{Name: "registry.example/app:1", Layers: [][]byte{content, noise(3000), bytes.Repeat([]byte{release}, 5000)}},
		}}
	}
	f := deltaFiles{old: bundletest.Bytes(t, spec(1)), target: bundletest.Bytes(t, spec(2))}
	f.delta = makeDeltaOf(t, f.old, f.target)
	return f
}

// makeDeltaOf makes a delta from one bundle to another.
func makeDeltaOf(t testing.TB, from, to []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	var opened [2]*bundlereader.File
	for i, raw := range [][]byte{from, to} {
		path := filepath.Join(dir, string('a'+rune(i)))
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if opened[i], err = bundlereader.OpenPath(path); err != nil {
			t.Fatal(err)
		}
		defer opened[i].Close()
	}
	out := filepath.Join(dir, "delta")
	if err := bundledelta.Create(t.Context(), opened[0], opened[1], out, nil); err != nil {
		t.Fatal(err)
	}
	delta, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return delta
}

func plugFiles(t testing.TB, raws ...[]byte) (list []media.Medium) {
	t.Helper()
	for _, raw := range raws {
		path := filepath.Join(t.TempDir(), "medium")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		list = append(list, media.Medium{Path: path, Key: "1"})
	}
	return list
}

const enoughRoom = 1 << 30

// The process without privileges restores a delta on any kind of medium, with the base in the
// store, on an approved medium, or on one without approval.
func TestDeltaWithoutPrivileges(t *testing.T) {
	if raceDetector {
		t.Skip("the unprivileged reader has not the memory that the race detector needs")
	}
	f := makeDelta(t)
	old, target := header(t, f.old), header(t, f.target)
	onFAT := mediumImage(t, "FAT", map[string][]byte{"d/delta": f.delta, "note": []byte("hello")})
	fat, err := os.ReadFile(onFAT)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		media   [][]byte
		stored  bool
		allowed bool
	}{
		"base in the store":         {[][]byte{fat}, true, false},
		"base on an allowed medium": {[][]byte{fat, f.old}, false, true},
		"base on another medium":    {[][]byte{f.delta, f.old}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCarrier(t, t.TempDir(), target, &MediaSet{Contents: UnprivilegedContents, Deltas: UnprivilegedDelta, wait: time.Minute})
			defer c.Close()
			if tc.stored {
				store(t, c.lib, old, f.old)
			}
			c.Scan(plugFiles(t, tc.media...))
			d := c.Delta(target.Digest)
			if d == nil {
				t.Fatalf("no delta is found: %v", c.lines())
			}
			if raw, err := c.RawDeltaHeader(t.Context(), d); err != nil || !bytes.Equal(raw, target.Raw) {
				t.Fatalf("%d bytes of the header, %v", len(raw), err)
			}
			r, err := c.OpenDelta(t.Context(), d, c.lib, func(*bundle.Header) bool { return tc.allowed })
			if err != nil {
				t.Fatal(err)
			}
			if missing := r.Missing(blobs(target)); missing != nil {
				t.Fatalf("missing: %v", missing)
			}
			var got int64
			if err := r.Restore(t.Context(), c.shelf, blobs(target), enoughRoom, func(n int64) { got += n }); err != nil {
				t.Fatal(err)
			}
			checkStored(t, c.shelf, f.target)
			if got == 0 {
				t.Error("nothing was counted")
			}
		})
	}
}

// store stores all of a bundle.
func store(t testing.TB, l *Library, h *bundle.Header, raw []byte) {
	t.Helper()
	s, err := l.Add(h)
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), f, s, all(h), func(int64) {}); err != nil {
		t.Fatal(err)
	}
}

func checkStored(t testing.TB, s *Shelf, raw []byte) {
	t.Helper()
	h := s.Bundle()
	for n := range h.Chunks.Len() {
		at := h.ChunkOffset(n)
		if got, err := s.Get(n); err != nil || !bytes.Equal(got, raw[at:at+int64(len(got))]) {
			t.Fatalf("chunk %d: %v", n, err)
		}
	}
}

// Any altered byte of a delta leaves no wrong blob in the store. Content of the base that no longer
// matches is missing, and the delta is not blamed.
func TestDamagedDeltaStoresNothingWrong(t *testing.T) {
	f := makeDelta(t)
	old, target := header(t, f.old), header(t, f.target)
	for at := 1024; at < len(f.delta); at += max(1, len(f.delta)/60) {
		raw := bytes.Clone(f.delta)
		raw[at] ^= 0x40
		c := newCarrier(t, t.TempDir(), target, &MediaSet{wait: time.Minute})
		store(t, c.lib, old, f.old)
		c.Scan(plugFiles(t, raw))
		if d := c.Delta(target.Digest); d != nil {
			r, err := c.OpenDelta(t.Context(), d, c.lib, nil)
			if err == nil {
				err = r.Restore(t.Context(), c.shelf, blobs(target), enoughRoom, func(int64) {})
			}
			if err == nil {
				t.Errorf("byte %d: no error", at)
			}
		}
		list, err := c.lib.Blobs().List()
		if err != nil {
			t.Fatal(err)
		}
		for digest := range list {
			if b, err := os.ReadFile(filepath.Join(c.lib.Blobs().Dir(), strings.TrimPrefix(digest, "sha256:"))); err == nil && bundle.DigestOf(b) != digest {
				t.Errorf("byte %d: blob %s is wrong", at, digest)
			}
		}
		c.Close()
	}
}

func TestDamagedBase(t *testing.T) {
	f := makeDelta(t)
	old, target := header(t, f.old), header(t, f.target)
	c := newCarrier(t, t.TempDir(), target, &MediaSet{wait: time.Minute})
	defer c.Close()
	store(t, c.lib, old, f.old)
	largest := slices.MaxFunc(old.Metadata.Blobs, func(a, b bundle.Blob) int { return int(a.Size - b.Size) })
	path := filepath.Join(c.lib.Blobs().Dir(), strings.TrimPrefix(largest.Digest, "sha256:"))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[300_000] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Scan(plugFiles(t, f.delta))
	restore := func() []int {
		t.Helper()
		r, err := c.OpenDelta(t.Context(), c.Delta(target.Digest), c.lib, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Restore(t.Context(), c.shelf, blobs(target), enoughRoom, func(int64) {}); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(r.Missing(blobs(target)), c.shelf.HasBlob)
	}
	if missing := restore(); len(missing) != 1 {
		t.Fatalf("missing after the damage: %v", missing)
	}
	store(t, c.lib, old, f.old)
	if missing := restore(); missing != nil {
		t.Fatalf("missing after the repair: %v", missing)
	}
	checkStored(t, c.shelf, f.target)
}

// The unpacked base takes no more room than there is.
func TestDeltaNeedsRoom(t *testing.T) {
	f := makeDelta(t)
	old, target := header(t, f.old), header(t, f.target)
	c := newCarrier(t, t.TempDir(), target, &MediaSet{wait: time.Minute})
	defer c.Close()
	store(t, c.lib, old, f.old)
	c.Scan(plugFiles(t, f.delta))
	r, err := c.OpenDelta(t.Context(), c.Delta(target.Digest), c.lib, nil)
	if err != nil {
		t.Fatal(err)
	}
	if need := r.SpoolSize(blobs(target)); need < 700_000 {
		t.Errorf("it needs %d bytes", need)
	}
	if err := r.Restore(t.Context(), c.shelf, blobs(target), 1000, func(int64) {}); !errors.Is(err, ErrStore) {
		t.Errorf("%v", err)
	}
}

// What the process without privileges answers is not believed: a delta may have taken it over.
func TestAFalseDeltaReaderIsRefused(t *testing.T) {
	f := makeDelta(t)
	old, target := header(t, f.old), header(t, f.target)
	endless := func(out io.Writer) error {
		for {
			if _, err := out.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
	}
	for name, tc := range map[string]struct {
		read DeltaReader
		want string
	}{
		"an endless head": {func(_ context.Context, _ DeltaJob, _ io.Reader, out io.Writer) error { return endless(out) }, "more than"},
		"the head of another delta": {func(_ context.Context, _ DeltaJob, _ io.Reader, out io.Writer) error {
			return bundledelta.UnpackHead(out, bytes.NewReader(makeDeltaOf(t, f.target, f.old)))
		}, "names the bundle"},
		"endless blobs": {func(ctx context.Context, job DeltaJob, in io.Reader, out io.Writer) error {
			if job.Step == nil {
				return LocalDelta(ctx, job, in, out)
			}
			return endless(out)
		}, "other bytes"},
		"no blobs": {func(ctx context.Context, job DeltaJob, in io.Reader, out io.Writer) error {
			if job.Step == nil {
				return LocalDelta(ctx, job, in, out)
			}
			return nil
		}, "other bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCarrier(t, t.TempDir(), target, &MediaSet{Deltas: tc.read, wait: time.Minute})
			defer c.Close()
			store(t, c.lib, old, f.old)
			c.Scan(plugFiles(t, f.delta))
			r, err := c.OpenDelta(t.Context(), c.Delta(target.Digest), c.lib, nil)
			if err == nil {
				err = r.Restore(t.Context(), c.shelf, blobs(target), enoughRoom, func(int64) {})
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := (answer{Bundles: []answeredBundle{{Name: "d", Base: "sha256:../../x", Label: &bundle.Label{}}}}).contents(); err == nil {
		t.Error("a false base was taken")
	}
}
