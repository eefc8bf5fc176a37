package oci

import (
	"archive/tar"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ReleaseImage is an image of a release: programs in its root, and nothing else.
type ReleaseImage struct {
	// Repository is the name of the image without its tag.
	Repository string
	// Programs are the files of the image. The first one starts.
	Programs []string
}

// SelfImage is refit's own image.
var SelfImage = ReleaseImage{"refit.dev/refit", []string{"refit", "refit-agent", "refit-controller"}}

// ProvidersImage has the optional program that asks clouds about boot images.
var ProvidersImage = ReleaseImage{"refit.dev/refit-providers", []string{"refit-providers"}}

// Write writes the image of the programs in dir (default: the directory of this program) as an
// OCI layout to output, and returns its name and digest. It replaces an existing layout at output.
func (r ReleaseImage) Write(dir, output, version string) (name, digest string, err error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", "", err
		}
		dir = filepath.Dir(self)
	}
	img, err := r.build(dir, runtime.GOARCH)
	if err != nil {
		return "", "", err
	}
	name = r.Repository + ":" + version
	if err := writeReleaseLayout(output, func(p layout.Path) error { return p.AppendImage(img, named(name)) }); err != nil {
		return "", "", err
	}
	d, err := img.Digest()
	return name, d.String(), err
}

// WriteIndex writes one image for several architectures as an OCI layout to output. dirs has the
// directory with the programs of each architecture, as Go names it.
func (r ReleaseImage) WriteIndex(dirs map[string]string, output, version string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(dirs)) {
		img, err := r.build(dirs[arch], arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return writeReleaseLayout(output, func(p layout.Path) error { return p.AppendIndex(index, named(r.Repository+":"+version)) })
}

func named(name string) layout.Option {
	return layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})
}

func (r ReleaseImage) build(dir, arch string) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return releaseLayer(dir, r.Programs), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("image layer from %s: %w; run make build first", dir, err)
	}
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err = mutate.AppendLayers(img, layer)
	if err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", arch
	cfg.Config.Entrypoint = []string{"/" + r.Programs[0]}
	cfg.Config.User = "65532:65532"
	cfg.Config.Env = []string{"PATH=/"}
	return mutate.ConfigFile(img, cfg)
}

func writeReleaseLayout(output string, appendTo func(layout.Path) error) error {
	tmp := output + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // a no-op after the rename
	p, err := layout.Write(tmp, empty.Index)
	if err != nil {
		return err
	}
	if err := appendTo(p); err != nil {
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	return os.Rename(tmp, output)
}

// releaseLayer streams the programs as a tar with fixed headers.
func releaseLayer(dir string, programs []string) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeReleaseTar(w, dir, programs)) }()
	return r
}

func writeReleaseTar(w io.Writer, dir string, programs []string) error {
	t := tar.NewWriter(w)
	for _, name := range programs {
		if err := addReleaseFile(t, dir, name); err != nil {
			return err
		}
	}
	return t.Close()
}

func addReleaseFile(t *tar.Writer, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: st.Size(), Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}
