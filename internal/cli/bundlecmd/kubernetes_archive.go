package bundlecmd

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// maxProgram bounds the bytes of a program in an archive, which claims its own sizes.
const maxProgram = 1 << 30

// archivePlace is an official archive.
type archivePlace struct {
	// name is that of the file; origin is its place, for people.
	name, origin string
	cache        *programCache
	// fetch returns the verified file.
	fetch func(context.Context) (file, check string, err error)

	// Once it was read: how it was verified, and the programs in it by name.
	check string
	files map[string]string
}

func localArchive(file, root string, cache *programCache) *archivePlace {
	return &archivePlace{name: filepath.Base(file), origin: file, cache: cache, fetch: func(context.Context) (string, string, error) {
		check, err := verifySums(file, root)
		return file, check, err
	}}
}

var (
	crictlArchive  = regexp.MustCompile(`^crictl-(v[^-]+(?:-.+)?)-linux-([a-z0-9]+)\.tar\.gz$`)
	pluginsArchive = regexp.MustCompile(`^cni-plugins-linux-([a-z0-9]+)-(v.+)\.tgz$`)
	releaseArchive = regexp.MustCompile(`^kubernetes-(?:server|node)-linux-([a-z0-9]+)\.tar\.gz$`)
)

// archiveFacts reads the name of an archive: the programs that may be in it, and if the name
// has them, the architecture and the version.
func archiveFacts(name string) (programs []string, arch, version string) {
	if m := crictlArchive.FindStringSubmatch(name); m != nil {
		return []string{programCrictl}, m[2], m[1]
	}
	if m := pluginsArchive.FindStringSubmatch(name); m != nil {
		return []string{bundle.PayloadCNIPlugins}, m[1], m[2]
	}
	if m := releaseArchive.FindStringSubmatch(name); m != nil {
		arch = m[1]
	}
	return releasePrograms, arch, ""
}

// archivedProgram is the program that an entry of an archive is, "" for others.
func archivedProgram(entry string, programs []string) string {
	entry = path.Clean(entry)
	dir, base := path.Split(entry)
	top := dir == "" && base == programCrictl
	release := slices.Contains([]string{"kubernetes/server/bin/", "kubernetes/node/bin/"}, dir)
	rke2 := dir == "bin/" && base == distribution.RKE2
	if (top || release || rke2) && slices.Contains(programs, base) {
		return base
	}
	return ""
}

func (a *archivePlace) find(ctx context.Context, name, arch string) (*releaseProgram, error) {
	programs, its, version := archiveFacts(a.name)
	if !slices.Contains(programs, name) || its != "" && its != arch {
		return nil, missingf("%s has no %s for linux/%s", a.origin, name, arch)
	}
	if err := a.read(ctx, programs); err != nil {
		return nil, err
	}
	file := a.files[name]
	if file == "" {
		return nil, missingf("%s has no %s", a.origin, name)
	}
	is, err := platformOf(file)
	if err != nil {
		return nil, err
	}
	if is != "" && is != "linux/"+arch {
		return nil, missingf("%s is for %s", a.origin, is)
	}
	return &releaseProgram{name: name, arch: arch, version: version, path: file, origin: a.origin, check: a.check}, nil
}

// read verifies the archive and unpacks its programs into the cache, once for its bytes.
func (a *archivePlace) read(ctx context.Context, programs []string) error {
	if a.files != nil {
		return nil
	}
	file, check, err := a.fetch(ctx)
	if err != nil {
		return err
	}
	files := map[string]string{}
	if programs[0] == bundle.PayloadCNIPlugins {
		files[programs[0]] = file // nodes unpack it
	} else if files, err = a.unpack(ctx, file, programs); err != nil {
		return fmt.Errorf("archive %s: %w", a.origin, err)
	}
	a.files, a.check = files, check
	return nil
}

func (a *archivePlace) unpack(ctx context.Context, file string, programs []string) (map[string]string, error) {
	digest, err := fsutil.Digest(file)
	if err != nil {
		return nil, err
	}
	dir, err := a.cache.subdir("unpacked-" + strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		err = unpackInto(ctx, file, programs, dir)
		if err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		files[e.Name()] = filepath.Join(dir, e.Name())
	}
	return files, nil
}

// unpackInto writes the programs of an archive into a directory that is complete, or not there.
func unpackInto(ctx context.Context, file string, programs []string, dir string) error {
	half := dir + partialSuffix
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(half) // a no-op after the rename
	n, err := unpackPrograms(ctx, file, programs, half)
	if err != nil {
		return err
	}
	if n == 0 {
		have := "kubernetes-server-linux-ARCH.tar.gz and kubernetes-node-linux-ARCH.tar.gz have kubernetes/server/bin or kubernetes/node/bin"
		if slices.Contains(programs, distribution.RKE2) {
			have = "rke2.linux-ARCH.tar.gz has bin/rke2"
		}
		return console.UsageErrorf("it has no %s, so it is not an official archive: %s", strings.Join(programs, ", "), have)
	}
	if err := os.Rename(half, dir); err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(dir))
}

// unpackPrograms writes the programs of an archive into a directory, and returns how many.
func unpackPrograms(ctx context.Context, file string, programs []string, dir string) (int, error) {
	f, err := fsutil.OpenRegular(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		return 0, console.UsageError(fmt.Errorf("it is not a tar compressed by gzip: %w", err))
	}
	tr := tar.NewReader(z)
	n := 0
	for n < len(programs) {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return n, err
		}
		name := archivedProgram(h.Name, programs)
		if name == "" || h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > maxProgram {
			return n, fmt.Errorf("%s has %d bytes, more than the %d allowed", h.Name, h.Size, maxProgram)
		}
		if err := saveProgram(filepath.Join(dir, name), tr); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
