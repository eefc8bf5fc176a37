package bundlecmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/cli/console"
)

// Versions of the releases that these tests make.
const (
	testK3s  = "v1.36.3+k3s1"
	testRKE2 = "v1.36.3+rke2r1"
	testK0s  = "v1.36.3+k0s.2"
)

// fixtureImage is an image of one layer for a platform: its config, manifest and layer.
func fixtureImage(t *testing.T, name, arch string) (layer, config, manifest string) {
	t.Helper()
	layer = plainTar(t, map[string]string{"etc/image": name + " for " + arch})
	b, err := json.Marshal(ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: arch},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString(layer)}}})
	if err != nil {
		t.Fatal(err)
	}
	config = string(b)
	b, err = json.Marshal(ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: fixtureBlob(ocispec.MediaTypeImageConfig, config), Layers: []ocispec.Descriptor{fixtureBlob(ocispec.MediaTypeImageLayer, layer)}})
	if err != nil {
		t.Fatal(err)
	}
	return layer, config, string(b)
}

func fixtureBlob(mediaType, content string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(content), Size: int64(len(content))}
}

func plainTar(t *testing.T, files map[string]string) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// savedImages is what docker save writes, with names as Docker shortens them.
func savedImages(t *testing.T, arch string, names ...string) string {
	t.Helper()
	type saved struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	files := map[string]string{}
	var list []saved
	for _, name := range names {
		layer, config, _ := fixtureImage(t, name, arch)
		c, l := digest.FromString(config).Encoded()+".json", digest.FromString(layer).Encoded()+"/layer.tar"
		files[c], files[l] = config, layer
		list = append(list, saved{c, []string{strings.TrimPrefix(name, "docker.io/")}, []string{l}})
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	files["manifest.json"] = string(b)
	return plainTar(t, files)
}

// commonIndex is the index of an image for several architectures.
func commonIndex(t *testing.T, name string, arches ...string) string {
	t.Helper()
	idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, arch := range arches {
		_, _, manifest := fixtureImage(t, name, arch)
		d := fixtureBlob(ocispec.MediaTypeImageManifest, manifest)
		d.Platform = &ocispec.Platform{OS: "linux", Architecture: arch}
		idx.Manifests = append(idx.Manifests, d)
	}
	b, err := json.Marshal(idx)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// imageBundle is what k0s airgap bundle-artifacts writes: the whole index of each image, the
// rest for one platform, and each image also under its digest.
func imageBundle(t *testing.T, arch string, names ...string) string {
	t.Helper()
	files := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`}
	top := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, name := range names {
		layer, config, manifest := fixtureImage(t, name, arch)
		index := commonIndex(t, name, runtime.GOARCH, foreign)
		for _, content := range []string{layer, config, manifest, index} {
			files["blobs/sha256/"+digest.FromString(content).Encoded()] = content
		}
		d := fixtureBlob(ocispec.MediaTypeImageIndex, index)
		repository, _, _ := strings.Cut(name, ":")
		for _, ref := range []string{name, repository + "@" + d.Digest.String()} {
			d.Annotations = map[string]string{ocispec.AnnotationRefName: ref}
			top.Manifests = append(top.Manifests, d)
		}
	}
	b, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	files["index.json"] = string(b)
	return plainTar(t, files)
}

func zstdOf(t *testing.T, data string) string {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.EncodeAll([]byte(data), nil))
}

func gzipOf(t *testing.T, data string) string {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := io.WriteString(z, data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// sumsOf is a list of checksums as sha256sum writes it; between is two spaces or a space and a
// star.
func sumsOf(between string, files map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%s%s%s\n", sum256(files[name]), between, name)
	}
	return b.String()
}

var k3sImages = []string{"docker.io/rancher/klipper-helm:v0.9.8", "docker.io/rancher/mirrored-coredns-coredns:1.14.2", "docker.io/rancher/mirrored-pause:3.6"}

// k3sRelease has the files of a release of k3s. Its list has no checksum, as in real ones.
func k3sRelease(t *testing.T, arches ...string) map[string]string {
	t.Helper()
	out := map[string]string{"k3s-images.txt": strings.Join(k3sImages, "\n") + "\n"}
	for _, arch := range arches {
		summed := map[string]string{
			k3sProgram(arch):                            elfProgram(arch, "k3s", testK3s),
			"k3s-airgap-images-" + arch + ".tar.zst":    zstdOf(t, savedImages(t, arch, k3sImages...)),
			"k3s-airgap-images-" + arch + "-other.text": "another file",
		}
		maps.Copy(out, summed)
		out["sha256sum-"+arch+".txt"] = sumsOf("  ", summed)
	}
	return out
}

var rke2Images = map[string][]string{
	"core":   {"docker.io/rancher/rke2-runtime:v1.36.3-rke2r1", "docker.io/rancher/hardened-kubernetes:v1.36.3-rke2r1-build20260909"},
	"canal":  {"docker.io/rancher/hardened-calico:v3.32.2-build20260909"},
	"cilium": {"docker.io/rancher/mirrored-cilium-cilium:v1.20.1"},
}

// rke2Release has the files of a release of RKE2.
func rke2Release(t *testing.T, arches ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, arch := range arches {
		summed := map[string]string{
			"rke2.linux-" + arch + ".tar.gz":                tarball(t, map[string]string{"./bin/rke2": elfProgram(arch, "rke2", testRKE2), "./bin/rke2-uninstall.sh": "#!/bin/sh\n"}),
			"rke2-images-all.linux-" + arch + ".txt":        strings.Join(slices.Concat(slices.Collect(maps.Values(rke2Images))...), "\n"),
			"rke2-images-core.linux-" + arch + ".txt":       strings.Join(rke2Images["core"], "\n") + "\n",
			"rke2-images-canal.linux-" + arch + ".txt":      strings.Join(rke2Images["canal"], "\n") + "\n",
			"rke2-images-cilium.linux-" + arch + ".txt":     strings.Join(rke2Images["cilium"], "\n") + "\n",
			"rke2-images-core.linux-" + arch + ".tar.zst":   zstdOf(t, savedImages(t, arch, rke2Images["core"]...)),
			"rke2-images-canal.linux-" + arch + ".tar.gz":   gzipOf(t, savedImages(t, arch, rke2Images["canal"]...)),
			"rke2-images-cilium.linux-" + arch + ".tar.zst": zstdOf(t, savedImages(t, arch, rke2Images["cilium"]...)),
		}
		maps.Copy(out, summed)
		out["sha256sum-"+arch+".txt"] = sumsOf("  ", summed)
	}
	return out
}

var k0sImages = []string{"quay.io/k0sproject/coredns:1.14.2", "registry.k8s.io/pause:3.10.2"}

// k0sRelease has the files of a release of k0s.
func k0sRelease(t *testing.T, arches ...string) map[string]string {
	t.Helper()
	out := map[string]string{"airgap-images-list.txt": strings.Join(k0sImages, "\n") + "\n"}
	for _, arch := range arches {
		out["k0s-"+testK0s+"-"+arch] = elfProgram(arch, "k0s", testK0s)
		out["k0s-airgap-bundle-"+testK0s+"-"+arch] = imageBundle(t, arch, k0sImages...)
	}
	out["sha256sums.txt"] = sumsOf(" *", out)
	return out
}

// without returns files but for some.
func without(files map[string]string, names ...string) map[string]string {
	out := maps.Clone(files)
	for _, name := range names {
		delete(out, name)
	}
	return out
}

// distributionSite is a directory with keys and a cache of its own.
func distributionSite(t *testing.T) {
	t.Helper()
	dir := site(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("TMPDIR", t.TempDir())
}

func createFrom(t *testing.T, args ...string) result {
	t.Helper()
	return refit(t, append([]string{"bundle", "create", "--output", "b", "--key", "keys/refit.key"}, args...)...)
}

// imagesOf are the names of the images of the bundle b, sorted.
func imagesOf(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, i := range inspectBundle(t).Images {
		out = append(out, i.Name)
	}
	return out
}

// A release of each distribution from a directory, as its files are downloaded.
func TestDistributionsFromDirectory(t *testing.T) {
	distributionSite(t)
	writeFiles(t, "k3s", k3sRelease(t, runtime.GOARCH), 0o644)
	writeFiles(t, "rke2", without(rke2Release(t, runtime.GOARCH), "rke2-images-cilium.linux-"+runtime.GOARCH+".txt", "rke2-images-cilium.linux-"+runtime.GOARCH+".tar.zst"), 0o644)
	writeFiles(t, "k0s/"+testK0s, k0sRelease(t, runtime.GOARCH), 0o644)
	var k0sNames []string
	for _, name := range k0sImages {
		repository, _, _ := strings.Cut(name, ":")
		k0sNames = append(k0sNames, name, repository+"@"+digest.FromString(commonIndex(t, name, runtime.GOARCH, foreign)).String())
	}
	for name, c := range map[string]struct {
		version string
		images  []string
		notes   []string
	}{
		"k3s":  {testK3s, k3sImages, []string{"3 images for " + thisHost + " from k3s/k3s-airgap-images-" + runtime.GOARCH + ".tar.zst (SHA-256 verified)"}},
		"rke2": {testRKE2, slices.Concat(rke2Images["core"], rke2Images["canal"]), []string{"rke2 for " + thisHost + " from rke2/rke2.linux-" + runtime.GOARCH + ".tar.gz (SHA-256 verified)"}},
		"k0s":  {testK0s, k0sNames, []string{"4 images for " + thisHost}},
	} {
		t.Run(name, func(t *testing.T) {
			r := createFrom(t, name+":"+c.version, "--kubernetes-from", name)
			if r.code != console.ExitOK {
				t.Fatal(r.err)
			}
			for _, note := range append(c.notes, "the bundle is for "+thisHost) {
				if !strings.Contains(r.err, note) {
					t.Errorf("it does not print %q:\n%s", note, r.err)
				}
			}
			must(t, "bundle", "verify", "b", "--pub", "keys/refit.pub")
			v := inspectBundle(t)
			if v.Name != name || "v"+v.Version != c.version || v.KubernetesVersion != c.version || !slices.Equal(v.Platforms, []string{thisHost}) {
				t.Errorf("bundle %s %s, Kubernetes %s, for %v", v.Name, v.Version, v.KubernetesVersion, v.Platforms)
			}
			slices.Sort(c.images)
			if diff := cmp.Diff(c.images, imagesOf(t)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{name + " " + c.version + " " + thisHost}, payloadsOf(t)); diff != "" {
				t.Error(diff)
			}
			if p := v.Payloads[0]; p.Mode != "0755" {
				t.Errorf("the program has mode %s", p.Mode)
			}
			must(t, "bundle", "extract", "b", name, "--output", name+".program")
			if b, err := os.ReadFile(name + ".program"); err != nil || string(b) != elfProgram(runtime.GOARCH, name, c.version) {
				t.Errorf("the program has other bytes: %v", err)
			}
		})
	}
}

// With several platforms each name has one image, of the archives for all of them: an index
// that they share, or one of their manifests.
func TestDistributionsForSeveralPlatforms(t *testing.T) {
	distributionSite(t)
	both := []string{thisHost, "linux/" + foreign}
	slices.Sort(both)
	writeFiles(t, "k3s", k3sRelease(t, runtime.GOARCH, foreign), 0o644)
	writeFiles(t, "rke2", rke2Release(t, runtime.GOARCH, foreign), 0o644)
	writeFiles(t, "k0s", k0sRelease(t, runtime.GOARCH, foreign), 0o644)
	for source, name := range map[string]string{"k3s:" + testK3s: k3sImages[0], "rke2:" + testRKE2: rke2Images["core"][0], "k0s:" + testK0s: k0sImages[0]} {
		t.Run(source, func(t *testing.T) {
			distro, version, _ := strings.Cut(source, ":")
			args := []string{source, "--kubernetes-from", distro, "--platform", strings.Join(both, ",")}
			if distro == "rke2" {
				args = append(args, "--rke2-parts", "core,cilium")
			}
			first := createFrom(t, args...)
			if first.code != console.ExitOK {
				t.Fatal(first.err)
			}
			must(t, "bundle", "verify", "b", "--pub", "keys/refit.pub")
			v := inspectBundle(t)
			if diff := cmp.Diff(both, v.Platforms); diff != "" {
				t.Error(diff)
			}
			var programs []string
			for _, p := range both {
				programs = append(programs, distro+" "+version+" "+p)
			}
			if diff := cmp.Diff(programs, payloadsOf(t)); diff != "" {
				t.Error(diff)
			}
			want := digest.FromString(commonIndex(t, name, strings.TrimPrefix(both[0], "linux/"), strings.TrimPrefix(both[1], "linux/")))
			if distro == "k0s" {
				want = digest.FromString(commonIndex(t, name, runtime.GOARCH, foreign))
			}
			for _, i := range v.Images {
				if i.Name == name && i.Digest != want.String() {
					t.Errorf("%s is %s, want the index %s of both", name, i.Digest, want)
				}
			}
			if again := createFrom(t, args...); again.out != first.out {
				t.Errorf("the second bundle is %s, not %s: %s", again.out, first.out, again.err)
			}
		})
	}
}

// TestBundlesOfThePage types the block of docs/how-to/k3s-rke2-k0s.md about RKE2 with Cilium and
// k0s for two platforms. Each command finds the files of its release in the directory.
func TestBundlesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/how-to/k3s-rke2-k0s.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```sh\n")
	if len(blocks) < 3 {
		t.Fatalf("the page has %d blocks of commands", len(blocks)-1)
	}
	block, _, _ := strings.Cut(blocks[2], "\n```")
	distributionSite(t)
	both := []string{"amd64", "arm64"}
	releases := map[string]map[string]string{"rke2": rke2Release(t, runtime.GOARCH), "k0s": k0sRelease(t, both...)}
	images := map[string][]string{"rke2": slices.Concat(rke2Images["core"], rke2Images["cilium"]), "k0s": k0sImages}
	for line := range strings.SplitSeq(block, "\n") {
		words := strings.Fields(line)
		name, version, _ := strings.Cut(words[len(words)-1], ":")
		if err := os.RemoveAll("release"); err != nil {
			t.Fatal(err)
		}
		writeFiles(t, "release", releases[name], 0o644)
		must(t, words[1:]...)
		must(t, "bundle", "verify", "release.bundle", "--pub", "keys/refit.pub")
		var v bundleView
		if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "release.bundle", "-o", "json")), &v); err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, i := range v.Images {
			have = append(have, i.Name)
		}
		for _, image := range images[name] {
			if !slices.Contains(have, image) {
				t.Errorf("the bundle of %s does not have %s: %v", name, image, have)
			}
		}
		if v.KubernetesVersion != version || name == "k0s" && len(v.Platforms) != len(both) {
			t.Errorf("the bundle of %s is of %s, for %v", name, v.KubernetesVersion, v.Platforms)
		}
		delete(releases, name)
	}
	if len(releases) > 0 {
		t.Errorf("the page makes no bundle of %v", slices.Collect(maps.Keys(releases)))
	}
}

