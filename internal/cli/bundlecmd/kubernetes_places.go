package bundlecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
)

// openPlaces opens the places of --kubernetes-from; nothing is read or connected yet.
func (r *releaseReader) openPlaces(from []string) (places []programPlace, err error) {
	if len(from) == 0 {
		from = []string{releaseServer}
		fmt.Fprintf(r.out, "kubernetes %s: programs come from %s; --kubernetes-from names another place\n", r.version, releaseServer)
	}
	for _, s := range from {
		p, err := r.openPlace(s)
		if err != nil {
			return nil, err
		}
		places = append(places, p)
	}
	return places, nil
}

func (r *releaseReader) openPlace(s string) (programPlace, error) {
	if strings.Contains(s, "://") {
		u, err := parseReleaseURL(s)
		if err != nil {
			return nil, err
		}
		d := newDownloader(r.cache, r.out)
		if isArchive(u.Path) {
			return &archivePlace{name: path.Base(u.Path), origin: u.Redacted(), cache: r.cache, fetch: func(ctx context.Context) (string, string, error) { return d.fetch(ctx, u) }}, nil
		}
		return &serverPlace{base: u, version: r.version, download: d}, nil
	}
	st, err := os.Stat(s)
	switch {
	case err != nil:
		return nil, console.UsageError(fmt.Errorf("--kubernetes-from: %w", err))
	case st.IsDir():
		return &dirPlace{dir: s, version: r.version, cache: r.cache, archives: map[string]*archivePlace{}}, nil
	}
	return localArchive(s, filepath.Dir(s), r.cache), nil
}

func isArchive(name string) bool {
	return strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}

// dirPlace is a directory with programs or official archives.
type dirPlace struct {
	dir, version string
	cache        *programCache
	archives     map[string]*archivePlace
}

// programPaths are the places of a program in a directory: as on the release servers, and
// flat. CNI plugins have an archive only.
func programPaths(name, version, arch string) []string {
	if name == bundle.PayloadCNIPlugins {
		return nil
	}
	file := "linux/" + arch + "/" + name
	return []string{version + "/bin/" + file, "bin/" + file, file, name}
}

// archivePatterns match the official archives of a directory that have a program.
func archivePatterns(name, version, arch string) []string {
	switch name {
	case programCrictl:
		return []string{"crictl-*-linux-" + arch + ".tar.gz"}
	case bundle.PayloadCNIPlugins:
		return []string{"cni-plugins-linux-" + arch + "-*.tgz"}
	}
	server, node := "kubernetes-server-linux-"+arch+".tar.gz", "kubernetes-node-linux-"+arch+".tar.gz"
	return []string{node, version + "/" + node, server, version + "/" + server}
}

func (d *dirPlace) find(ctx context.Context, name, arch string) (*releaseProgram, error) {
	why := fmt.Sprintf("%s has no %s for linux/%s", d.dir, name, arch)
	for _, rel := range programPaths(name, d.version, arch) {
		file := filepath.Join(d.dir, filepath.FromSlash(rel))
		is, err := platformOf(file)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotRegular):
			continue
		case err != nil:
			return nil, err
		case is != "" && is != "linux/"+arch:
			why += fmt.Sprintf(", %s is for %s", rel, is)
			continue
		}
		check, err := verifySums(file, d.dir)
		if err != nil {
			return nil, err
		}
		runs, err := d.cache.executable(file)
		return &releaseProgram{name: name, arch: arch, path: runs, origin: file, check: check}, err
	}
	a, err := d.archive(name, arch)
	if a == nil && err == nil {
		err = &missingError{why}
	}
	if err != nil {
		return nil, err
	}
	return a.find(ctx, name, arch)
}

// archive is the one official archive of the directory with a program, nil if there is none.
func (d *dirPlace) archive(name, arch string) (*archivePlace, error) {
	var found []string
	for _, pattern := range archivePatterns(name, d.version, arch) {
		more, err := fs.Glob(os.DirFS(d.dir), pattern)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", d.dir, err)
		}
		found = append(found, more...)
		if len(found) > 0 {
			break
		}
	}
	switch {
	case len(found) == 0:
		return nil, nil
	case len(found) > 1:
		return nil, console.UsageErrorf("%s has more than one archive with %s: %s. Leave one there, or name one with --kubernetes-from", d.dir, name, strings.Join(found, ", "))
	}
	file := filepath.Join(d.dir, filepath.FromSlash(found[0]))
	if d.archives[file] == nil {
		d.archives[file] = localArchive(file, d.dir, d.cache)
	}
	return d.archives[file], nil
}

var errNotRegular = errors.New("not a regular file")

// platformOf is the platform of a program, "" for a file that is no program.
func platformOf(file string) (string, error) {
	st, err := os.Stat(file)
	if errors.Is(err, syscall.ENOTDIR) {
		return "", fs.ErrNotExist
	}
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", errNotRegular
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return bundlewriter.ProgramPlatform(f), nil
}

// checkVersion refuses a program that was not built as a version.
func (p *releaseProgram) checkVersion(version string) error {
	if !slices.Contains(releasePrograms, p.name) {
		return nil
	}
	ok, err := p.hasVersion(version)
	if err == nil && !ok {
		err = console.UsageErrorf("kubernetes %s: %s for linux/%s from %s is not %s. Name a place with programs of that release", version, p.name, p.arch, p.origin, version)
	}
	return err
}

// hasVersion reports whether a program was built as a version; true for a script. Programs for
// other machines do not run here, so it searches for the version as Go's linker writes it. That
// has a zero byte at its end, unlike the versions of a program's dependencies.
func (p *releaseProgram) hasVersion(version string) (bool, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if bundlewriter.ProgramPlatform(f) == "" {
		return true, nil
	}
	return hasText(f, append([]byte(version), 0))
}

// hasText reports whether a text occurs; memory is bounded.
func hasText(r io.Reader, want []byte) (bool, error) {
	buf := make([]byte, 256<<10)
	kept := 0
	for {
		n, err := r.Read(buf[kept:])
		data := buf[:kept+n]
		if bytes.Contains(data, want) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept = copy(buf, data[max(0, len(data)-len(want)+1):])
	}
}

// serverPlace is the base URL of a release server: BASE/VERSION/bin/linux/ARCH/NAME.
type serverPlace struct {
	base     *url.URL
	version  string
	download *downloader
}

func (s *serverPlace) find(ctx context.Context, name, arch string) (*releaseProgram, error) {
	if !slices.Contains(releasePrograms, name) {
		return nil, missingf("%s: release servers have no %s", s.base.Redacted(), name)
	}
	u := s.base.JoinPath(s.version, "bin", "linux", arch, name)
	file, check, err := s.download.fetch(ctx, u)
	if err != nil {
		return nil, err
	}
	if is, err := platformOf(file); err != nil || is != "" && is != "linux/"+arch {
		return nil, errors.Join(err, fmt.Errorf("%s is a program for %q", u.Redacted(), is))
	}
	return &releaseProgram{name: name, arch: arch, path: file, origin: u.Redacted(), check: check}, nil
}
