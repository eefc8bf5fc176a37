package containerd

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

// dockerSave is what docker save writes for an image of one layer.
func dockerSave(t *testing.T, name, arch string) []byte {
	t.Helper()
	var layer, out bytes.Buffer
	entry := func(w *tar.Writer, name string, content []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	w := tar.NewWriter(&layer)
	entry(w, "arch", []byte(arch))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"architecture":%q,"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, arch, sha256.Sum256(layer.Bytes()))
	w = tar.NewWriter(&out)
	entry(w, "layer.tar", layer.Bytes())
	entry(w, "config.json", []byte(config))
	entry(w, "manifest.json", fmt.Appendf(nil, `[{"Config":"config.json","RepoTags":[%q],"Layers":["layer.tar"]}]`, name))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A bundle has one image of the archives of two platforms, as releases of k3s and RKE2 have them.
// A node loads its index, and the blobs of its own platform.
func TestLoadImageOfTwoArchives(t *testing.T) {
	d := startDaemon(t)
	c, err := Open(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	const name, foreign = "docker.io/rancher/mirrored-pause:3.6", "s390x"
	o := bundlewriter.Options{Version: "1.36.3+k3s1"}
	for _, arch := range []string{runtime.GOARCH, foreign} {
		file := filepath.Join(dir, arch+".tar")
		if err := os.WriteFile(file, dockerSave(t, "rancher/mirrored-pause:3.6", arch), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Sources, o.Platforms = append(o.Sources, "docker-archive:"+file), append(o.Platforms, "linux/"+arch)
	}
	path := filepath.Join(dir, "release.bundle")
	h, err := bundlewriter.Create(t.Context(), path, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundlereader.OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blobs := blobMap{}
	for i, b := range h.Metadata.Blobs {
		if blobs[b.Digest], err = io.ReadAll(f.Blob(i)); err != nil {
			t.Fatal(err)
		}
	}
	image := h.ImageByName(name)
	if image == nil {
		t.Fatalf("the bundle has no %s", name)
	}
	var index ocispec.Index
	if err := json.Unmarshal(blobs[image.Digest], &index); err != nil || len(index.Manifests) != 2 {
		t.Fatalf("index %s, %v", blobs[image.Digest], err)
	}
	for _, m := range index.Manifests {
		if m.Platform.Architecture == foreign {
			delete(blobs, m.Digest.String()) // as on the node
		}
	}
	img := Image{Name: image.Name, Digest: image.Digest, MediaType: image.MediaType, Size: int64(len(blobs[image.Digest]))}
	if _, err := c.Load(t.Context(), img, blobs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "image held and pinned per CRI", held(t, c, img))
}