func TestDistributionFromURL(t *testing.T) {
	distributionSite(t)
	files := map[string]string{}
	for name, data := range k3sRelease(t, runtime.GOARCH) {
		files["/k3s/"+testK3s+"/"+name] = data
	}
	for name, data := range rke2Release(t, runtime.GOARCH) {
		files["/rke2/"+testRKE2+"/"+name] = data
	}
	for name, data := range k0sRelease(t, runtime.GOARCH) {
		files["/k0s/"+testK0s+"/"+name] = data
	}
	s := serveRelease(t, files)
	var plus []string
	s.first = func(_ http.ResponseWriter, r *http.Request) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.Contains(r.RequestURI, "+") {
			plus = append(plus, r.RequestURI)
		}
		return false
	}
	for _, source := range []string{"k3s:" + testK3s, "rke2:" + testRKE2, "k0s:" + testK0s} {
		t.Run(source, func(t *testing.T) {
			distro, _, _ := strings.Cut(source, ":")
			args := []string{source, "--kubernetes-from", s.URL + "/" + distro, "--platform", thisHost}
			first := createFrom(t, args...)
			if first.code != console.ExitOK {
				t.Fatal(first.err)
			}
			must(t, "bundle", "verify", "b", "--pub", "keys/refit.pub")
			if distro == "rke2" && slices.Contains(imagesOf(t), rke2Images["cilium"][0]) {
				t.Error("it took a part that is none of the default ones")
			}
			s.take()
			again := createFrom(t, args...)
			if again.code != console.ExitOK || again.out != first.out {
				t.Errorf("the second run: exit code %d, %s instead of %s\n%s", again.code, again.out, first.out, again.err)
			}
			for _, r := range s.take() {
				if !strings.HasSuffix(r, ".txt") {
					t.Errorf("the second run downloads %s again", r)
				}
			}
		})
	}
	s.mu.Lock()
	if len(plus) > 0 {
		t.Errorf("plus signs in URLs: %v", plus)
	}
	s.mu.Unlock()

	// A download that another run left continues.
	name := k3sProgram(runtime.GOARCH)
	data := files["/k3s/"+testK3s+"/"+name]
	dir := filepath.Join("cache/refit/kubernetes", "sha256-"+sum256(data))
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{name + partialSuffix: data[:20]}, 0o600)
	if r := createFrom(t, "k3s:"+testK3s, "--kubernetes-from", s.URL+"/k3s", "--platform", thisHost); r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	if all := s.take(); !slices.Contains(all, "/k3s/"+testK3s+"/"+name+" bytes=20-") {
		t.Errorf("the download does not continue: %v", all)
	}

	// What a server sends with another sum, or without one, is not used.
	for path, says := range map[string]string{"/k3s/" + testK3s + "/k3s-airgap-images-" + runtime.GOARCH + ".tar.zst": "its SHA-256 is ", "/k3s/" + testK3s + "/sha256sum-" + runtime.GOARCH + ".txt": "does not list k3s"} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		s.first = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == path {
				_, _ = io.WriteString(w, "other")
			}
			return r.URL.Path == path
		}
		if r := createFrom(t, "k3s:"+testK3s, "--kubernetes-from", s.URL+"/k3s", "--platform", thisHost); r.code == console.ExitOK || !strings.Contains(r.err, says) {
			t.Errorf("%s: exit code %d, without %q: %s", path, r.code, says, r.err)
		}
	}
}

