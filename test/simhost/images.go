package simhost

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Files of an image by path; a value that begins with "-> " is a symbolic link.
type Files map[string]string

// Base are the files of an OS that this harness boots; version is in its kernel and in
// /usr/share/version.
func Base(version string) Files {
	out := Files{"usr/lib/modules/6.1-" + version + "/vmlinuz": strings.Repeat("kernel "+version+"\n", 20000),
		"usr/share/version": version + "\n", "usr/lib/os-release": "ID=sim\nVERSION_ID=" + version + "\n", "etc/default": "default " + version + "\n",
		"bin": "-> usr/bin", "sbin": "-> usr/sbin", "lib": "-> usr/lib", "lib64": "-> usr/lib64"}
	return out
}

// Node is Base for a node of a lab: what its folders are, whose OS it says it is, and
// the bootc that moves it (Lookalike makes one).
func Node(t testing.TB, version, bootc string) Files {
	t.Helper()
	program, err := os.ReadFile(bootc)
	if err != nil {
		t.Fatal(err)
	}
	out := Base(version).With(Files{"usr/bin/bootc": string(program),
		"usr/lib/os-release": "ID=sim\nVERSION_ID=" + version + "\nPRETTY_NAME=\"Simulated OS " + version + "\"\n", "etc/os-release": "-> ../usr/lib/os-release"})
	delete(out, "etc/default") // a folder on the machine whose programs the node has
	for from, to := range map[string]string{"opt": "opt", "root": "roothome", "home": "home", "srv": "srv", "mnt": "mnt"} {
		out[from] = "-> var/" + to
	}
	return out
}

// Lookalike builds the bootc of these tests into a folder, from any package of this
// module, and gives its path.
func Lookalike(dir string) (string, error) {
	to := filepath.Join(dir, "bootc")
	c := exec.Command("go", "build", "-o", to, "github.com/refit-dev/refit/test/simhost/bootc")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return to, nil
}

// With adds files.
func (f Files) With(more Files) Files {
	out := Files{}
	for _, one := range []Files{f, more} {
		for k, v := range one {
			out[k] = v
		}
	}
	return out
}

// Image makes an image with one layer for each set of files.
func Image(t testing.TB, layers ...Files) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range layers {
		b := files.Tar(t)
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// Tar of the files, sorted, with the folders above them.
func (f Files) Tar(t testing.TB) []byte {
	t.Helper()
	names := make([]string, 0, len(f))
	for n := range f {
		names = append(names, n)
	}
	sort.Strings(names)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	for _, n := range names {
		for _, dir := range parents(n) {
			if !made[dir] {
				made[dir] = true
				put(t, w, &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, "")
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o644, Size: int64(len(f[n]))}
		if strings.HasPrefix(n, "usr/bin/") || strings.HasPrefix(n, "usr/lib64/") { // programs, and who loads them
			h.Mode = 0o755
		}
		if to, ok := strings.CutPrefix(f[n], "-> "); ok {
			put(t, w, &tar.Header{Typeflag: tar.TypeSymlink, Name: n, Linkname: to, Mode: 0o777}, "")
			continue
		}
		put(t, w, h, f[n])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parents(name string) []string {
	var out []string
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		out = append([]string{d}, out...)
	}
	return out
}

func put(t testing.TB, w *tar.Writer, h *tar.Header, text string) {
	t.Helper()
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// Layout writes an image into a folder, as an OCI layout.
func Layout(t testing.TB, img v1.Image, dir string) (digest string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}
