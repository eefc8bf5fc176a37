package containerd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

// blobDir is a source of blobs in files, as a bundle store is.
type blobDir string

func (d blobDir) Open(digest string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), strings.TrimPrefix(digest, "sha256:")))
}

func (d blobDir) path(digest string) string {
	return filepath.Join(string(d), strings.TrimPrefix(digest, "sha256:"))
}

// makeFileImage is makeImage in files; layer is the digest of its only layer.
func makeFileImage(t *testing.T, d blobDir, name, text string) (img Image, layer string) {
	t.Helper()
	blobs := blobMap{}
	img = makeImage(blobs, name, text, true)
	for dgst, b := range blobs {
		if err := os.WriteFile(d.path(dgst), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), text) {
			layer = dgst
		}
	}
	return img, layer
}

// A layer from a file is in the runtime's directory before the runtime is asked for it. A
// write into the runtime's file does not reach the bundle store.
func TestPlacedLayer(t *testing.T) {
	d := startDaemon(t)
	c, err := Open(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	blobs := blobDir(t.TempDir())
	placed := func(layer string) string {
		return filepath.Join(d.dir, "root", contentDir, "sha256", strings.TrimPrefix(layer, "sha256:"))
	}
	t.Run("the runtime takes it as it is", func(t *testing.T) {
		img, layer := makeFileImage(t, blobs, "example.test/placed:1", "placed once")
		before := -1
		restore := failpoint.OnHit(func(n string) {
			if n == failpoint.LoadBlob {
				if st, err := os.Stat(placed(layer)); err == nil {
					before = int(st.Sys().(*syscall.Stat_t).Ino)
				}
			}
		})
		_, err := c.Load(t.Context(), img, blobs)
		restore()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "held", held(t, c, img))
		st, err := os.Stat(placed(layer))
		if err != nil {
			t.Fatal(err)
		}
		if s := st.Sys().(*syscall.Stat_t); int(s.Ino) != before || s.Nlink != 1 || st.Mode().Perm()&0o222 != 0 {
			t.Fatalf("inode %d was placed as %d, has %d names and mode %v", s.Ino, before, s.Nlink, st.Mode())
		}
		if err := os.WriteFile(placed(layer), []byte("damage"), 0); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(blobs.path(layer))
		if err != nil || digest.FromBytes(b).String() != layer {
			t.Fatalf("the store's blob is damaged, too: %v", err)
		}
	})
	t.Run("cut off before the runtime knows of it", func(t *testing.T) {
		img, layer := makeFileImage(t, blobs, "example.test/placed:2", "placed and cut off")
		type cut struct{}
		restore := failpoint.OnHit(func(n string) {
			if n == failpoint.LoadBlob {
				panic(cut{})
			}
		})
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Load(t.Context(), img, blobs)
		}()
		restore()
		if _, err := os.Stat(placed(layer)); err != nil {
			t.Fatal(err)
		}
		// An image that is removed with its content makes the collector check all files.
		if err := c.Remove(t.Context(), "example.test/placed:1"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the collector removes it", func() bool { _, err := os.Stat(placed(layer)); return os.IsNotExist(err) })
		if _, err := c.Load(t.Context(), img, blobs); err != nil {
			t.Fatal(err)
		}
		eventually(t, "held", held(t, c, img))
	})
	t.Run("collected between the two", func(t *testing.T) {
		img, layer := makeFileImage(t, blobs, "example.test/placed:3", "placed and collected")
		restore := failpoint.OnHit(func(n string) {
			if n == failpoint.LoadBlob {
				_ = os.Remove(placed(layer))
			}
		})
		_, err := c.Load(t.Context(), img, blobs)
		restore()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "held", held(t, c, img))
	})
	t.Run("a damaged blob is refused and not placed", func(t *testing.T) {
		img, layer := makeFileImage(t, blobs, "example.test/placed:4", "placed and damaged")
		b, err := os.ReadFile(blobs.path(layer))
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(blobs.path(layer), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Load(t.Context(), img, blobs); err == nil || !strings.Contains(err.Error(), layer) {
			t.Fatalf("loaded: %v", err)
		}
		if _, err := os.Stat(placed(layer)); !os.IsNotExist(err) {
			t.Fatalf("it is in the runtime's directory: %v", err)
		}
	})
}