// Without a flag the release comes from the project's releases, and the command prints so.
func TestDistributionDefaultPlace(t *testing.T) {
	for source, want := range map[string]string{
		"k3s:" + testK3s:   "https://github.com/k3s-io/k3s/releases/download/v1.36.3%2Bk3s1/k3s-images.txt",
		"rke2:" + testRKE2: "https://github.com/rancher/rke2/releases/download/v1.36.3%2Brke2r1/rke2-images-core.linux-amd64.txt",
		"k0s:" + testK0s:   "https://github.com/k0sproject/k0s/releases/download/v1.36.3%2Bk0s.2/airgap-images-list.txt",
	} {
		var out bytes.Buffer
		layout, version, _ := cutDistribution(source)
		r, err := (&kubernetesSource{}).openDistribution(layout, version, &out)
		if err != nil {
			t.Fatal(err)
		}
		place := r.places[0].(*releaseServerPlace)
		if got := place.at(layout.list("amd64", r.partsFor("amd64")[0])).String(); got != want || !strings.Contains(out.String(), "files come from https://github.com/") {
			t.Errorf("%s: %s, want %s: %s", source, got, want, out.String())
		}
	}
	base, err := url.Parse("https://mirror.example/a%20b/")
	if err != nil {
		t.Fatal(err)
	}
	if got := (&releaseServerPlace{base: base, version: testK0s}).at("k0s-" + testK0s + "-arm64").String(); got != "https://mirror.example/a%20b/v1.36.3%2Bk0s.2/k0s-v1.36.3%2Bk0s.2-arm64" {
		t.Error(got)
	}
}

