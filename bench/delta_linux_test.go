package bench

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/lab/components"
)

// The two releases that are compared. The newer one is one of the lab's.
const (
	patchFrom = "v1.36.2"
	patchTo   = "v1.36.3"
)

// Limits of a delta, as shares of the full bundle, and of what it takes to apply it, as a multiple of a plain load.
const (
	maxPatchShare = 0.30
	maxSetShare   = 0.10
	maxApply      = 2.0
)

var (
	patchImages   = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
	patchPayloads = []string{"kubelet", "kubeadm", "kubectl"}
)

// deltaCase is what one pair of bundles gave.
type deltaCase struct {
	FullBytes  int64   `json:"fullBytes"`
	DeltaBytes int64   `json:"deltaBytes"`
	Share      float64 `json:"share"`
	// Create compares two bundles, Restore makes the full one, Copy writes the full one with refit bundle write.
	Create  cost `json:"create"`
	Restore cost `json:"restore"`
	Copy    cost `json:"copy"`
	// Load is how the agent brings the full bundle's images from its store to an empty containerd. Apply is the processor time of
	// Restore to that of a plain load: Copy and Load.
	Load  loadRun `json:"load"`
	Apply float64 `json:"apply"`
}

// TestDelta measures the delta between two patch releases of Kubernetes, built from the published modules. The restored bundle has
// the bytes of the one that was compared.
func TestDelta(t *testing.T) {
	resultsDir(t)
	dir := t.TempDir()
	_, from := releaseSources(t, filepath.Join(dir, "from"), patchFrom, previousRelease(t))
	set, to := releaseSources(t, filepath.Join(dir, "to"), patchTo, labRelease(t))
	c := measureDelta(t, dir, "kubernetes", set, from, to)
	writeResult(t, "delta.json", map[string]any{
		"machine": thisMachine(), "load": load(), "kubernetes": c,
		"what": patchFrom + " to " + patchTo + ", four images with layers in gzip and three programs. The share is bytes of the delta to those of the full bundle. " +
			"create makes and compares two bundles, restore makes the full one, copy is refit bundle write of the full one to a file, load brings its images to an empty containerd. " +
			"apply is the processor time of restore to that of copy and load (make bench-site)",
	})
	if c.Share > maxPatchShare {
		t.Errorf("the delta of a patch release has %.3f of the full bundle, the limit is %.2f", c.Share, maxPatchShare)
	}
	if c.Apply > maxApply {
		t.Errorf("a node takes %.2f of the processor time of a plain load to apply the delta, the limit is %.2f", c.Apply, maxApply)
	}
}

// TestDeltaOfImages does the same for two versions of the thirty images, an eighth of their usual size.
func TestDeltaOfImages(t *testing.T) {
	resultsDir(t)
	dir := t.TempDir()
	var sources [2][]string
	var set *imageSet
	for i := range sources {
		set = &imageSet{dir: filepath.Join(dir, fmt.Sprint("set", i)), release: i, divide: setDivide}
		if err := set.write(); err != nil {
			t.Fatal(err)
		}
		sources[i] = []string{"oci:" + set.dir}
	}
	c := measureDelta(t, dir, "images", set, sources[0], sources[1])
	writeResult(t, "delta-images.json", map[string]any{
		"machine": thisMachine(), "load": load(), "images": c,
		"what": "thirty images, an eighth of their usual size; a second version rebuilds four of five layers and changes 15% of the files in them (make bench-site)",
	})
	if c.Share > maxSetShare {
		t.Errorf("the delta of thirty images has %.3f of the full bundle, the limit is %.2f", c.Share, maxSetShare)
	}
	if c.Apply > maxApply {
		t.Errorf("a node takes %.2f of the processor time of a plain load to apply the delta of thirty images, the limit is %.2f", c.Apply, maxApply)
	}
}

// setDivide makes the thirty images smaller.
const setDivide = 8

