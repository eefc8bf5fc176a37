package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/oci"
)

// image packs refit's own image for all architectures as an OCI archive.
func (r *release) image(platforms []platform) error {
	return r.ociArchive(platforms, oci.SelfImage, "refit-image")
}

// providersImage packs the image of refit-providers in the same form.
func (r *release) providersImage(platforms []platform) error {
	return r.ociArchive(platforms, oci.ProvidersImage, providers+"-image")
}

func (r *release) ociArchive(platforms []platform, of oci.ReleaseImage, name string) error {
	dir, err := os.MkdirTemp(r.output, ".image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dirs := map[string]string{}
	for _, p := range platforms {
		if p.os == "linux" {
			dirs[p.arch] = filepath.Join(r.binaries, p.dir())
		}
	}
	dir = filepath.Join(dir, "image")
	if err := of.WriteIndex(dirs, dir, r.version); err != nil {
		return err
	}
	var files []packed
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		files = append(files, packed{name: filepath.ToSlash(name), from: file, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(r.output, name+"_"+r.version+".tar"), func(w io.Writer) error { return tarPlain(w, files, r.date) })
}
