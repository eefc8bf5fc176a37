package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
)

// baseBytes is the size of the base, in bytes.
const baseBytes = 500 << 20

// base makes an OCI layout with one image of one layer of 500 MB.
func base(b *testing.B) oci.Root {
	b.Helper()
	dir := b.TempDir()
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		b.Fatal(err)
	}
	put := func(mediaType string, v any) ocispec.Descriptor {
		raw, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		d := digest.FromBytes(raw)
		if err := os.WriteFile(filepath.Join(blobs, d.Encoded()), raw, 0o600); err != nil {
			b.Fatal(err)
		}
		return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(raw))}
	}
	f, err := os.Create(filepath.Join(dir, "layer"))
	if err != nil {
		b.Fatal(err)
	}
	sum := sha256.New()
	piece := make([]byte, 1<<20)
	for i := range baseBytes >> 20 {
		copy(piece, fmt.Sprint("piece ", i))
		if _, err := io.MultiWriter(f, sum).Write(piece); err != nil {
			b.Fatal(err)
		}
	}
	name := hex.EncodeToString(sum.Sum(nil))
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(f.Name(), filepath.Join(blobs, name)); err != nil {
		b.Fatal(err)
	}
	layer := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.NewDigestFromEncoded(digest.SHA256, name), Size: baseBytes}
	config := put(ocispec.MediaTypeImageConfig, map[string]any{"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest.String()}}})
	m := put(ocispec.MediaTypeImageManifest, map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": config, "layers": []ocispec.Descriptor{layer}})
	m.Annotations = map[string]string{ocispec.AnnotationRefName: "os.example/base:1"}
	index, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{m}})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600); err != nil {
		b.Fatal(err)
	}
	roots, err := oci.OpenLayout(dir, "")
	if err != nil {
		b.Fatal(err)
	}
	return roots[0]
}

// One kernel argument more on a base of 500 MB, into a layout of its own: what it
// costs, and "read", the limit that a builder which reads the base has.
func BenchmarkAppendTo500MB(b *testing.B) {
	root := base(b)
	out := b.TempDir()
	b.Run("append", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			placed, vs := osimage.PlaceConfig(model.NodeConfig{OS: &model.ConfigOS{KernelArguments: []string{"quiet", fmt.Sprint("n=", i)}}})
			if len(vs) > 0 {
				b.Fatal(vs)
			}
			img, err := imagebuild.Append(b.Context(), imagebuild.AppendRequest{Base: root, Entries: placed.Entries})
			if err != nil {
				b.Fatal(err)
			}
			copied, err := img.WriteLayout(b.Context(), filepath.Join(out, fmt.Sprint(i)), "os.example/edge:1")
			if err != nil || copied != 0 {
				b.Fatal("bytes of the base were copied: ", copied, err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		img, err := imagebuild.Append(b.Context(), imagebuild.AppendRequest{Base: root})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			r, err := root.Store.Open(b.Context(), img.Kept[0])
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(sha256.New(), r); err != nil {
				b.Fatal(err)
			}
			_ = r.Close()
		}
	})
}
