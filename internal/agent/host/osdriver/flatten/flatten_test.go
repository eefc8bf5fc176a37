package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/refit-dev/refit/internal/oci"
)

func f(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Linkname: text}
}
func d(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
}
func hard(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

// image writes layers into a layout; a header of a file has its text as Linkname.
func image(t *testing.T, layers ...[]tar.Header) oci.Root {
	t.Helper()
	img := empty.Image
	for _, l := range layers {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range l {
			text := ""
			if h.Typeflag == tar.TypeReg {
				text, h.Linkname = h.Linkname, ""
				h.Size = int64(len(text))
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, layer); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "image")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	root, err := oci.OpenSingle(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// tree reads what comes out, one line for an entry.
func tree(root oci.Root, form Form) ([]string, error) {
	r, err := Tree(context.Background(), root, "linux/amd64", form)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []string
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		b, err := io.ReadAll(t)
		if err != nil {
			return out, err
		}
		line := h.Name
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		if len(b) > 0 {
			line += " = " + string(b)
		}
		out = append(out, line)
	}
}

var kernel = f("usr/lib/modules/6.1/vmlinuz", "k")

// skeletonLines are what every bootable tree has.
var skeletonLines = []string{"boot/", "dev/", "ostree -> sysroot/ostree", "proc/", "run/", "sys/", "sysroot/", "tmp/", "usr/etc/", "usr/lib/modules/6.1/vmlinuz = k", "var/"}

func TestTree(t *testing.T) {
	for name, c := range map[string]struct {
		layers [][]tar.Header
		want   []string // in addition to the skeleton
	}{
		"a higher layer replaces a file":                          {[][]tar.Header{{kernel, f("usr/a", "1")}, {f("usr/a", "2")}}, []string{"usr/a = 2"}},
		"a file that was taken away is gone":                      {[][]tar.Header{{kernel, f("usr/a", "1"), f("usr/b", "1")}, {f("usr/.wh.a", "")}}, []string{"usr/b = 1"}},
		"a folder that was taken away takes all with it":          {[][]tar.Header{{kernel, f("usr/x/a", "1"), f("usr/y", "1")}, {f("usr/.wh.x", "")}}, []string{"usr/y = 1"}},
		"a folder that was replaced has only the new":             {[][]tar.Header{{kernel, d("usr/x"), f("usr/x/a", "1")}, {d("usr/x"), f("usr/x/.wh..wh..opq", ""), f("usr/x/b", "2")}}, []string{"usr/x/", "usr/x/b = 2"}},
		"a file in the place of a folder":                         {[][]tar.Header{{kernel, d("usr/x"), f("usr/x/a", "1")}, {f("usr/x", "file")}}, []string{"usr/x = file"}},
		"what is taken away and made again is the new one":        {[][]tar.Header{{kernel, f("usr/a", "1")}, {f("usr/.wh.a", "")}, {f("usr/a", "3")}}, []string{"usr/a = 3"}},
		"a hard link to a lower layer comes after it":             {[][]tar.Header{{kernel, f("etc/a", "1")}, {hard("usr/link", "etc/a")}}, []string{"usr/etc/a = 1", "usr/link -> usr/etc/a"}},
		"/etc is the default, what is the machine's is not there": {[][]tar.Header{{kernel, f("./etc/a", "1"), f("var/lib/x", "1"), f("run/x", "1"), f("boot/x", "1"), f("usr/etc/hidden", "1"), {Typeflag: tar.TypeChar, Name: "usr/null"}}}, []string{"usr/etc/a = 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tree(image(t, c.layers...), Whole)
			if err != nil {
				t.Fatal(err)
			}
			want := append(append([]string{}, skeletonLines...), c.want...)
			sort.Strings(got)
			sort.Strings(want)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// An extension is /usr and /opt alone, and needs no kernel.
func TestExtension(t *testing.T) {
	got, err := tree(image(t, []tar.Header{f("usr/bin/x", "1"), f("etc/x", "1"), f("opt/y", "2"), f("var/z", "3")}), Extension)
	if d := cmp.Diff([]string{"usr/bin/x = 1", "opt/y = 2"}, got); d != "" || err != nil {
		t.Fatal(err, d)
	}
}

// What no machine could boot is refused before anything is written.
func TestNotBootable(t *testing.T) {
	for name, layers := range map[string][]tar.Header{"no kernel": {f("usr/a", "1")}, "two kernels": {kernel, f("usr/lib/modules/6.2/vmlinuz", "k")}} {
		if _, err := tree(image(t, layers), Whole); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := Tree(t.Context(), image(t, []tar.Header{kernel}), "linux/riscv64", Whole); err != nil {
		t.Errorf("an image without platforms: %v", err)
	}
}

// A single manifest is compared with the node as an index is. A configuration that names no machine
// passes.
func TestPlatform(t *testing.T) {
	for name, c := range map[string]struct {
		os, architecture string
		refused          bool
	}{
		"the node's":              {"linux", "amd64", false},
		"another architecture":    {"linux", "arm64", true},
		"another system":          {"windows", "amd64", true},
		"an architecture alone":   {"", "arm64", true},
		"no architecture":         {"linux", "", false},
		"nothing, as in TestTree": {"", "", false},
	} {
		img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: c.os, Architecture: c.architecture, RootFS: v1.RootFS{Type: "layers"}})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "image")
		p, err := layout.Write(dir, empty.Index)
		if err == nil {
			err = p.AppendImage(img)
		}
		if err != nil {
			t.Fatal(err)
		}
		root, err := oci.OpenSingle(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Digests(t.Context(), root, "linux/amd64")
		if errors.Is(err, ErrPlatform) != c.refused || !c.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Save(t.Context(), root, "linux/amd64", filepath.Join(t.TempDir(), "x")); errors.Is(err, ErrPlatform) != c.refused {
			t.Errorf("%s: saved: %v", name, err)
		}
		for _, form := range []Form{Whole, Extension} {
			if _, err := tree(root, form); errors.Is(err, ErrPlatform) != c.refused {
				t.Errorf("%s: unpacked: %v", name, err)
			}
		}
	}
}

// A corrupt layer is an error, even if a part of it was written.
func TestRotten(t *testing.T) {
	root := image(t, []tar.Header{kernel, f("usr/a", "1")})
	m, err := manifest(t.Context(), root, "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(fmt.Sprint(root.Store), "blobs/sha256", m.Layers[0].Digest.Encoded())
	other := image(t, []tar.Header{kernel, f("usr/a", "2")})
	om, err := manifest(t.Context(), other, "linux/amd64")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(fmt.Sprint(other.Store), "blobs/sha256", om.Layers[0].Digest.Encoded()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blob, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tree(root, Whole); err == nil {
		t.Fatal("another layer is taken for it")
	}
}
