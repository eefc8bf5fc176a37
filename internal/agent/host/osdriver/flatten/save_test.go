package flatten

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
)

// cutOff gives so many blobs and no more, and counts what is asked of it.
type cutOff struct {
	oci.Store
	left  int
	asked map[string]int
}

func (c *cutOff) Open(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if c.left--; c.left < 0 {
		return nil, errors.New("connection refused")
	}
	c.asked[d.Digest.String()]++
	return c.Store.Open(ctx, d)
}

// A registry that goes away half way leaves nothing that looks whole; the next try
// fetches only what is missing, and the layout is the image.
func TestSave(t *testing.T) {
	from := image(t, []tar.Header{f("usr/lib/modules/1/vmlinuz", "kernel")}, []tar.Header{f("etc/motd", "hello")})
	dir := filepath.Join(t.TempDir(), "saved")
	root, tries := from, 0
	fetched := map[string]int{}
	for ; ; tries++ {
		root.Store = &cutOff{from.Store, 5, fetched}
		if _, err := Save(t.Context(), root, "linux/amd64", dir); err == nil {
			break
		}
		if _, err := os.Stat(dir); err == nil || tries > 20 {
			t.Fatalf("try %d: half an image looks whole", tries)
		}
	}
	layers := 0
	for _, n := range fetched {
		if n == 1 {
			layers++
		}
	}
	if tries == 0 || layers != 2 {
		t.Fatalf("%d tries that were cut off, %d blobs were fetched once: %v", tries, layers, fetched)
	}
	got, err := oci.OpenSingle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(from.Desc.Digest, got.Desc.Digest); d != "" {
		t.Fatal(d)
	}
	if _, err := oci.Walk(t.Context(), got, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), oci.Root{Desc: root.Desc, Store: from.Store}, "linux/amd64", dir); err != nil {
		t.Fatal("again:", err)
	}
}