// measureDelta makes the delta between bundles of two lists of sources, and applies it. set has the images of the newer one.
func measureDelta(t *testing.T, dir, name string, set *imageSet, from, to []string) deltaCase {
	t.Helper()
	refit, err := filepath.Abs("../bin/refit")
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) string { return filepath.Join(dir, name+"-"+s) }
	create := func(out string, sources []string) []string {
		return append([]string{refit, "bundle", "create", "--unsigned", "--version", "1.0.0", "--output", out}, sources...)
	}
	run(t, nil, create(at("old"), from), create(at("new"), to))
	var c deltaCase
	c.Create = run(t, nil, append(create(at("delta"), to), "--base", at("old")))
	c.Restore = run(t, nil, []string{refit, "bundle", "restore", "--base", at("old"), at("delta"), "--output", at("again")})
	c.Copy = run(t, nil, []string{refit, "bundle", "write", at("new"), at("copy")})
	sums := map[string]string{}
	for _, s := range []string{"new", "again"} {
		sums[s] = fileSum(t, at(s))
	}
	if sums["new"] != sums["again"] {
		t.Fatalf("%s: the restored bundle has other bytes", name)
	}
	for s, n := range map[string]*int64{"new": &c.FullBytes, "delta": &c.DeltaBytes} {
		st, err := os.Stat(at(s))
		if err != nil {
			t.Fatal(err)
		}
		*n = st.Size()
	}
	c.Share = float64(c.DeltaBytes) / float64(c.FullBytes)
	c.Load = loadOnce(t, containerdBin(t), set, "", wayRefit)
	c.Apply = c.Restore.CPUSeconds / (c.Copy.CPUSeconds + c.Load.CPU)
	t.Logf("%s: %+v", name, c)
	return c
}

func fileSum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func labRelease(t *testing.T) string {
	t.Helper()
	k, err := components.Release(t.Context(), patchTo, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k.BinDir
}

// previousRelease builds the programs of the older release once for the user, as the lab builds the newer one.
func previousRelease(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	bin, module := filepath.Join(cache, "refit", "bench", "kubernetes-"+patchFrom), t.TempDir()
	mod, err := os.ReadFile("../internal/lab/components/modules/kubernetes-1.36.mod")
	if err != nil {
		t.Fatal(err)
	}
	old := strings.NewReplacer(patchTo, patchFrom, "v0"+patchTo[2:], "v0"+patchFrom[2:])
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(old.Replace(string(mod))), 0o600); err != nil {
		t.Fatal(err)
	}
	const version = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36 -X %[1]s.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=%[2]s", version, patchFrom)
	for _, name := range append(patchImages, patchPayloads...) {
		if _, err := os.Stat(filepath.Join(bin, name)); err == nil {
			continue
		}
		c := exec.Command("go", "build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", filepath.Join(bin, name), "k8s.io/kubernetes/cmd/"+name)
		c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if text, err := c.CombinedOutput(); err != nil {
			t.Fatalf("build %s of %s: %v\n%s", name, patchFrom, err, text)
		}
	}
	return bin
}

// releaseSources are the sources of a bundle with images and programs of a release, and the set of its images.
func releaseSources(t *testing.T, dir, version, bin string) (*imageSet, []string) {
	t.Helper()
	set := &imageSet{dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range patchImages {
		if err := set.program(name, version, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.index(); err != nil {
		t.Fatal(err)
	}
	sources := []string{"oci:" + dir}
	for _, p := range patchPayloads {
		sources = append(sources, fmt.Sprintf("payload:%s@%s=%s", p, version, filepath.Join(bin, p)))
	}
	return set, sources
}

// program adds an image of one program, as builders of images write its layer.
func (s *imageSet) program(name, version, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var raw, packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	tw := tar.NewWriter(io.MultiWriter(z, &raw))
	err = tw.WriteHeader(&tar.Header{Name: "usr/local/bin/" + name, Mode: 0o755, Size: int64(len(content))})
	for _, step := range []func() error{func() error { _, err := tw.Write(content); return err }, tw.Close, z.Close} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return err
	}
	blob := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.FromBytes(packed.Bytes()), Size: int64(packed.Len())}
	if err := os.WriteFile(s.path(blob.Digest), packed.Bytes(), 0o600); err != nil {
		return err
	}
	config, err := s.put(ocispec.MediaTypeImageConfig, ocispec.Image{Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(raw.Bytes())}}})
	if err != nil {
		return err
	}
	d, err := s.put(ocispec.MediaTypeImageManifest, ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: []ocispec.Descriptor{blob}})
	d.Annotations = map[string]string{ocispec.AnnotationRefName: "registry.k8s.io/" + name + ":" + version}
	s.images = append(s.images, d)
	return err
}

// index writes the files of the layout itself.
func (s *imageSet) index() error {
	for name, v := range map[string]any{"oci-layout": ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion},
		"index.json": ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: s.images}} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// edited is a writer of a file that the next version changed a little: one byte of each two kilobytes.
type edited struct {
	w    io.Writer
	left int
}

func (e *edited) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), e.left)
		if _, err := e.w.Write(p[:n]); err != nil {
			return 0, err
		}
		p, e.left = p[n:], e.left-n
		if len(p) == 0 {
			break
		}
		if _, err := e.w.Write([]byte{p[0] + 1}); err != nil {
			return 0, err
		}
		p, e.left = p[1:], 2048
	}
	return total, nil
}
