package bundlewriter

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// dockerArchive has an image of a layout, as skopeo writes it for docker load.
func dockerArchive(t *testing.T, dir, name, output string) {
	t.Helper()
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed")
	}
	out, err := exec.Command(skopeo, "--insecure-policy", "copy", "oci:"+dir+":"+name, "docker-archive:"+output).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A bundle of a Docker archive that another tool wrote: with the original name, unpacked layers
// with their diffIDs, and the same digest from each form of compression.
func TestDockerArchivesOfSkopeo(t *testing.T) {
	shared := gzipLayer(t, 1, 40000)
	dir := layoutOf(t, named{pauseName, image(t, "amd64", shared)}, named{appName, image(t, "amd64", shared, gzipLayer(t, 2, 30000))})
	tmp := t.TempDir()
	plain := filepath.Join(tmp, "a.tar")
	dockerArchive(t, dir, appName, plain+":"+appName)
	_, want := create(t, Options{Sources: []string{"docker-archive:" + plain}})
	if got := imageNames(want); !slices.Equal(got, []string{appName}) {
		t.Fatal(got)
	}
	var digests []string
	for _, b := range want.Metadata.Blobs {
		digests = append(digests, b.Digest)
	}
	for seed, size := range map[int64]int{1: 40000, 2: 30000} {
		if !slices.Contains(digests, bundle.DigestOf(layerTar(seed, size))) {
			t.Errorf("layer %d is not there as its unpacked bytes", seed)
		}
	}
	for suffix, args := range map[string][]string{"gz": {"gzip", "-k"}, "zst": {"zstd", "-q", "-k", "--long=25"}} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Logf("%s is not installed", args[0])
			continue
		}
		if out, err := exec.Command(args[0], append(args[1:], plain)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, h := create(t, Options{Sources: []string{"docker-archive:" + plain + "." + suffix + ":v1"}}); h.Digest != want.Digest {
			t.Errorf("%s: bundle %s, want %s", suffix, h.Digest, want.Digest)
		}
	}

	// Two archives with a common layer: it is in the bundle once.
	other := filepath.Join(tmp, "b.tar")
	dockerArchive(t, dir, pauseName, other+":"+pauseName)
	_, both := create(t, Options{Sources: []string{"docker-archive:" + plain, "docker-archive:" + other}})
	if len(both.Metadata.Images) != 2 || len(both.Metadata.Blobs) != len(want.Metadata.Blobs)+2 {
		t.Errorf("%d images, %d blobs, %d of the first", len(both.Metadata.Images), len(both.Metadata.Blobs), len(want.Metadata.Blobs))
	}

	// Without a tag.
	bare := filepath.Join(tmp, "c.tar")
	dockerArchive(t, dir, pauseName, bare)
	_, err := Create(t.Context(), filepath.Join(tmp, "out"), Options{Sources: []string{"docker-archive:" + bare}, Version: "1.0.0"}, nil)
	var input *InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "name it with NAME=docker-archive:") {
		t.Errorf("without a tag: %v", err)
	}
	if _, h := create(t, Options{Sources: []string{pauseName + "=docker-archive:" + bare}}); h.ImageByName(pauseName) == nil {
		t.Errorf("with a name: %v", imageNames(h))
	}

	// A layer of other bytes is found when it is copied.
	content, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(content, layerTar(1, 40000)[1000:1100])
	if i < 0 {
		t.Fatal("the archive does not have the layer")
	}
	content[i] ^= 1
	if err := os.WriteFile(plain, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), filepath.Join(tmp, "out"), Options{Sources: []string{"docker-archive:" + plain}, Version: "1.0.0"}, nil); err == nil || !strings.Contains(err.Error(), "the source has other bytes") {
		t.Errorf("a damaged layer: %v", err)
	}
}

func imageNames(h *bundle.Header) []string {
	var out []string
	for _, i := range h.Metadata.Images {
		out = append(out, i.Name)
	}
	return out
}

func TestDockerArchiveIsASource(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Source{
		"docker-archive:f.tar":                    {Kind: "docker-archive", Path: "f.tar"},
		"docker-archive:f.tar.zst:r.example/a:v1": {Kind: "docker-archive", Path: "f.tar.zst", Tag: "r.example/a:v1"},
		"r.example/a:v1=docker-archive:f.tar":     {Kind: "docker-archive", As: "r.example/a:v1", Path: "f.tar"},
		"docker://r.example/docker-archive:1":     {Kind: "docker", Path: "r.example/docker-archive:1"},
	} {
		if got, err := ParseSource(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}
