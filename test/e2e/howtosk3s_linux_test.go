package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestHowToK3s types k3s-rke2-k0s.md for the lab's look-alike of k3s: its program and its images
// are in a directory as the files of a release are. refit makes the bundle of that directory,
// and the cluster of three nodes moves to it.
func TestHowToK3s(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own, and a page typed by hand: make e2e")
	}
	const page = "k3s-rke2-k0s.md"
	d := lookAlikes[0]
	s := prepared(t, scenario.Options{Name: "howtok3s", Distribution: d.name, From: d.from, To: d.to, Nodes: 3, MediumNode: "n2"})
	ctx := t.Context()
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	h := administrator(t, s)
	keepResult(t, "howtos-k3s.json", func() any {
		return map[string]any{"distribution": "look-alike of " + d.name, "typed": h.typed, "steps": played[t.Name()]}
	})
	program, err := components.ForLookAlike(ctx, d.to, func(line string) { t.Log(line) })
	must(t, err)
	var b scenario.Bundle
	var device string
	step(t, "a bundle is made of the files of a release", func(t *testing.T) {
		must(t, k3sRelease(filepath.Join(h.dir, "release"), program))
		h.types(t, page, 1)
		b, err = s.Inspect(ctx, filepath.Join(h.dir, "release.bundle"))
		must(t, err)
		for _, i := range program.Release.OnEveryNode() {
			if b.Images[i.Name] == "" {
				t.Errorf("the bundle does not have %s", i.Name)
			}
		}
	})
	step(t, "the cluster moves to the release", func(t *testing.T) {
		device, err = s.Insert(ctx, s.MediumNode, b)
		must(t, err)
		must(t, s.Install(ctx, b, device))
		h.untilFound(t, 1)
		if said := h.types(t, page, 3); !strings.Contains(said, "3 of 3 nodes are at") {
			t.Errorf("the update is not done: %s", said)
		}
		for _, n := range s.Lab.Nodes() {
			version, ready, err := s.Kubelet(ctx, n)
			must(t, err)
			if version != d.to || !ready {
				t.Errorf("node %s runs %s, ready: %v, want %s", n, version, ready, d.to)
			}
		}
	})
	step(t, "the program in the bundle is that of the release", func(t *testing.T) {
		h.types(t, page, 4)
		want, err := sumOf(program.Program)
		must(t, err)
		if sum, err := sumOf(filepath.Join(h.dir, "k3s")); err != nil || sum != want {
			t.Errorf("the extracted program has the digest %s, want %s: %v", sum, want, err)
		}
	})
	step(t, "the table has exactly the blocks that were typed", func(t *testing.T) { h.compareTable(t) })
}

// k3sRelease writes the files of a release of k3s: the program, the list of images, one archive
// of all images, and checksums.
func k3sRelease(dir string, p *components.LookAlike) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name, archive := "k3s", "k3s-airgap-images-"+runtime.GOARCH+".tar"
	if runtime.GOARCH != "amd64" {
		name += "-" + runtime.GOARCH
	}
	if err := os.Symlink(p.Program, filepath.Join(dir, name)); err != nil {
		return err
	}
	var list, sums bytes.Buffer
	images := p.Release.OnEveryNode()
	for _, i := range images {
		fmt.Fprintln(&list, i.Name)
	}
	if err := joinArchives(filepath.Join(dir, archive), images); err != nil {
		return err
	}
	for _, file := range []string{name, archive} {
		sum, err := sumOf(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, file)
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "k3s-images.txt"), list.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, "sha256sum-"+runtime.GOARCH+".txt"), sums.Bytes(), 0o644))
}

// joinArchives makes one archive of images, each under its name.
func joinArchives(path string, images []components.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	all := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	written := map[string]bool{}
	for _, i := range images {
		index, err := copyBlobs(w, i.Archive, written)
		if err != nil {
			return fmt.Errorf("%s: %w", i.Archive, err)
		}
		for _, m := range index.Manifests {
			m.Annotations = map[string]string{"io.containerd.image.name": i.Name, ocispec.AnnotationRefName: i.Name}
			all.Manifests = append(all.Manifests, m)
		}
	}
	index, err := json.Marshal(all)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// copyBlobs copies the blobs of an archive that were not written yet, and returns its index.
func copyBlobs(w *tar.Writer, archive string, written map[string]bool) (index ocispec.Index, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return index, err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		head, err := r.Next()
		switch {
		case err == io.EOF:
			return index, nil
		case err != nil:
			return index, err
		case head.Name == "index.json":
			if err := json.NewDecoder(r).Decode(&index); err != nil {
				return index, err
			}
		case strings.HasPrefix(head.Name, "blobs/") && head.Typeflag == tar.TypeReg && !written[head.Name]:
			written[head.Name] = true
			if err := w.WriteHeader(&tar.Header{Name: head.Name, Mode: 0o644, Size: head.Size}); err != nil {
				return index, err
			}
			if _, err := io.Copy(w, r); err != nil {
				return index, err
			}
		}
	}
}

// sumOf is the SHA-256 of a file.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
