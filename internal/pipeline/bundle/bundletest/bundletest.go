// Package bundletest makes small bundles in memory for tests.
//
// Promise: the same Spec gives the same bytes; what it makes is valid unless
// the test changes it. Inputs: a Spec. Output: the bytes of a bundle file.
// Callers: tests of bundle, bundlereader and of the stages that take bundles.
//
//	file := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
package bundletest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Spec says what a bundle holds. Empty fields have small defaults.
type Spec struct {
	Name, Version, KubernetesVersion, MinRefit string
	ChunkSize                                  int64
	Images                                     []Image
	Payloads                                   []Payload
}

// Image is a single-platform image with uncompressed layers.
type Image struct {
	Name, Group string
	Layers      [][]byte
}

// Payload is a file for nodes.
type Payload struct {
	Name, Version, Platform string
	Content                 []byte
}

// Tiny is a bundle of every kind of part: two images that share a layer of
// three chunks, an empty layer, a payload.
func Tiny() Spec {
	shared := bytes.Repeat([]byte("shared layer "), 90) // 1170 bytes: three chunks of 512
	return Spec{
		Name: "tiny", Version: "1.2.3", KubernetesVersion: "v1.36.3", ChunkSize: bundle.MinChunkSize,
		Images: []Image{
			{Name: "registry.example/app:1", Group: bundle.GroupWorkload, Layers: [][]byte{shared, {}}},
			{Name: "registry.k8s.io/pause:3.10.2", Group: bundle.GroupNode, Layers: [][]byte{shared, []byte("pause")}},
		},
		Payloads: []Payload{{Name: bundle.PayloadKubelet, Version: "v1.36.3", Platform: "linux/amd64", Content: []byte("#!kubelet")}},
	}
}

// Key is a deterministic signing key.
func Key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// Parts are the pieces of a bundle before they are put together, so that a
// test can spoil one.
type Parts struct {
	Meta  bundle.Metadata
	Table []byte
	// Blobs are the contents of Meta.Blobs.
	Blobs [][]byte
}

type builder struct {
	parts Parts
	index map[string]int
}

func (b *builder) add(content []byte) int {
	d := bundle.DigestOf(content)
	if i, ok := b.index[d]; ok {
		return i
	}
	i := len(b.parts.Blobs)
	b.index[d] = i
	b.parts.Blobs = append(b.parts.Blobs, content)
	b.parts.Meta.Blobs = append(b.parts.Meta.Blobs, bundle.Blob{Digest: d, Size: int64(len(content))})
	return i
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Make lays out the parts of a bundle.
func Make(t testing.TB, s Spec) Parts {
	t.Helper()
	if s.ChunkSize == 0 {
		s.ChunkSize = bundle.MinChunkSize
	}
	b := &builder{index: map[string]int{}}
	b.parts.Meta = bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: or(s.MinRefit, "0.1.0"), Name: or(s.Name, "test"), Version: or(s.Version, "1.0.0"),
		KubernetesVersion: s.KubernetesVersion, Platforms: []string{"linux/amd64"}, Images: []bundle.Image{}, Blobs: []bundle.Blob{}, ChunkSize: s.ChunkSize}
	for _, img := range s.Images {
		b.image(t, img)
	}
	for _, p := range s.Payloads {
		i := b.add(p.Content)
		b.parts.Meta.Payloads = append(b.parts.Meta.Payloads, bundle.Payload{Name: p.Name, Version: p.Version, Platform: p.Platform,
			Digest: b.parts.Meta.Blobs[i].Digest, Size: int64(len(p.Content)), Mode: 0o755, Blob: i})
	}
	b.parts.Meta.Sort()
	b.parts.Table = Table(b.parts.Blobs, s.ChunkSize)
	return b.parts
}

func (b *builder) image(t testing.TB, img Image) {
	t.Helper()
	out := bundle.Image{Name: img.Name, Group: or(img.Group, bundle.GroupWorkload), MediaType: bundle.MediaTypeManifest}
	diffIDs := []string{}
	layers := []map[string]any{}
	for _, l := range img.Layers {
		d := bundle.DigestOf(l)
		diffIDs = append(diffIDs, d)
		layers = append(layers, map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": d, "size": len(l)})
	}
	config := marshal(t, map[string]any{"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": diffIDs}})
	manifest := marshal(t, map[string]any{"schemaVersion": 2, "mediaType": bundle.MediaTypeManifest,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": bundle.DigestOf(config), "size": len(config)}, "layers": layers})
	used := map[int]bool{}
	for _, content := range append([][]byte{manifest, config}, img.Layers...) {
		i := b.add(content)
		if used[i] {
			continue
		}
		used[i] = true
		out.Blobs = append(out.Blobs, i)
		out.Size += int64(len(content))
	}
	for _, l := range img.Layers {
		b.parts.Meta.Blobs[b.index[bundle.DigestOf(l)]].UnpackedSize = int64(len(l))
	}
	for i := range used {
		out.UnpackedSize += b.parts.Meta.Blobs[i].UnpackedSize
	}
	out.Digest = bundle.DigestOf(manifest)
	b.parts.Meta.Images = append(b.parts.Meta.Images, out)
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Table is the chunk table of blobs.
func Table(blobs [][]byte, chunkSize int64) []byte {
	var table []byte
	for _, b := range blobs {
		for len(b) > 0 {
			n := min(chunkSize, int64(len(b)))
			sum := sha256.Sum256(b[:n])
			table = append(table, sum[:]...)
			b = b[n:]
		}
	}
	return table
}

// Header puts the header of the parts together, unsigned and unchecked.
func (p Parts) Header(t testing.TB) []byte {
	t.Helper()
	raw, err := bundle.Marshal(&p.Meta, p.Table)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// File puts a header and the parts' blobs together.
func (p Parts) File(header []byte) []byte {
	out := bytes.Clone(header)
	for i, b := range p.Blobs {
		h := bundle.TarHeader(bundle.BlobPath(p.Meta.Blobs[i].Digest), int64(len(b)))
		out = append(out, h[:]...)
		out = append(out, b...)
		out = append(out, make([]byte, bundle.PaddedSize(int64(len(b)))-int64(len(b)))...)
	}
	return append(out, make([]byte, bundle.EndSize)...)
}

// Bytes is a whole bundle, signed by keys.
func Bytes(t testing.TB, s Spec, keys ...ed25519.PrivateKey) []byte {
	t.Helper()
	p := Make(t, s)
	h, err := bundle.ParseHeader(p.Header(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		env, err := bundle.Sign(k, h.Digest, h.Metadata.Name, h.Metadata.Version)
		if err != nil {
			t.Fatal(err)
		}
		if h, err = h.WithSignature(env); err != nil {
			t.Fatal(err)
		}
	}
	return p.File(h.Raw)
}
