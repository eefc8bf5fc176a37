package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// programs are files of all platforms, each a small program with Go's build information.
func programs(t *testing.T) string {
	t.Helper()
	source, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/small\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Without tables for a debugger there is half as much to pack.
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", "small", ".")
	build.Dir, build.Env = source, append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	small, err := os.ReadFile(filepath.Join(source, "small"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"windows", "amd64"}} {
		if err := os.MkdirAll(filepath.Join(dir, p.dir()), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range p.programs() {
			if err := os.WriteFile(filepath.Join(dir, p.dir(), name), small, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func pack(t *testing.T, binaries, output, key string) error {
	t.Helper()
	c := command()
	c.SetArgs([]string{"--version", "1.2.3", "--binaries", binaries, "--output", output, "--key", key})
	c.SetErr(io.Discard)
	return c.Execute()
}

// TestTwice checks that the same programs give the same bytes, and that every file of the
// release is named with its checksum, which the key signed.
func TestTwice(t *testing.T) {
	t.Chdir("../..") // LICENSE and README.md
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	binaries, out := programs(t), t.TempDir()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := bundle.PrivateKeyPEM(priv)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "refit.key")
	if err := os.WriteFile(key, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	var sums [2]string
	for i, name := range []string{"a", "b"} {
		if err := pack(t, binaries, filepath.Join(out, name), key); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, name, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
	}
	if sums[0] != sums[1] {
		t.Errorf("two runs differ:\n%s\n%s", sums[0], sums[1])
	}
	sig, err := os.ReadFile(filepath.Join(out, "a", "SHA256SUMS.sig"))
	if err != nil || !ed25519.Verify(pub, []byte(sums[0]), sig) {
		t.Error("the signature does not fit:", err)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = filepath.Join(out, "a")
	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, text)
	}
	for _, name := range []string{"refit_1.2.3_linux_amd64.tar.gz", "refit_1.2.3_linux_arm64.tar.gz", "refit_1.2.3_darwin_arm64.tar.gz", "refit_1.2.3_windows_amd64.zip",
		"refit_1.2.3_linux_amd64.tar.gz.spdx.json", "refit-agent_1.2.3_amd64.deb", "refit-agent_1.2.3_arm64.deb", "refit-image_1.2.3.tar", "refit.yaml",
		"refit-providers_1.2.3_linux_amd64.tar.gz", "refit-providers_1.2.3_linux_arm64.tar.gz.spdx.json", "refit-providers-image_1.2.3.tar", "refit-1.2.3.tgz", "krew-refit.yaml"} {
		if !strings.Contains(sums[0], "  "+name+"\n") {
			t.Errorf("no %s in\n%s", name, sums[0])
		}
	}
	checkContents(t, filepath.Join(out, "a"))
}

func checkContents(t *testing.T, dir string) {
	t.Helper()
	c, err := loader.Load(filepath.Join(dir, "refit-1.2.3.tgz"))
	if err != nil || c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "1.2.3" || len(c.Templates) < 5 || c.Schema == nil {
		t.Errorf("the chart: %v", err)
	}
	names := tarNames(t, filepath.Join(dir, "refit_1.2.3_linux_arm64.tar.gz"))
	for _, want := range []string{"refit", "refit-render", "refit-agent", "refit-controller", "LICENSE", "completions/refit.bash", "man/refit-bundle-create.1"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	if slices.Contains(names, "refit-providers") {
		t.Error("the optional program is in the archive that everybody downloads")
	}
	if names := tarNames(t, filepath.Join(dir, "refit-providers_1.2.3_linux_arm64.tar.gz")); !slices.Equal(names, []string{"LICENSE", "README.md", "refit-providers", "ask-clouds-for-boot-images.md"}) {
		t.Errorf("the archive of refit-providers has %q", names)
	}
	z, err := zip.OpenReader(filepath.Join(dir, "refit_1.2.3_windows_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, want := range []string{"refit.exe", "refit-render.exe"} {
		if !slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == want }) {
			t.Errorf("no %s in the archive for Windows", want)
		}
	}
	var d spdxDocument
	text, err := os.ReadFile(filepath.Join(dir, "refit_1.2.3_linux_amd64.tar.gz.spdx.json"))
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil || !slices.ContainsFunc(d.Packages, func(p spdxPackage) bool { return p.Name == "stdlib" && p.Version != "" }) {
		t.Errorf("the SBOM does not name Go's standard library: %v", err)
	}
	deb, err := exec.Command("dpkg-deb", "--contents", filepath.Join(dir, "refit-agent_1.2.3_arm64.deb")).CombinedOutput()
	if err != nil || !bytes.Contains(deb, []byte("./usr/bin/refit-agent")) || !bytes.Contains(deb, []byte("root/root")) {
		t.Errorf("%v\n%s", err, deb)
	}
	for name, starts := range map[string]string{"refit-image": "/refit", "refit-providers-image": "/refit-providers"} {
		archive := "oci-archive:" + filepath.Join(dir, name+"_1.2.3.tar")
		image, err := exec.Command("skopeo", "inspect", "--raw", archive).CombinedOutput()
		if err != nil || !bytes.Contains(image, []byte(`"arm64"`)) || !bytes.Contains(image, []byte(`"amd64"`)) {
			t.Errorf("%s: %v\n%s", name, err, image)
		}
		config, err := exec.Command("skopeo", "inspect", "--override-arch", "arm64", "--config", archive).CombinedOutput()
		if err != nil || !bytes.Contains(config, []byte(`"`+starts+`"`)) {
			t.Errorf("%s: %v\n%s", name, err, config)
		}
	}
}

func tarNames(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1700000000 || h.Uname != "" || h.Uid != 0 {
			t.Errorf("%s is of %v and owned by %q", h.Name, h.ModTime, h.Uname)
		}
		names = append(names, h.Name)
	}
}

// TestLinked checks that a program's modules are named with their versions: those of this test.
func TestLinked(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	info.Deps = append(info.Deps, &debug.Module{Path: "example.com/here", Version: "v0.0.0", Replace: &debug.Module{Path: "../"}})
	all := linked(info, "1.2.3")
	i := slices.IndexFunc(all, func(p spdxPackage) bool { return p.Name == "github.com/spf13/cobra" })
	if i < 0 || all[i].Refs[0].Locator != "pkg:golang/github.com/spf13/cobra@"+all[i].Version || !strings.HasPrefix(all[i].Version, "v1.") {
		t.Errorf("cobra is at %d of %v", i, all)
	}
	if here := all[len(all)-1]; here.Name != "example.com/here" || here.Version != "v1.2.3" {
		t.Errorf("a module of this repository is %s %s", here.Name, here.Version)
	}
}

// TestRefused checks that a release of parts is none: the old directory stays.
func TestRefused(t *testing.T) {
	t.Chdir("../..")
	whole := programs(t)
	for name, c := range map[string]struct {
		date   string
		change func(dir string) error
		want   string
	}{
		"no date":                  {"", func(string) error { return nil }, "SOURCE_DATE_EPOCH"},
		"a program is missing":     {"1", func(dir string) error { return os.Remove(filepath.Join(dir, "linux-arm64", "refit-agent")) }, "make release builds it"},
		"the optional program too": {"1", func(dir string) error { return os.Remove(filepath.Join(dir, "linux-amd64", "refit-providers")) }, "make release builds it"},
		"a foreign file":           {"1", func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600) }, "no directory of a platform"},
		"no program of Go": {"1", func(dir string) error {
			file := filepath.Join(dir, "linux-amd64", "refit")
			return os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755)
		}, "SBOM of refit for linux/amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", c.date)
			binaries, out := t.TempDir(), filepath.Join(t.TempDir(), "dist")
			if err := os.CopyFS(binaries, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, "old"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.change(binaries); err != nil {
				t.Fatal(err)
			}
			if err := pack(t, binaries, out, ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(out, "old")); err != nil {
				t.Error("the old release is gone:", err)
			}
			if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
