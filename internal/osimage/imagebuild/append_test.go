//go:build linux

package imagebuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// entries of a small configuration.
func entries(t testing.TB) []osimage.LayerEntry {
	t.Helper()
	p, vs := osimage.PlaceConfig(model.NodeConfig{
		Files: []model.ConfigFile{{Path: "/etc/motd", Mode: 0o644, Owner: "root", Group: "12", Data: []byte("hello\n")}, {Path: "/etc/old", Absent: true}},
		Units: []model.ConfigUnit{{Name: "bad.service", State: "masked"}}, OS: &model.ConfigOS{KernelArguments: []string{"quiet"}}})
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	return p.Entries
}

// layout makes an OCI layout with one image of one layer, kept with all that its
// documents say.
func layout(t testing.TB, layer []byte, size int64) (dir string, root oci.Root) {
	t.Helper()
	dir = t.TempDir()
	put := func(mt string, b []byte) ocispec.Descriptor {
		d := digest.FromBytes(b)
		p := filepath.Join(dir, "blobs/sha256", d.Encoded())
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b, 0o644)); err != nil {
			t.Fatal(err)
		}
		return ocispec.Descriptor{MediaType: mt, Digest: d, Size: int64(len(b))}
	}
	l := put(ocispec.MediaTypeImageLayerGzip, layer)
	if size > 0 {
		l.Size = size
	}
	cfg := put(ocispec.MediaTypeImageConfig, []byte(`{"architecture":"amd64","os":"linux","created":"2026-01-02T03:04:05Z","unknown":{"kept":[1,2]},"config":{"Labels":{"containers.bootc":"1","ostree.final-diffid":"x"},"StopSignal":"S"},
		"rootfs":{"type":"layers","diff_ids":["sha256:`+strings.Repeat("1", 64)+`"]},"history":[{"created_by":"base"},{"created_by":"env","empty_layer":true}]}`))
	m, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "config": cfg, "layers": []ocispec.Descriptor{l}, "annotations": map[string]string{"kept": "yes"}, "own": 1})
	if err != nil {
		t.Fatal(err)
	}
	d := put(ocispec.MediaTypeImageManifest, m)
	d.Annotations = map[string]string{ocispec.AnnotationRefName: "registry.example/os/base:1"}
	idx, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "index.json"), idx, 0o644), os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)); err != nil {
		t.Fatal(err)
	}
	roots, err := oci.OpenLayout(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return dir, roots[0]
}

