package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/oci"
)

type blobs map[digest.Digest][]byte

func (b blobs) String() string { return "memory" }

func (b blobs) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	data, ok := b[d.Digest]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (b blobs) add(kind string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
	b[d.Digest] = data
	return d
}

// Any two layers give an error, or a tree with each path once and below its root.
func FuzzTree(f *testing.F) {
	layer := func(names ...string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range names {
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(layer("usr/lib/a", "usr/lib/b", "opt/c"), layer("usr/lib/.wh.a", "usr/.wh..wh..opq", "../escaped", "/etc/x"), uint8(0))
	f.Add([]byte("\x1f\x8b"), []byte("(\xb5/\xfd"), uint8(1))
	f.Add([]byte("(\xb5/\xfd\xa4\xff\xff\xff\xff"), []byte{}, uint8(2))
	f.Fuzz(func(t *testing.T, low, high []byte, how uint8) {
		ctx := context.Background()
		s := blobs{}
		kind := ocispec.MediaTypeImageLayer + []string{"", "+gzip", "+zstd"}[how%3]
		m, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: s.add(ocispec.MediaTypeImageConfig, []byte("{}")), Layers: []ocispec.Descriptor{s.add(kind, low), s.add(kind, high)}})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := Tree(ctx, oci.Root{Name: "r.example/a:1", Desc: s.add(ocispec.MediaTypeImageManifest, m), Store: s}, "linux/amd64", Extension)
		if err != nil {
			return
		}
		defer tree.Close()
		seen := map[string]bool{}
		for r := tar.NewReader(tree); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				return
			}
			name := strings.TrimSuffix(h.Name, "/")
			if seen[name] || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "../") || name == ".." {
				t.Fatalf("path %q (again: %t)", h.Name, seen[name])
			}
			seen[name] = true
		}
	})
}