// Images that no archive has come from elsewhere; images that no list has are reported.
func TestDistributionImagesFromElsewhere(t *testing.T) {
	distributionSite(t)
	canal := rke2Images["canal"]
	appendImages(t, "layout", canal)
	arch := runtime.GOARCH
	files := without(rke2Release(t, arch), "rke2-images-canal.linux-"+arch+".tar.gz", "rke2-images-cilium.linux-"+arch+".txt", "rke2-images-cilium.linux-"+arch+".tar.zst", "sha256sum-"+arch+".txt")
	files["rke2-images-core.linux-"+arch+".tar.zst"] = zstdOf(t, savedImages(t, arch, append(slices.Clone(rke2Images["core"]), "registry.example/extra:1")...))
	files["SHA256SUMS"] = sumsOf("  ", files) // of the site's own
	writeFiles(t, "from", files, 0o644)
	r := createFrom(t, "rke2:"+testRKE2, "--kubernetes-from", "from", "--kubernetes-images", "oci:layout")
	for _, says := range []string{"1 image in no archive (from has no rke2-images-canal.linux-" + arch + ".tar.zst", "registry.example/extra:1 is in an archive for " + thisHost + ", but not in the list; it is included"} {
		if r.code != console.ExitOK || !strings.Contains(r.err, says) {
			t.Fatalf("exit code %d, without %q: %s", r.code, says, r.err)
		}
	}
	want := slices.Concat(rke2Images["core"], canal, []string{"registry.example/extra:1"})
	slices.Sort(want)
	if diff := cmp.Diff(want, imagesOf(t)); diff != "" {
		t.Error(diff)
	}
}

