package bundlewriter

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// layerTar is a layer of one file with size reproducible bytes.
func layerTar(seed int64, size int) []byte {
	content := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(content)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("file%d", seed), Mode: 0o644, Size: int64(size)}); err != nil {
		panic(err)
	}
	if _, err := w.Write(content); err != nil {
		panic(err)
	}
	w.Close()
	return b.Bytes()
}

func gzipLayer(t testing.TB, seed int64, size int) v1.Layer {
	t.Helper()
	raw := layerTar(seed, size)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// image is an OCI image for a platform.
func image(t testing.TB, arch string, layers ...v1.Layer) v1.Image {
	t.Helper()
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return img
}

// index is a multi-platform image.
func index(images map[string]v1.Image) v1.ImageIndex {
	idx := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		if img, ok := images[arch]; ok {
			idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		}
	}
	return idx
}

type named struct {
	name string
	add  mutate.Appendable
}

// layoutOf writes images into an OCI layout under their names.
func layoutOf(t testing.TB, images ...named) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range images {
		opt := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": n.name})
		switch a := n.add.(type) {
		case v1.Image:
			err = p.AppendImage(a, opt)
		case v1.ImageIndex:
			err = p.AppendIndex(a, opt)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	pauseName = "registry.k8s.io/pause:3.10.2"
	appName   = "registry.example/team/app:v1"
)

// twoImages is a layout of an image with a shared and a zstd layer, and one of
// two platforms.
func twoImages(t testing.TB) string {
	t.Helper()
	shared := gzipLayer(t, 1, 40000)
	return layoutOf(t,
		named{pauseName, image(t, "amd64", shared)},
		named{appName, index(map[string]v1.Image{"amd64": image(t, "amd64", shared, zstdLayer(t, 2, 30000)), "arm64": image(t, "arm64", gzipLayer(t, 3, 500))})})
}

func zstdLayer(t testing.TB, seed int64, size int) v1.Layer {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return staticLayer{raw: enc.EncodeAll(layerTar(seed, size), nil), diff: layerTar(seed, size)}
}

// staticLayer is a layer of given bytes.
type staticLayer struct{ raw, diff []byte }

func hashOf(b []byte) (v1.Hash, error) { return v1.NewHash(bundle.DigestOf(b)) }

func (l staticLayer) Digest() (v1.Hash, error)            { return hashOf(l.raw) }
func (l staticLayer) DiffID() (v1.Hash, error)            { return hashOf(l.diff) }
func (l staticLayer) Size() (int64, error)                { return int64(len(l.raw)), nil }
func (l staticLayer) MediaType() (types.MediaType, error) { return types.OCILayerZStd, nil }
func (l staticLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.raw)), nil
}
func (l staticLayer) Uncompressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.diff)), nil
}

// create makes a bundle that must come out well, and verifies all of it.
func create(t testing.TB, o Options) (string, *bundle.Header) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.bundle")
	if o.Key == nil {
		o.Key = bundletest.Key(1)
	}
	if o.Version == "" {
		o.Version = "1.0.0"
	}
	h, err := Create(t.Context(), out, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, out, h.Digest)
	return out, h
}

func verify(t testing.TB, path, digest string) {
	t.Helper()
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Header().Digest != digest {
		t.Fatalf("%s is %s, want %s", path, f.Header().Digest, digest)
	}
	if len(f.Header().SignedBy(map[string]ed25519.PublicKey{"k": bundletest.Key(1).Public().(ed25519.PublicKey)})) != 1 {
		t.Fatal("not signed")
	}
	if err := bundlereader.Verify(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	for i, b := range f.Header().Metadata.Blobs { // the chunk table says what the digests say
		content, err := io.ReadAll(f.Blob(i))
		if err != nil || bundle.DigestOf(content) != b.Digest {
			t.Fatalf("blob %s: %v", b.Digest, err)
		}
	}
	if _, err := os.Stat(path + PartialSuffix); err == nil {
		t.Error("an unfinished output was left next to the finished one")
	}
}

func writeFile(t testing.TB, name, content string, mode os.FileMode) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return p
}
