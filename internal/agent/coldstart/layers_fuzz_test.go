package coldstart

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// For any layer, its index names paths below the layer only, and unpacking it writes
// nothing outside its directory.
func FuzzLayer(f *testing.F) {
	layer := func(headers ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = 3
			}
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("abc")); err != nil {
					f.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(layer(&tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, &tar.Header{Name: "etc/a", Typeflag: tar.TypeReg, Mode: 0o644}, &tar.Header{Name: "etc/.wh.b", Typeflag: tar.TypeReg}))
	f.Add(layer(&tar.Header{Name: "../escaped", Typeflag: tar.TypeReg, Mode: 0o644}))
	f.Add(layer(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, &tar.Header{Name: "l/escaped", Typeflag: tar.TypeReg, Mode: 0o644}))
	f.Add(layer(&tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx := context.Background()
		index, err := IndexLayer(ctx, bytes.NewReader(data))
		for _, e := range index {
			if strings.HasPrefix(e.Path, "/") || strings.HasPrefix(e.Path, "../") || e.Path == ".." || e.Path == "" {
				t.Fatalf("path %q", e.Path)
			}
		}
		if err != nil {
			return
		}
		parent := t.TempDir()
		dir, outside := filepath.Join(parent, "layer"), filepath.Join(parent, "outside")
		if err := os.WriteFile(outside, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = RestoreLayer(ctx, dir, bytes.NewReader(data), fmt.Sprintf("sha256:%x", sha256.Sum256(data)), false)
		es, err := os.ReadDir(parent)
		if err != nil || len(es) > 2 {
			t.Fatalf("outside the layer: %v, %v", es, err)
		}
		if b, err := os.ReadFile(outside); err != nil || string(b) != "kept" {
			t.Fatalf("the file outside it: %q, %v", b, err)
		}
	})
}