// What create refuses, and what it prints then.
func TestDistributionsRefused(t *testing.T) {
	distributionSite(t)
	arch := runtime.GOARCH
	k3s, rke2, k0s := k3sRelease(t, arch), rke2Release(t, arch), k0sRelease(t, arch)
	program, archive, sums := k3sProgram(arch), "k3s-airgap-images-"+arch+".tar.zst", "sha256sum-"+arch+".txt"
	core := "rke2-images-core.linux-" + arch + ".txt"
	resum := func(files map[string]string, name string) map[string]string {
		out := without(files, name)
		out[name] = sumsOf("  ", out)
		return out
	}
	for dir, files := range map[string]map[string]string{
		"good":         k3s,
		"damaged":      join(k3s, map[string]string{archive: k3s[archive] + "x"}),
		"unsummed":     without(k3s, sums),
		"no-program":   without(k3s, program),
		"no-archive":   without(k3s, archive),
		"no-list":      without(k3s, "k3s-images.txt"),
		"cut-list":     join(k3s, map[string]string{"k3s-images.txt": strings.Join(k3sImages[:2], "\n")}),
		"bad-list":     join(k3s, map[string]string{"k3s-images.txt": "<html>"}),
		"empty-list":   join(k3s, map[string]string{"k3s-images.txt": "\n"}),
		"old":          resum(join(k3s, map[string]string{program: elfProgram(arch, "k3s", "v1.36.3+k3s10")}), sums),
		"foreign":      resum(join(k3s, map[string]string{program: elfProgram(foreign, "k3s", testK3s)}), sums),
		"script":       resum(join(k3s, map[string]string{program: "#!/bin/sh\n"}), sums),
		"no-images":    resum(join(k3s, map[string]string{archive: "text"}), sums),
		"rke2-old":     resum(join(rke2, map[string]string{core: "docker.io/rancher/rke2-runtime:v1.36.2-rke2r1\n"}), sums),
		"rke2-no-core": without(rke2, core),
		"rke2-tar":     resum(join(rke2, map[string]string{"rke2.linux-" + arch + ".tar.gz": tarball(t, map[string]string{"rke2": "x"})}), sums),
		"k0s-no-list":  without(k0s, "airgap-images-list.txt"),
		"k0s-digest":   resum(join(k0s, map[string]string{"airgap-images-list.txt": k0sImages[0] + "@sha256:" + sum256("other") + "\n" + k0sImages[1] + "\n"}), "sha256sums.txt"),
		"one-platform": join(k3s, without(k3sRelease(t, foreign), "k3s-airgap-images-"+foreign+".tar.zst", "k3s-images.txt"), map[string]string{"k3s-images.txt.sha256": sum256(k3s["k3s-images.txt"])}),
	} {
		writeFiles(t, dir, files, 0o644)
	}
	for _, c := range []struct {
		line string
		code int
		says []string
	}{
		{"k3s:latest", 2, []string{`"latest" is not the version of a release of k3s`, "k3s:v1.36.3+k3s1"}},
		{"k3s:v1.36.3", 2, []string{"Write all of it"}},
		{"rke2:" + testK3s, 2, []string{"is not the version of a release of RKE2", "rke2:v1.36.3+rke2r1"}},
		{"k0s:v1.36.3+k0s", 2, []string{"is not the version of a release of k0s"}},
		{"k3s:" + testK3s + " k0s:" + testK0s, 2, []string{"a bundle has one release"}},
		{"k3s:" + testK3s + " --rke2-parts core", 2, []string{"--rke2-parts belongs to the source rke2:VERSION"}},
		{"oci:layout --kubernetes-from good", 2, []string{"belong to the sources"}},
		{"k3s:" + testK3s + " --platform windows/amd64 --kubernetes-from good", 2, []string{"--platform windows/amd64: "}},
		{"k3s:" + testK3s + " --kubernetes-from none", 2, []string{"--kubernetes-from: stat none"}},
		{"k3s:" + testK3s + " --kubernetes-from kubelet", 2, []string{"name the directory with the files of the release of k3s"}},
		{"k3s:" + testK3s + " --kubernetes-from http://releases.example", 2, []string{"use an https URL"}},
		{"k3s:" + testK3s + " --kubernetes-from damaged", 6, []string{"damaged/" + archive + ": its SHA-256 is ", "damaged/" + sums + " has "}},
		{"k3s:" + testK3s + " --kubernetes-from unsummed", 2, []string{"unsummed/" + program + " has no checksum", "Copy " + sums}},
		{"k3s:" + testK3s + " --kubernetes-from no-program", 2, []string{"1 program missing: k3s for " + thisHost, "no-program has no " + program}},
		{"k3s:" + testK3s + " --kubernetes-from no-archive", 6, []string{"no-archive/k3s-images.txt has no published checksum", "no-archive has no " + archive}},
		{"k3s:" + testK3s + " --kubernetes-from no-list", 2, []string{"the list of images is missing: no-list has no k3s-images.txt"}},
		{"k3s:" + testK3s + " --kubernetes-from cut-list", 6, []string{"not in the list: " + k3sImages[2]}},
		{"k3s:" + testK3s + " --kubernetes-from bad-list", 1, []string{"list of images bad-list/k3s-images.txt", "<html>"}},
		{"k3s:" + testK3s + " --kubernetes-from empty-list", 1, []string{"it is empty"}},
		{"k3s:" + testK3s + " --kubernetes-from old", 2, []string{"k3s for " + thisHost + " from old/" + program + " is not " + testK3s}},
		{"k3s:" + testK3s + " --kubernetes-from foreign", 2, []string{"is not a program for " + thisHost + ", but linux/" + foreign}},
		{"k3s:" + testK3s + " --kubernetes-from script", 2, []string{"is not a program for " + thisHost + ", but another file"}},
		{"k3s:" + testK3s + " --kubernetes-from no-images", 1, []string{"no-images/" + archive}},
		{"k3s:v1.36.4+k3s1 --kubernetes-from good", 2, []string{"is not v1.36.4+k3s1"}},
		{"k3s:" + testK3s + " --kubernetes-from one-platform --platform " + thisHost + ",linux/" + foreign, 2, []string{"archives have images for one platform only", k3sImages[0] + " (" + thisHost + " has it, linux/" + foreign + " does not)"}},
		{"rke2:" + testRKE2 + " --kubernetes-from rke2-old", 2, []string{"is of another release: it has docker.io/rancher/rke2-runtime:v1.36.2-rke2r1"}},
		{"rke2:" + testRKE2 + " --kubernetes-from rke2-no-core", 2, []string{"rke2-no-core has no " + core}},
		{"rke2:" + testRKE2 + " --kubernetes-from rke2-tar", 2, []string{"it has no rke2, so it is not an official archive: rke2.linux-ARCH.tar.gz has bin/rke2"}},
		{"rke2:" + testRKE2 + " --kubernetes-from good --rke2-parts multus", 2, []string{"program missing: rke2 for " + thisHost}},
		{"k0s:" + testK0s + " --kubernetes-from k0s-no-list", 2, []string{"write the output of `k0s airgap list-images --all`"}},
		{"k0s:" + testK0s + " --kubernetes-from k0s-digest", 6, []string{"have other images under these names than the list: " + k0sImages[0]}},
	} {
		r := refit(t, append([]string{"bundle", "create", "--output", "b", "--unsigned"}, strings.Fields(c.line)...)...)
		if r.code != c.code || r.out != "" {
			t.Errorf("%s: exit code %d, want %d: %s", c.line, r.code, c.code, r.err)
		}
		for _, s := range c.says {
			if !strings.Contains(r.err, s) {
				t.Errorf("%s: %q does not have %q", c.line, r.err, s)
			}
		}
	}
	if _, err := os.Stat("b"); err == nil {
		t.Error("a refused bundle was written")
	}
}

