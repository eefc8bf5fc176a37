package imagebuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// shell is a layer with a shell, and a program that plays rpm.
func shell(t *testing.T) v1.Image {
	t.Helper()
	files := map[string]string{"usr/bin/rpm": "#!/bin/sh\necho 'openssl 3.0.2'\necho 'kernel 6.2'\n"}
	dash, err := exec.LookPath("dash")
	if err != nil {
		t.Skip("no dash")
	}
	libs, err := exec.Command("ldd", dash).Output()
	if err != nil {
		t.Skip("ldd: ", err)
	}
	files["bin/sh"] = read(t, dash)
	for _, path := range regexp.MustCompile(`/[^ ]+\.so[^ ]*`).FindAllString(string(libs), -1) {
		files[strings.TrimPrefix(path, "/")] = read(t, path)
	}
	return imageOf(t, files)
}

func imageOf(t *testing.T, files map[string]string) v1.Image {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for path, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}})
	if err == nil {
		img, err = mutate.AppendLayers(img, static.NewLayer(b.Bytes(), types.OCIUncompressedLayer))
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// bench is a folder that the script takes for the pod's root.
type bench struct {
	t   *testing.T
	dir string
	reg *registrytest.Server
}

func (b *bench) write(path, text string) {
	b.t.Helper()
	path = filepath.Join(b.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) push(repository string, img v1.Image) string {
	b.t.Helper()
	ref, err := name.ParseReference(b.reg.Ref(repository + ":1"))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		b.t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		b.t.Fatal(err)
	}
	return b.reg.Ref(repository + "@" + d.String())
}

// run the script; what it says last is what the kubelet would keep.
func (b *bench) run(env ...string) (code int, said, log string) {
	b.t.Helper()
	text := strings.NewReplacer("/run/refit-out", "/run/refit-out", "/run/refit", b.dir+"/run/refit", " /refit", " "+b.dir+"/refit", "=/refit", "="+b.dir+"/refit", "/build", b.dir+"/build", "/dev/termination-log", b.dir+"/said").Replace(script)
	for _, old := range []string{"said", "build"} { // every pod has its own
		if err := os.RemoveAll(filepath.Join(b.dir, old)); err != nil {
			b.t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", text)
	cmd.Dir = b.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TARGET=" + b.reg.Ref("os/edge:one"), "SECRETS=entitlement", "TLS_VERIFY=false"}, env...)
	out, _ := cmd.CombinedOutput()
	last, _ := os.ReadFile(filepath.Join(b.dir, "said"))
	return cmd.ProcessState.ExitCode(), string(last), string(out)
}

// The script with a real buildah and a real registry: RUN, files next to the
// Containerfile, a secret, the list of packages; and whose fault is whose. As root of this machine: the pods are shown in a lab.
func TestScriptBuilds(t *testing.T) {
	if _, err := exec.LookPath("buildah"); err != nil || os.Getuid() != 0 {
		t.Skip("it takes buildah and root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "refit-build-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{t: t, dir: dir, reg: registrytest.Start(t)}
	base := b.push("os/base", shell(t))
	containerfile := func(text string) {
		b.write("refit/Containerfile", "FROM "+base+" AS configs\n\n"+text+listed)
	}
	b.write("run/refit/secrets/entitlement/key.pem", "hush")
	b.write("run/refit/context/..data/motd", "hello\n")
	containerfile("FROM configs AS final\nCOPY motd /etc/motd\nRUN --mount=type=secret,id=entitlement-key.pem read -r k < /run/secrets/entitlement-key.pem || true; test \"$k\" = hush && echo ran > /etc/ran\n")
	code, last, log := b.run()
	m := resultMessage.FindStringSubmatch(strings.TrimSpace(last))
	if code != 0 || m == nil || m[2] == "" || m[3] == "" {
		t.Fatalf("%d %q\n%s", code, last, log)
	}
	files := b.files("os/edge@" + m[1])
	if files["etc/motd"] != "hello\n" || files["etc/ran"] != "ran\n" {
		t.Errorf("%q %q", files["etc/motd"], files["etc/ran"])
	}
	for path, text := range files {
		if strings.Contains(text, "hush") && !strings.Contains(path, "bin/") {
			t.Errorf("the secret is in %s of the image", path)
		}
	}
	if got := b.files("os/edge@" + m[2])["packages"]; got != "openssl 3.0.2\nkernel 6.2\n" {
		t.Errorf("packages %q", got)
	}
	// The same again is the same image.
	if _, again, _ := b.run(); !strings.HasPrefix(again, m[1]) {
		t.Errorf("%q, first %q", again, m[1])
	}
	// What the user asked for and cannot be.
	containerfile("FROM configs AS final\nRUN echo speaking; exit 3\n")
	if code, _, log := b.run(); code != ExitUser || !strings.Contains(log, "speaking") {
		t.Errorf("%d %s", code, log)
	}
	// A registry that has no such base is no fault of the Containerfile's text.
	b.write("refit/Containerfile", "FROM "+b.reg.Ref("os/gone@sha256:"+strings.Repeat("0", 64))+" AS configs\n"+listed)
	if code, _, log := b.run(); code != 66 || !strings.Contains(log, "cannot be pulled") {
		t.Errorf("%d %s", code, log)
	}
	// The context is an image.
	if err := os.RemoveAll(filepath.Join(dir, "run/refit/context")); err != nil {
		t.Fatal(err)
	}
	context := b.push("os/context", imageOf(t, map[string]string{"deep/motd": "from an image\n"}))
	containerfile("FROM configs AS final\nCOPY deep/motd /etc/motd\n")
	code, last, log = b.run("CONTEXT_IMAGE=" + context)
	m = resultMessage.FindStringSubmatch(strings.TrimSpace(last))
	if code != 0 || m == nil {
		t.Fatalf("%d %q\n%s", code, last, log)
	}
	if got := b.files("os/edge@" + m[1])["etc/motd"]; got != "from an image\n" {
		t.Errorf("%q", got)
	}
}

// listed is the end of every Containerfile as osimage.Render makes it: shortened to the
// part that this base has.
const listed = "RUN { if command -v rpm >/dev/null; then rpm -qa; fi; } > /run/refit-out/packages 2>/dev/null || true\n"

// files of an image, the upper layers' over the lower ones'.
func (b *bench) files(ref string) map[string]string {
	b.t.Helper()
	r, err := name.ParseReference(b.reg.Ref(ref))
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := remote.Image(r)
	if err != nil {
		b.t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]string{}
	for _, l := range layers {
		blob, err := l.Compressed()
		if err != nil {
			b.t.Fatal(err)
		}
		var in io.Reader = blob
		if kind, _ := l.MediaType(); strings.HasSuffix(string(kind), "gzip") {
			if in, err = gzip.NewReader(blob); err != nil {
				b.t.Fatal(err)
			}
		}
		for r := tar.NewReader(in); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				b.t.Fatal(err)
			}
			out[strings.TrimPrefix(strings.TrimPrefix(h.Name, "./"), "/")] = string(data)
		}
		_ = blob.Close()
	}
	return out
}
