package boot

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/agent/install"
	"github.com/refit-dev/refit/internal/oci"
)

const (
	platform   = "linux/amd64"
	repository = "registry.example/machine"
	// agentProgram is where refit's units have the agent.
	agentProgram = "usr/local/bin/refit-agent"
)

// entry of a layer; a whiteout has neither.
type entry struct {
	link string
	text []byte
	mode int64
}

// layer makes an uncompressed layer: nothing is packed in vain, and the machine unpacks slowly.
func layer(t testing.TB, files map[string]entry) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, e := range files {
		h := &tar.Header{Name: name, Mode: e.mode, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return fileLayer(t, file)
}

// tarLayer is an uncompressed layer in a file.
type tarLayer struct {
	file string
	hash v1.Hash
	size int64
}

func fileLayer(t testing.TB, file string) v1.Layer {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		t.Fatal(err)
	}
	return &tarLayer{file, v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}, n}
}

func (l *tarLayer) Digest() (v1.Hash, error)             { return l.hash, nil }
func (l *tarLayer) DiffID() (v1.Hash, error)             { return l.hash, nil }
func (l *tarLayer) Size() (int64, error)                 { return l.size, nil }
func (l *tarLayer) MediaType() (types.MediaType, error)  { return types.OCIUncompressedLayer, nil }
func (l *tarLayer) Compressed() (io.ReadCloser, error)   { return os.Open(l.file) }
func (l *tarLayer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.file) }

// agentFiles are what `refit-agent install` writes, with this test's program as the agent.
func agentFiles(t testing.TB) map[string]entry {
	t.Helper()
	root := t.TempDir()
	if _, err := install.Install(t.Context(), install.Options{Places: install.Places{Root: root}, NoStart: true, Printf: t.Logf}); err != nil {
		t.Fatal(err)
	}
	out := map[string]entry{"etc/systemd/system/multi-user.target.wants/" + install.Unit: {link: "/etc/systemd/system/" + install.Unit, mode: 0o777}}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		e := entry{text: text, mode: 0o644}
		if name, _ := filepath.Rel(root, path); name == agentProgram {
			e.mode = 0o755
			out[name] = e
		} else {
			e.text = bytes.ReplaceAll(text, []byte(root), nil)
			out[name] = e
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out[agentProgram].text) == 0 {
		t.Fatal("the agent was not installed at /" + agentProgram)
	}
	return out
}

// image writes an image of layers into a directory, and returns its digest.
func image(t testing.TB, dir string, layers ...v1.Layer) string {
	t.Helper()
	img, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: types.OCIUncompressedLayer}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// site has the disk of the machine and that with images.
type site struct {
	cache, work string
	disk, data  string
	// images by name: repository@digest.
	images map[string]string
}

// workDir is where the disks are. With REFIT_BOOT_SITE they stay in that directory, and the next run
// with it begins with them: a case alone takes minutes less. Their agent is that of the first run.
func workDir(t testing.TB) string {
	if dir := os.Getenv("REFIT_BOOT_SITE"); dir != "" {
		must(t, os.MkdirAll(dir, 0o755))
		return dir
	}
	return t.TempDir()
}

// script runs one of machine/*.sh.
func script(t testing.TB, name string, args ...string) {
	t.Helper()
	c := exec.Command(filepath.Join("machine", name), args...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out[max(0, len(out)-4000):])
	}
}

// cacheDir is for what one version of the scripts makes.
func cacheDir(t testing.TB, scripts ...string) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, s := range scripts {
		b, err := os.ReadFile(filepath.Join("machine", s))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	return filepath.Join(base, "refit/boot", hex.EncodeToString(h.Sum(nil))[:12])
}

// makeSite makes the tree (once), the images, and the disks. The machine is installed with A.
func makeSite(t testing.TB) *site {
	t.Helper()
	s := &site{cache: cacheDir(t, "root.sh", "tree.sh"), work: workDir(t), images: map[string]string{}}
	s.disk, s.data = filepath.Join(s.work, "disk.img"), filepath.Join(s.work, "data.img")
	if kept, err := os.ReadFile(s.recordFile()); err == nil {
		must(t, json.Unmarshal(kept, &s.images))
		return s
	}
	packages := cacheDir(t, "root.sh") + "-packages"
	if _, err := os.Stat(packages + "/rootfs.tar"); err != nil {
		script(t, "root.sh", packages)
	}
	if _, err := os.Stat(s.cache + "/base.tar"); err != nil {
		must(t, os.MkdirAll(s.cache, 0o755))
		for _, name := range []string{"rootfs.tar", "grub"} {
			_ = os.Remove(filepath.Join(s.cache, name)) // of a run that was cut off
			must(t, os.Symlink(filepath.Join(packages, name), filepath.Join(s.cache, name)))
		}
		script(t, "tree.sh", s.cache)
	}
	s.makeImages(t)
	s.commit(t, filepath.Join(s.work, "repo"), "A")
	s.commit(t, s.commits(), "B")
	for _, c := range cases {
		s.commit(t, s.commits(), c.image)
	}
	script(t, "disk.sh", s.cache, s.work, refOf(s.images["A"]))
	run(t, "mke2fs", "-q", "-t", "ext4", "-L", "images", "-m", "0", "-O", "^has_journal", "-d", filepath.Join(s.work, "images"), s.data, "1500M")
	must(t, os.RemoveAll(filepath.Join(s.work, "repo")))
	b, err := json.Marshal(s.images)
	must(t, err)
	must(t, os.WriteFile(s.recordFile(), b, 0o600)) // the disks are whole
	return s
}