func appendBuild(t testing.TB, q AppendRequest) *AppendedImage {
	t.Helper()
	img, err := Append(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// The same inputs give the same digest. It is written down: another
// compiler, library or day must give it too.
func TestSameInputsSameDigest(t *testing.T) {
	_, root := layout(t, []byte("base layer"), 0)
	q := AppendRequest{Base: root, Entries: entries(t), Labels: map[string]string{"dev.refit.os-image": "edge"}}
	a, b := appendBuild(t, q), appendBuild(t, q)
	if a.Digest() != b.Digest() {
		t.Error("two builds differ")
	}
	const want = "sha256:3b9a92703aa87fc6b0ea4fc93fa87dc926ec9311c0886184a6c7321e3d4fc103"
	if a.Digest() != want {
		t.Errorf("%s, once it was %s: images of existing configurations would change", a.Digest(), want)
	}
	q.Labels = map[string]string{"dev.refit.os-image": "core"}
	if appendBuild(t, q).Digest() == a.Digest() {
		t.Error("another label, the same digest")
	}
}

// The base's documents are kept but for what is edited, and the layer says what
// the configuration says.
func TestWhatIsEdited(t *testing.T) {
	_, root := layout(t, []byte("base layer"), 0)
	img := appendBuild(t, AppendRequest{Base: root, Entries: entries(t), Labels: map[string]string{"a": "b"}})
	var m struct {
		Own         int
		Layers      []ocispec.Descriptor
		Annotations map[string]string
	}
	var c struct {
		Created string
		Unknown struct{ Kept []int }
		Config  struct {
			Labels     map[string]string
			StopSignal string
		}
		Rootfs  struct{ Diff_ids []string } //nolint:revive // as it is spelled
		History []struct{ Created_by string }
	}
	if err := errors.Join(json.Unmarshal(img.Manifests[0].Data, &m), json.Unmarshal(img.Blobs[1].Data, &c)); err != nil {
		t.Fatal(err)
	}
	base := root.Desc.Digest.String()
	if m.Own != 1 || m.Annotations["kept"] != "yes" || m.Annotations[ocispec.AnnotationBaseImageDigest] != base || len(m.Layers) != 2 || m.Layers[1].Digest.String() != img.Blobs[0].Digest {
		t.Errorf("manifest %+v", m)
	}
	want := map[string]string{"containers.bootc": "1", "ostree.final-diffid": "x", "a": "b", ocispec.AnnotationBaseImageDigest: base, ocispec.AnnotationBaseImageName: "registry.example/os/base:1"}
	if diff := cmp.Diff(want, c.Config.Labels); diff != "" {
		t.Error(diff)
	}
	if c.Created != "2026-01-02T03:04:05Z" || len(c.Unknown.Kept) != 2 || c.Config.StopSignal != "S" || len(c.History) != 3 {
		t.Errorf("configuration %+v", c)
	}
	z, err := gzip.NewReader(bytes.NewReader(img.Blobs[0].Data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || len(c.Rootfs.Diff_ids) != 2 || c.Rootfs.Diff_ids[1] != digest.FromBytes(plain).String() {
		t.Fatal(err, c.Rootfs)
	}
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(plain)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(r)
		if h.ModTime.Unix() != 0 || h.Typeflag == tar.TypeDir {
			t.Errorf("%+v", h)
		}
		got[h.Name] = strings.TrimSpace(h.Linkname + string(data))
		if h.Name == "etc/motd" && (h.Gid != 12 || h.Mode != 0o644) {
			t.Errorf("%+v", h)
		}
	}
	delete(got, "usr/lib/bootc/kargs.d/10-refit.toml")
	if diff := cmp.Diff(map[string]string{"etc/motd": "hello", "etc/.wh.old": "", "etc/systemd/system/bad.service": "/dev/null"}, got); diff != "" {
		t.Error(diff)
	}
}

// The registry mounts the base's layers: none of them is asked for, and an index
// stays one.
func TestPushReadsNoLayerOfTheBase(t *testing.T) {
	reg := registrytest.Start(t)
	base := reg.Push("os/base", registrytest.Image{Version: "1", Layers: []string{"kernel", "userland"}, Platforms: []string{"linux/amd64", "linux/arm64"}}, "9")
	rs, err := oci.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	root, err := rs.Open(t.Context(), reg.Ref("os/base@"+base))
	if err != nil {
		t.Fatal(err)
	}
	reg.Requests()
	w := registry.NewWriter(nil, nil)
	var digests []string
	for range 2 {
		img := appendBuild(t, AppendRequest{Base: root, Entries: entries(t)})
		copied, err := img.Push(t.Context(), w, reg.Ref("os/edge"), "latest")
		if err != nil || copied != 0 {
			t.Fatal(copied, err)
		}
		digests = append(digests, img.Digest())
		if len(img.Platforms) != 2 || len(img.Kept) != 4 {
			t.Errorf("%v %v", img.Platforms, img.Kept)
		}
		for _, r := range reg.Requests() {
			for _, l := range img.Kept {
				if r.Method == http.MethodGet && strings.Contains(r.Path, l.Digest.String()) || r.Method == http.MethodPut && strings.Contains(r.Path, l.Digest.Encoded()) {
					t.Errorf("a layer of the base is moved: %+v", r)
				}
			}
		}
	}
	if digests[0] != digests[1] || reg.Resolve("os/edge", "latest") != digests[0] {
		t.Error(digests, reg.Resolve("os/edge", "latest"))
	}
	image, err := rs.Open(t.Context(), reg.Ref("os/edge@"+digests[0]))
	if err != nil {
		t.Fatal(err)
	}
	g, err := oci.Walk(t.Context(), image, nil)
	if err != nil || len(g.Platforms) != 2 {
		t.Fatal(err, g.Platforms)
	}
	skopeo(t, "--tls-verify=false", "docker://"+reg.Ref("os/edge@"+digests[0]), base)
	if ok, err := w.Has(t.Context(), reg.Ref("os/edge"), digests[0]); !ok || err != nil {
		t.Error(ok, err)
	}
	if err := w.Delete(t.Context(), reg.Ref("os/edge"), digests[0]); err != nil {
		t.Error(err)
	}
	if ok, err := w.Has(t.Context(), reg.Ref("os/edge"), digests[0]); ok || err != nil {
		t.Error("absent is not reported", ok, err)
	}
	reg.Stop()
	var f *registry.Failure
	if _, err := w.Has(t.Context(), reg.Ref("os/edge"), digests[0]); !errors.As(err, &f) || f.Kind != registry.Unreachable {
		t.Error("away is taken for absent", err)
	}
}

// skopeo, where it is installed, reads what was made and the label of its base.
func skopeo(t *testing.T, option, image, base string) {
	t.Helper()
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Log("no skopeo: another tool's reading is not tested")
		return
	}
	args := []string{"inspect", image}
	if option != "" {
		args = []string{"inspect", option, image}
	}
	out, err := exec.Command("skopeo", args...).Output()
	var says struct {
		Labels map[string]string
		Layers []string
	}
	if err != nil || json.Unmarshal(out, &says) != nil || says.Labels[ocispec.AnnotationBaseImageDigest] != base || len(says.Layers) < 2 {
		t.Errorf("skopeo: %v %s", err, out)
	}
}

// In layouts of one file system the base's layers are linked; into its own they
// are not touched; the image is replaced, others stay.
func TestLayout(t *testing.T) {
	dir, root := layout(t, []byte("base layer"), 0)
	img := appendBuild(t, AppendRequest{Base: root, Entries: entries(t)})
	out := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+"-out")
	t.Cleanup(func() { _ = os.RemoveAll(out) })
	for _, to := range []string{out, dir} {
		for range 2 {
			if copied, err := img.WriteLayout(t.Context(), to, "registry.example/os/edge:1"); err != nil || copied != 0 {
				t.Fatal(copied, err)
			}
		}
		roots, err := oci.OpenLayout(to, "registry.example/os/edge:1")
		if err != nil || roots[0].Desc.Digest != img.Desc.Digest {
			t.Fatal(err)
		}
		if _, err := oci.Walk(t.Context(), roots[0], []string{"linux/amd64"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := oci.OpenLayout(dir, "registry.example/os/base:1"); err != nil {
		t.Error("the base is gone", err)
	}
	st, err := os.Stat(filepath.Join(out, "blobs/sha256", img.Kept[0].Digest.Encoded()))
	if err != nil || st.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Error("the layer is no link", err)
	}
	skopeo(t, "", "oci:"+out+":registry.example/os/edge:1", root.Desc.Digest.String())
}

func TestRefuses(t *testing.T) {
	_, root := layout(t, []byte("base layer"), 0)
	one := func(path string) []osimage.LayerEntry { return []osimage.LayerEntry{{Path: path, Mode: 0o644}} }
	for name, c := range map[string]struct {
		q    AppendRequest
		says string
	}{
		"a path that climbs":           {AppendRequest{Base: root, Entries: one("../x")}, "no clean path"},
		"a path that is a whiteout":    {AppendRequest{Base: root, Entries: one("etc/.wh.x")}, "no clean path"},
		"the same path twice":          {AppendRequest{Base: root, Entries: append(one("etc/x"), one("etc/x")...)}, "twice"},
		"a platform that is not there": {AppendRequest{Base: root, Platforms: []string{"linux/s390x"}}, "has no platform linux/s390x"},
		"a base that is no image":      {AppendRequest{Base: oci.Root{Desc: ocispec.Descriptor{MediaType: "x"}, Store: root.Store}}, "no image"},
	} {
		if _, err := Append(t.Context(), c.q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir, lying := layout(t, []byte("cut off"), 100)
	_ = dir
	lying.Store = elsewhere{lying.Store}
	img := appendBuild(t, AppendRequest{Base: lying})
	if _, err := img.WriteLayout(t.Context(), t.TempDir(), "x"); err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Error("a layer that is copied is compared:", err)
	}
}

// elsewhere is a store whose blobs cannot be linked.
type elsewhere struct{ oci.Store }

func (elsewhere) String() string { return "/nowhere" }

// gzipStored writes valid gzip for any content.
func TestStoredGzip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := bytes.Repeat([]byte(rapid.StringN(1, 8, -1).Draw(t, "piece")), rapid.IntRange(0, 30000).Draw(t, "times"))
		z, err := gzip.NewReader(bytes.NewReader(gzipStored(data)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatal(err, len(data), len(got))
		}
	})
}
