package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layers are a store in memory.
type layers map[digest.Digest][]byte

func (layers) String() string { return "memory" }

func (l layers) Open(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l[d.Digest])), nil
}

func packed(t *testing.T, window int, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A layer that unpacks to more than an OS has, or needs more memory than a node gives,
// ends with the reason.
func TestHostileLayersAreRefused(t *testing.T) {
	file := func(size int64) []byte {
		return archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "usr/file", Mode: 0o644, Size: size})
	}
	wide := packed(t, zstd.MaxWindowSize, bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	for name, tc := range map[string]struct {
		content [][]byte
		most    int64
		want    string
	}{
		"as large as it may be":    {[][]byte{packed(t, 1<<20, file(4096))}, 1 << 20, ""},
		"a bomb":                   {[][]byte{packed(t, 1<<20, file(8<<20))}, 1 << 20, errTooLarge.Error()},
		"many that are one":        {[][]byte{packed(t, 1<<20, file(700<<10)), packed(t, 1<<20, file(600<<10))}, 1 << 20, errTooLarge.Error()},
		"padding after the end":    {[][]byte{packed(t, 1<<20, append(file(10), make([]byte, 2<<20)...))}, 1 << 20, errTooLarge.Error()},
		"a window of 512 MiB":      {[][]byte{wide}, maxUnpacked, "window size"},
		"a path of 5000 bytes":     {[][]byte{packed(t, 1<<20, archive(t, tar.Header{Typeflag: tar.TypeDir, Name: strings.Repeat("a/", 2500), Mode: 0o755}))}, 1 << 20, "more than the 4096"},
		"the target of a link too": {[][]byte{packed(t, 1<<20, archive(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/l", Linkname: strings.Repeat("a/", 2500)}))}, 1 << 20, "more than the 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			store, f := layers{}, &flat{ctx: t.Context(), form: Extension, most: tc.most}
			f.store = store
			for _, c := range tc.content {
				d := digest.FromBytes(c)
				store[d] = c
				f.layers = append(f.layers, ocispec.Descriptor{MediaType: "application/vnd.oci.image.layer.v1.tar+zstd", Digest: d, Size: int64(len(c))})
			}
			err := f.choose()
			if err == nil {
				err = f.write(tar.NewWriter(io.Discard))
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A sparse file says in a few bytes that it has many.
func TestSizesOfFilesAreSummed(t *testing.T) {
	f := &flat{most: 1 << 40}
	for i, want := range []error{nil, errTooLarge, nil} {
		if err := f.reserveBytes("usr/x", []int64{1 << 39, 1<<63 - 1, 1 << 39}[i]); !errors.Is(err, want) {
			t.Errorf("file %d: %v", i, err)
		}
	}
}