func (s *site) recordFile() string { return filepath.Join(s.work, "images.json") }

// onB reports whether the machine of an earlier run is on B.
func (s *site) onB() bool { _, err := os.Stat(s.goodFile()); return err == nil }

func (s *site) goodFile() string { return filepath.Join(s.work, "on-b") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// version is the layer with the name of an image.
func version(t testing.TB, name string) v1.Layer {
	return layer(t, map[string]entry{"usr/lib/os-release": {mode: 0o644, text: []byte("ID=machine\nNAME=machine\nPRETTY_NAME=\"machine " + name + "\"\nVERSION_ID=" + name + "\n")}})
}

// broken are the images with which a machine does not come up, or not whole: what each of them
// changes of B.
func (s *site) broken(t testing.TB) map[string]map[string]entry {
	t.Helper()
	kernels, err := filepath.Glob(filepath.Join(s.cache, "tree/usr/lib/modules/*"))
	if err != nil || len(kernels) != 1 {
		t.Fatalf("kernels: %v, %v", kernels, err)
	}
	modules := "usr/lib/modules/" + filepath.Base(kernels[0])
	initramfs, err := os.ReadFile(filepath.Join(kernels[0], "initramfs.img"))
	must(t, err)
	return map[string]map[string]entry{
		"C": {modules + "/initramfs.img": {mode: 0o644, text: initramfs[:100000]}}, // the kernel finds no root, and panics
		"D": {"usr/lib/systemd/systemd": {mode: 0o755, text: []byte("#!/bin/sh\necho \"machine: pid 1 hangs\" > /dev/console\nexec sleep 100000\n")}},
		"E": {filepath.Dir(agentProgram) + "/.wh." + filepath.Base(agentProgram): {}},
		"F": {"etc/systemd/network/10-machine.network": {mode: 0o644, text: []byte("[Match]\nType=ether\n[Network]\nAddress=192.0.2.15/24\nLinkLocalAddressing=no\n")}},
	}
}

// makeImages writes all images; they share their first layers.
func (s *site) makeImages(t testing.TB) {
	t.Helper()
	common := []v1.Layer{fileLayer(t, filepath.Join(s.cache, "base.tar")), layer(t, agentFiles(t))}
	dir := filepath.Join(s.work, "images")
	write := func(name string, more ...v1.Layer) {
		to := filepath.Join(dir, name)
		s.images[name] = repository + "@" + image(t, to, append(append([]v1.Layer(nil), common...), more...)...)
		if name == "A" {
			return
		}
		for _, l := range common { // one copy of what they share
			d, err := l.Digest()
			must(t, err)
			blob := filepath.Join("blobs/sha256", d.Hex)
			must(t, os.Remove(filepath.Join(to, blob)))
			must(t, os.Link(filepath.Join(dir, "A", blob), filepath.Join(to, blob)))
		}
	}
	for _, name := range []string{"A", "B"} {
		write(name, version(t, name))
	}
	for name, files := range s.broken(t) {
		write(name, version(t, name), layer(t, files))
	}
}

func refOf(image string) string {
	_, hex, _ := strings.Cut(image, "@sha256:")
	return "refit/" + hex
}

// commits is a repository with the images B to F. The machine pulls them from there: to flatten an
// image takes it minutes, and the tests of test/simhost show that on real libostree.
func (s *site) commits() string { return filepath.Join(s.work, "images", "repo") }

// commit imports an image as the agent does on a host with libostree alone.
func (s *site) commit(t testing.TB, repo, name string) {
	t.Helper()
	root, err := oci.OpenSingle(filepath.Join(s.work, "images", name))
	must(t, err)
	tree, err := flatten.Tree(t.Context(), root, platform, flatten.Whole)
	must(t, err)
	defer tree.Close()
	run(t, "ostree", "--repo="+repo, "init", "--mode=bare")
	_, digest, _ := strings.Cut(s.images[name], "@")
	c := exec.Command("ostree", "commit", "--repo="+repo, "--branch="+refOf(s.images[name]), "--bootable", "--tree=tar=-", "--tar-autocreate-parents",
		"--add-metadata-string=refit.digest="+digest, "--add-metadata-string=refit.image="+s.images[name])
	c.Stdin = tree
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("ostree commit: %v: %s", err, out)
	}
}

// overlay is a disk of its own over a disk that does not change.
func overlay(t testing.TB, from, format, to string) string {
	t.Helper()
	run(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", format, "-b", from, to)
	return to
}

// copyFile copies a disk with its snapshots.
func copyFile(t testing.TB, from, to string) string {
	t.Helper()
	run(t, "cp", "--reflink=auto", "--sparse=always", from, to)
	return to
}
