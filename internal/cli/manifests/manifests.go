package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// ConfigName is the default file in the current directory.
const ConfigName = ".refit-lint.yaml"

// Config reads the disabled rules; without a name from the file in the current
// directory, if it exists.
func Config(file string) (lint.Config, error) {
	name := file
	if name == "" {
		name = ConfigName
	}
	data, err := os.ReadFile(name)
	if file == "" && errors.Is(err, fs.ErrNotExist) {
		return lint.Config{}, nil
	}
	if err != nil {
		return lint.Config{}, exit.Usage(err)
	}
	c, err := lint.ReadConfig(data)
	if err != nil {
		return c, exit.Usage(fmt.Errorf("%s: %w", name, err))
	}
	return c, nil
}

// maxManifest is the largest file that is read, in bytes.
const maxManifest = 64 << 20

// Read reads files, directories and standard input (-).
func Read(stdin io.Reader, paths []string) ([]lint.Object, error) {
	var all []lint.Object
	for _, p := range paths {
		if p == "-" {
			data, err := io.ReadAll(io.LimitReader(stdin, maxManifest))
			if err != nil {
				return nil, err
			}
			objects, err := lint.Parse("stdin", data)
			if err != nil {
				return nil, exit.Usage(err)
			}
			all = append(all, objects...)
			continue
		}
		objects, err := folder(p)
		if err != nil {
			return nil, exit.Usage(err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

func folder(root string) ([]lint.Object, error) {
	var all []lint.Object
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if path != root && !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))) {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Size() > maxManifest {
			return fmt.Errorf("%s has %d bytes, too many for a manifest", path, info.Size())
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := lint.Parse(path, data)
		all = append(all, objects...)
		return err
	})
	return all, err
}

// BundleImages returns a bundle's images: digest by name, as runtimes write it.
func BundleImages(file string) (map[string]string, error) {
	b, err := bundlereader.OpenPath(file)
	if err != nil {
		return nil, exit.With(exit.Verification, fmt.Errorf("bundle %s: %w", file, err))
	}
	defer b.Close()
	return Names(b.Header().Metadata.Images), nil
}

// Names of images with their digests.
func Names(images []bundle.Image) map[string]string {
	out := map[string]string{}
	for _, i := range images {
		out[canonical(i.Name)] = i.Digest
	}
	return out
}

// canonical returns a name as runtimes write it.
func canonical(image string) string {
	r, err := imagetag.ParseRef(image)
	if err != nil {
		return image
	}
	return r.String()
}