// If a step fails, no name appears and no room is lost: the runtime then copies the blob itself.
func TestPlaceBlobFaults(t *testing.T) {
	const size = 1 << 20
	blobs, blob := blobDir(t.TempDir()), make([]byte, size)
	desc := ocispec.Descriptor{Digest: digest.FromBytes(blob), Size: size}
	set := func(t *testing.T, b []byte) {
		t.Helper()
		if err := os.WriteFile(blobs.path(desc.Digest.String()), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty := func(t *testing.T, dir string) {
		t.Helper()
		if es, err := os.ReadDir(dir); err != nil || len(es) != 0 {
			t.Fatalf("left behind: %v %v", es, err)
		}
	}
	for name, b := range map[string][]byte{"longer": make([]byte, 3*size), "shorter": blob[1:], "empty": nil, "another": append([]byte{1}, blob[1:]...)} {
		t.Run(name+" than its descriptor says", func(t *testing.T) {
			set(t, b)
			dir := t.TempDir()
			if err := placeBlob(dir, desc, blobs); err == nil || !strings.Contains(err.Error(), "digest") {
				t.Fatalf("placed: %v", err)
			}
			empty(t, dir)
		})
	}
	set(t, blob)
	t.Run("from memory", func(t *testing.T) {
		dir := t.TempDir()
		if err := placeBlob(dir, desc, blobMap{desc.Digest.String(): blob}); !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		empty(t, dir)
	})
	t.Run("another file has the name", func(t *testing.T) {
		dir := t.TempDir()
		name := filepath.Join(dir, desc.Digest.Encoded())
		if err := os.WriteFile(name, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := placeBlob(dir, desc, blobs); !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(name); err != nil || string(b) != "theirs" {
			t.Fatalf("it was changed: %q %v", b, err)
		}
	})
	disktest.Each(t, 4*size, func(t *testing.T, f *disktest.FS) {
		dir := f.Path("blobs")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f.FillTo(size / 2)
		if err := placeBlob(dir, desc, blobs); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		empty(t, dir)
		f.Free()
		if err := placeBlob(dir, desc, blobs); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, desc.Digest.Encoded()))
		if err != nil || digest.FromBytes(b) != desc.Digest {
			t.Fatalf("another content: %v", err)
		}
	})
}

// Where files can share blocks, a layer needs no room of its own, and is another file all the same.
func TestPlaceBlobShares(t *testing.T) {
	f := disktest.XFS(t, 320<<20)
	blob := make([]byte, 16<<20)
	for i := range blob {
		blob[i] = byte(i >> 12)
	}
	desc := ocispec.Descriptor{Digest: digest.FromBytes(blob), Size: int64(len(blob))}
	blobs, dir := blobDir(f.Path("store")), f.Path("runtime")
	for _, d := range []string{string(blobs), dir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	kept, placed := blobs.path(desc.Digest.String()), filepath.Join(dir, desc.Digest.Encoded())
	if err := os.WriteFile(kept, blob, 0o600); err != nil {
		t.Fatal(err)
	}
	f.FillTo(desc.Size / 2)
	if err := placeBlob(dir, desc, blobs); err != nil {
		t.Fatal(err)
	}
	f.Free()
	if b, err := os.ReadFile(placed); err != nil || digest.FromBytes(b) != desc.Digest {
		t.Fatalf("another content: %v", err)
	}
	if err := os.WriteFile(placed, []byte("damage"), 0); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); err != nil || digest.FromBytes(b) != desc.Digest {
		t.Fatalf("the store's blob is damaged, too: %v", err)
	}
}

// A directory that does not show what the runtime has is not the runtime's.
func TestVisibleBlobs(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, contentDir, "sha256")
	known := ocispec.Descriptor{Digest: digest.FromString("known"), Size: 5}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := visibleBlobs(root, known); got != "" {
		t.Fatalf("an empty directory is the runtime's: %s", got)
	}
	for text, want := range map[string]string{"know": "", "known": dir} {
		if err := os.WriteFile(filepath.Join(dir, known.Digest.Encoded()), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := visibleBlobs(root, known); got != want {
			t.Fatalf("with %q: %q", text, got)
		}
	}
}
