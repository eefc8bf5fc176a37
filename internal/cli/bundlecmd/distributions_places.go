package bundlecmd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
)

// maxImageList bounds a list of images in bytes.
const maxImageList = 1 << 20

// releaseFile is a file of a release.
type releaseFile struct {
	path string
	// origin and check are for people: where it is from and how it was verified.
	origin, check string
}

// releasePlace has files of a release of a distribution.
type releasePlace interface {
	// file returns a file, compared with its checksum in the list sums; *missingError if the
	// place does not have it.
	file(ctx context.Context, name, sums string) (*releaseFile, error)
	// text returns a list of images, also one without a checksum.
	text(ctx context.Context, name, sums string) (text string, f *releaseFile, err error)
	// parts are the parts of RKE2's images that the place has, if it can list its files.
	parts(arch string) []string
}

// openPlaces opens the places of --kubernetes-from; nothing is read or connected yet.
func (r *distributionReader) openPlaces(from []string) error {
	if len(from) == 0 {
		from = []string{r.layout.server}
		fmt.Fprintf(r.out, "%s: files come from %s; --kubernetes-from names another place\n", r, r.layout.server)
	}
	for _, s := range from {
		p, err := r.openPlace(s)
		if err != nil {
			return err
		}
		r.places = append(r.places, p)
	}
	return nil
}

func (r *distributionReader) openPlace(s string) (releasePlace, error) {
	if strings.Contains(s, "://") {
		u, err := parseReleaseURL(s)
		if err != nil {
			return nil, err
		}
		return &releaseServerPlace{base: u, version: r.version, download: newDownloader(r.cache, r.out), lists: map[string]string{}}, nil
	}
	st, err := os.Stat(s)
	switch {
	case err != nil:
		return nil, console.UsageError(fmt.Errorf("--kubernetes-from: %w", err))
	case !st.IsDir():
		return nil, console.UsageErrorf("--kubernetes-from %s: name the directory with the files of the release of %s, or a URL", s, r.layout.title)
	}
	return &releaseDir{dir: s, version: r.version}, nil
}

// releaseDir is a directory with the files of a release, or with a directory VERSION of them.
type releaseDir struct{ dir, version string }

func (d *releaseDir) dirs() []string { return []string{filepath.Join(d.dir, d.version), d.dir} }

func (d *releaseDir) file(_ context.Context, name, sums string) (*releaseFile, error) {
	for _, dir := range d.dirs() {
		file := filepath.Join(dir, name)
		st, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		check, err := verifyRelease(file, d.dir, filepath.Join(dir, sums))
		return &releaseFile{path: file, origin: file, check: check}, err
	}
	return nil, missingf("%s has no %s", d.dir, name)
}

// verifyRelease compares a file with its checksum in a list, and with every other one next to it.
func verifyRelease(file, root, list string) (check string, err error) {
	all, err := findSums(file, root)
	if err != nil {
		return "", err
	}
	text, err := readSums(list)
	if err != nil {
		return "", err
	}
	if sum := findSum(text, filepath.Base(file), sha256.Size); sum != "" {
		all = append(all, checksum{"SHA-256", sum, list})
	}
	return verifyAll(file, all)
}

func (d *releaseDir) text(ctx context.Context, name, sums string) (string, *releaseFile, error) {
	f, err := d.file(ctx, name, sums)
	if err != nil {
		return "", nil, err
	}
	b, err := fsutil.ReadSmall(f.path, maxImageList)
	if err != nil {
		return "", nil, fmt.Errorf("list of images: %w", err)
	}
	return string(b), f, nil
}

// parts are those that have a list or an archive.
func (d *releaseDir) parts(arch string) []string {
	var out []string
	for _, dir := range d.dirs() {
		entries, _ := os.ReadDir(dir) // file reports a directory that cannot be read
		for _, e := range entries {
			if part, ok := partOf(e.Name(), arch); ok {
				out = append(out, part)
			}
		}
	}
	return out
}

// partOf is the part of RKE2's images that a file is of.
func partOf(name, arch string) (part string, ok bool) {
	rest, isImages := strings.CutPrefix(name, "rke2-images")
	part, ending, isArch := strings.Cut(rest, ".linux-"+arch+".")
	if !isImages || !isArch || ending != "txt" && !strings.HasPrefix(ending, "tar") {
		return "", false
	}
	if part = strings.TrimPrefix(part, "-"); part == "" {
		part = rke2Whole
	}
	return part, part != rke2AllLists
}

// releaseServerPlace is the base URL of releases: BASE/VERSION/FILE.
type releaseServerPlace struct {
	base     *url.URL
	version  string
	download *downloader
	// lists are the lists of checksums that were read.
	lists map[string]string
}

// at is the URL of a file. Servers may read a plus sign as a space.
func (s *releaseServerPlace) at(name string) *url.URL {
	escape := func(part string) string { return strings.ReplaceAll(url.PathEscape(part), "+", "%2B") }
	return s.base.JoinPath(escape(s.version), escape(name))
}

// sum is the checksum of a file in a list; nil if the list does not have it.
func (s *releaseServerPlace) sum(ctx context.Context, name, sums string) (*checksum, error) {
	at := s.at(sums)
	list, ok := s.lists[sums]
	if !ok {
		err := s.download.retry(ctx, func() (err error) {
			list, err = s.download.fetchText(ctx, at, maxSums)
			return err
		})
		if err != nil {
			return nil, err
		}
		s.lists[sums] = list
	}
	sum := findSum(list, name, sha256.Size)
	if sum == "" {
		return nil, nil
	}
	return &checksum{"SHA-256", sum, at.Redacted()}, nil
}

func (s *releaseServerPlace) file(ctx context.Context, name, sums string) (*releaseFile, error) {
	want, err := s.sum(ctx, name, sums)
	if err != nil {
		return nil, err
	}
	if want == nil {
		return nil, missingf("%s does not list %s, and files without a checksum are not used", s.at(sums).Redacted(), name)
	}
	u := s.at(name)
	file, err := s.download.fetchVerified(ctx, u, want)
	return &releaseFile{path: file, origin: u.Redacted(), check: "SHA-256 verified"}, err
}

func (s *releaseServerPlace) text(ctx context.Context, name, sums string) (text string, f *releaseFile, err error) {
	want, err := s.sum(ctx, name, sums)
	if err != nil {
		return "", nil, err
	}
	u := s.at(name)
	if want != nil {
		file, err := s.download.fetchVerified(ctx, u, want)
		if err != nil {
			return "", nil, err
		}
		b, err := fsutil.ReadSmall(file, maxImageList)
		return string(b), &releaseFile{path: file, origin: u.Redacted(), check: "SHA-256 verified"}, err
	}
	err = s.download.retry(ctx, func() (err error) {
		text, err = s.download.fetchText(ctx, u, maxImageList)
		return err
	})
	return text, &releaseFile{origin: u.Redacted(), check: notVerified}, err
}

func (s *releaseServerPlace) parts(string) []string { return nil }