// A list that a person vouches for by a checksum needs no archive, and refit bundle images
// prints the list of a release.
func TestDistributionLists(t *testing.T) {
	distributionSite(t)
	appendImages(t, "layout", k3sImages)
	files := without(k3sRelease(t, runtime.GOARCH), "k3s-airgap-images-"+runtime.GOARCH+".tar.zst")
	writeFiles(t, "from", join(files, map[string]string{"k3s-images.txt.sha256": sum256(files["k3s-images.txt"])}), 0o644)
	if r := createFrom(t, "k3s:"+testK3s, "--kubernetes-from", "from", "--kubernetes-images", "oci:layout"); r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	if diff := cmp.Diff(k3sImages, imagesOf(t)); diff != "" {
		t.Error(diff)
	}
	r := refit(t, "bundle", "images", "k3s:"+testK3s, "--kubernetes-from", "from", "-o", "json")
	var v imagesView
	if err := json.Unmarshal([]byte(r.out), &v); err != nil {
		t.Fatal(err, r.err)
	}
	if diff := cmp.Diff(k3sImages, v.Images); diff != "" || v.References[0].Rule != ruleRelease || v.References[0].File != "from/k3s-images.txt" {
		t.Errorf("%s %+v", diff, v.References)
	}
	if r := refit(t, "bundle", "images", "k3s:"+testK3s, "--kubernetes-from", "from", "--rke2-parts", "core"); r.code != console.ExitUsage {
		t.Errorf("parts of another distribution: exit code %d: %s", r.code, r.err)
	}
}

func TestPartOf(t *testing.T) {
	for name, want := range map[string]string{
		"rke2-images-core.linux-amd64.tar.zst": "core", "rke2-images-core.linux-amd64.txt": "core", "rke2-images-ingress-nginx.linux-amd64.tar.gz": "ingress-nginx",
		"rke2-images.linux-amd64.tar.zst": rke2Whole, "rke2-images-all.linux-amd64.txt": "", "rke2-images-core.linux-arm64.txt": "", "rke2.linux-amd64.tar.gz": "",
		"rke2-images-core.linux-amd64.sha256": "",
	} {
		part, ok := partOf(name, "amd64")
		if !ok {
			part = ""
		}
		if part != want {
			t.Errorf("%s: %q, want %q", name, part, want)
		}
	}
	if got := rke2Part("amd64", rke2Whole); got != "rke2-images.linux-amd64" {
		t.Error(got)
	}
}
