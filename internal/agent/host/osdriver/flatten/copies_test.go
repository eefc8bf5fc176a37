package flatten

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
)

func put(t *testing.T, dir BlobDir, data string) ocispec.Descriptor {
	t.Helper()
	d := digest.FromString(data)
	if err := os.WriteFile(filepath.Join(string(dir), d.Encoded()), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return ocispec.Descriptor{Digest: d, Size: int64(len(data))}
}

// The store has the blobs of an image of a bundle, or of one assembled on the site. The host gets
// them as a complete layout or not at all. A corrupt blob is an error.
func TestAnImageOfTheAgentsCopy(t *testing.T) {
	dir := BlobDir(t.TempDir())
	layer := put(t, dir, "layer")
	config := put(t, dir, `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["`+layer.Digest.String()+`"]}}`)
	manifest := put(t, dir, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
		ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageConfig, config.Digest, config.Size, ocispec.MediaTypeImageLayer, layer.Digest, layer.Size))
	index := put(t, dir, fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":%q,"digest":%q,"size":%d,"platform":{"os":"linux","architecture":"amd64"}}]}`,
		ocispec.MediaTypeImageManifest, manifest.Digest, manifest.Size))
	for name, top := range map[string]ocispec.Descriptor{"a manifest": manifest, "an index that does not say its type": index} {
		root, err := dir.Root("refit.invalid/os/edge", top.Digest.Encoded())
		if err != nil {
			t.Fatal(name, err)
		}
		to := filepath.Join(t.TempDir(), "layout")
		got, err := Save(t.Context(), root, "linux/amd64", to)
		if err != nil || got != manifest.Digest.String() {
			t.Fatal(name, got, err)
		}
		only, err := oci.OpenSingle(to)
		if err != nil || only.Desc.Digest != manifest.Digest {
			t.Fatal(name, err)
		}
		r, err := only.Store.Open(t.Context(), layer)
		if err != nil {
			t.Fatal(name, err)
		}
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(data, []byte("layer")) {
			t.Error(name, err)
		}
	}
	root, err := dir.Root("x", manifest.Digest.Encoded())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(string) error
		gone  bool
	}{
		"a blob that has rotted":  {func(p string) error { return os.WriteFile(p, []byte("l4yer"), 0o600) }, false},
		"a blob that is not here": {os.Remove, true},
	} {
		if err := c.spoil(filepath.Join(string(dir), layer.Digest.Encoded())); err != nil {
			t.Fatal(err)
		}
		if _, err := Save(t.Context(), root, "linux/amd64", filepath.Join(t.TempDir(), "l")); err == nil || errors.Is(err, fs.ErrNotExist) != c.gone {
			t.Errorf("%s: %v", name, err)
		}
		put(t, dir, "layer")
	}
	for _, hex := range []string{strings.Repeat("0", 64), "../../etc/passwd", ""} {
		if _, err := dir.Root("x", hex); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", hex, err)
		}
	}
}
