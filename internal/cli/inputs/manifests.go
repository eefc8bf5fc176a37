package inputs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// LintConfigName is the default file in the current directory.
const LintConfigName = ".refit-lint.yaml"

// ReadLintConfig reads the disabled rules; without a name from the file in the current
// directory, if it exists.
func ReadLintConfig(file string) (lint.Config, error) {
	name := file
	if name == "" {
		name = LintConfigName
	}
	data, err := os.ReadFile(name)
	if file == "" && errors.Is(err, fs.ErrNotExist) {
		return lint.Config{}, nil
	}
	if err != nil {
		return lint.Config{}, console.UsageError(err)
	}
	c, err := lint.ReadConfig(data)
	if err != nil {
		return c, console.UsageError(fmt.Errorf("%s: %w", name, err))
	}
	return c, nil
}

// maxManifest is the largest file that is read, in bytes.
const maxManifest = 64 << 20

// ReadManifests reads files, directories and standard input (-).
func ReadManifests(stdin io.Reader, paths []string) ([]lint.Object, error) {
	var all []lint.Object
	for _, p := range paths {
		if p == "-" {
			data, err := io.ReadAll(io.LimitReader(stdin, maxManifest))
			if err != nil {
				return nil, err
			}
			objects, err := lint.Parse("stdin", data)
			if err != nil {
				return nil, console.UsageError(err)
			}
			all = append(all, objects...)
			continue
		}
		objects, err := readFolder(p)
		if err != nil {
			return nil, console.UsageError(err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

func readFolder(root string) ([]lint.Object, error) {
	var all []lint.Object
	err := eachManifestFile(root, maxManifest, func(path string, data []byte) error {
		objects, err := lint.Parse(path, data)
		all = append(all, objects...)
		return err
	})
	return all, err
}

// eachManifestFile calls f for a file, or for the manifests of a directory in the order of
// their names. most is the largest file in bytes.
func eachManifestFile(root string, most int64, f func(path string, data []byte) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if path != root && !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))) {
			return nil
		}
		data, err := fsutil.ReadSmall(path, most)
		if err != nil {
			return err
		}
		return f(path, data)
	})
}

// BundleError gives an error of opening a bundle its exit code. Several bundles on a medium are
// no damage: the user names one of them.
func BundleError(err error) error {
	var several *bundlereader.SeveralError
	if errors.As(err, &several) {
		return console.UsageError(err)
	}
	return console.WithExit(console.ExitVerification, err)
}

// ReadBundleImages returns a bundle's images: digest by name, as runtimes write it.
func ReadBundleImages(file string) (map[string]string, error) {
	b, err := bundlereader.OpenPath(file)
	if err != nil {
		return nil, BundleError(fmt.Errorf("bundle %s: %w", file, err))
	}
	defer b.Close()
	return MergeImageNames(b.Header().Metadata.Images), nil
}

// MergeImageNames returns the digests of images by canonical name.
func MergeImageNames(images []bundle.Image) map[string]string {
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
