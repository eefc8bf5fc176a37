package coldstart

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// fill is what happens before the unit of a distribution starts.
func (n *node) fill(t *testing.T, f Folder) []string {
	t.Helper()
	names, err := f.Fill(t.Context(), Options{Config: n.conf, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return names
}

func folderOf(t *testing.T) Folder {
	t.Helper()
	dir := t.TempDir()
	return Folder{Images: filepath.Join(dir, "images"), Store: filepath.Join(dir, "containerd")}
}

// readArchive returns the names of an archive's images, all of whose blobs must match their digests.
func readArchive(t *testing.T, path string) (names []string, blobs int) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	sums := map[digest.Digest]bool{}
	var index ocispec.Index
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		b, err := io.ReadAll(r)
		must(t, err)
		switch h.Name {
		case ocispec.ImageIndexFile:
			must(t, json.Unmarshal(b, &index))
		case ocispec.ImageLayoutFile:
		default:
			sums[digest.NewDigestFromEncoded(digest.SHA256, filepath.Base(h.Name))] = digest.FromBytes(b).Encoded() == filepath.Base(h.Name)
		}
	}
	for d, ok := range sums {
		if !ok {
			t.Errorf("%s: blob %s has other bytes", path, d)
		}
	}
	for _, m := range index.Manifests {
		if !sums[m.Digest] {
			t.Errorf("%s has no manifest %s", path, m.Digest)
		}
		names = append(names, m.Annotations["io.containerd.image.name"])
	}
	return names, len(sums)
}

func (f Folder) list(t *testing.T) (files []string) {
	t.Helper()
	all, err := os.ReadDir(f.Images)
	must(t, err)
	for _, e := range all {
		files = append(files, filepath.Join(f.Images, e.Name()))
	}
	return files
}

// TestLostStoreIsFilled: the distribution finds every image under both names; what others put into
// the directory stays, and what refit wrote goes once the runtime has a store.
func TestLostStoreIsFilled(t *testing.T) {
	n, f := newNode(t), folderOf(t)
	must(t, os.MkdirAll(f.Images, 0o755))
	foreign := filepath.Join(f.Images, "refit-airgap.tar")
	must(t, os.WriteFile(foreign, []byte("of the site"), 0o644))
	if got := n.fill(t, f); !slices.Equal(got, []string{"r.example/a:1", "r.example/b:1"}) {
		t.Fatalf("written: %v", got)
	}
	var names []string
	for _, path := range f.list(t) {
		if path == foreign {
			continue
		}
		found, blobs := readArchive(t, path)
		if blobs != 4 { // manifest, configuration, two layers
			t.Errorf("%s has %d blobs", path, blobs)
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	a, b := n.header.Metadata.Images[0].Digest, n.header.Metadata.Images[1].Digest
	if want := []string{"r.example/a:1", "r.example/a@" + a, "r.example/b:1", "r.example/b@" + b}; !slices.Equal(names, want) {
		t.Errorf("names: %v, not %v", names, want)
	}
	store := filepath.Join(f.Store, metadata)
	must(t, os.MkdirAll(filepath.Dir(store), 0o755))
	must(t, os.WriteFile(store, []byte("images"), 0o644))
	if got := n.fill(t, f); len(got) != 0 || !slices.Equal(f.list(t), []string{foreign}) {
		t.Errorf("with a store: %v, left %v", got, f.list(t))
	}
}

// TestFillKeepsNoNodeDown: what cannot be written is left out.
func TestFillKeepsNoNodeDown(t *testing.T) {
	t.Run("a damaged copy", func(t *testing.T) {
		n, f := newNode(t), folderOf(t)
		manifest := n.lib.Shelf(n.header.Digest).ReadSmall(n.header.Metadata.Images[0].Digest)
		var m ocispec.Manifest
		must(t, json.Unmarshal(manifest, &m))
		path, err := n.lib.Blobs().Path(m.Layers[1].Digest.String())
		must(t, err)
		zero(t, path)
		if got := n.fill(t, f); !slices.Equal(got, []string{"r.example/b:1"}) || len(f.list(t)) != 1 {
			t.Errorf("written: %v, files %v", got, f.list(t))
		}
	})
	t.Run("an interrupted run", func(t *testing.T) {
		n, f := newNode(t), folderOf(t)
		n.fill(t, f)
		first := f.list(t)[0]
		must(t, os.Rename(first, first+unfinished))
		if got := n.fill(t, f); len(got) != 2 || len(f.list(t)) != 2 {
			t.Errorf("written: %v, files %v", got, f.list(t))
		}
	})
	t.Run("room for one of two images", func(t *testing.T) {
		n, f := newNode(t), folderOf(t)
		_, one, err := (&check{lib: n.lib}).blobsOf(heldImages(n)[0])
		must(t, err)
		must(t, os.MkdirAll(f.Images, 0o755))
		must(t, unix.Mount("refit", f.Images, "tmpfs", 0, fmt.Sprintf("size=%d", one*spaceOfImage*3/2)))
		defer unix.Unmount(f.Images, 0)
		if got := n.fill(t, f); !slices.Equal(got, []string{"r.example/a:1"}) || len(f.list(t)) != 1 {
			t.Errorf("written: %v, files %v, %d bytes", got, f.list(t), one)
		}
	})
	t.Run("nothing is wanted", func(t *testing.T) {
		n, f := newNode(t), folderOf(t)
		must(t, os.Remove(n.conf.Path("want.json")))
		if got := n.fill(t, f); len(got) != 0 {
			t.Errorf("written: %v", got)
		}
	})
	t.Run("a metadata file without content", func(t *testing.T) {
		n, f := newNode(t), folderOf(t)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(f.Store, metadata)), 0o755))
		must(t, os.WriteFile(filepath.Join(f.Store, metadata), nil, 0o644))
		if got := n.fill(t, f); len(got) != 2 {
			t.Errorf("written: %v", got)
		}
	})
}
