package bundlereader

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/text"
)

// Limits of the search for bundles on a medium.
const (
	// maxFiles is how many files of a medium are checked for the header of a bundle.
	maxFiles = 500
	// maxDirectories is how many directories below the root directories are read.
	maxDirectories = 100
	// maxFound is how many bundles are described.
	maxFound = 20
)

// Found is a bundle at a path: in a file, on a device, or in a file system on one of both.
type Found struct {
	// Path opens the bundle: OpenPath.
	Path   string
	Header *bundle.Header
	// Err is the reason why the header of a damaged bundle cannot be read, or that the file has
	// another size than the bundle.
	Err error

	file io.ReaderAt
	size int64
	// name is what follows # in Path, start where its file system is on the medium.
	name  string
	start int64
	// parts and where are those of a bundle in parts.
	parts []bundle.PartFile
	where func(offset, length int64) string
}

func (f Found) String() string {
	if f.Header == nil {
		return fmt.Sprintf("%s (%s)", f.Path, text.CleanLine(f.Err.Error()))
	}
	return fmt.Sprintf("%s (%s %s, %s)", f.Path, f.Header.Metadata.Name, f.Header.Metadata.Version, f.Header.Digest)
}

// SeveralError is the error for a medium with more than one bundle.
type SeveralError struct {
	Path  string
	Found []Found
}

func (e *SeveralError) Error() string {
	var names []string
	for _, f := range e.Found {
		names = append(names, f.String())
	}
	return fmt.Sprintf("%s has %d bundles; name one of them: %s", e.Path, len(e.Found), strings.Join(names, ", "))
}

// SplitPath splits the path of a file on a medium, DISK#NAME, into both parts. A path that exists
// as it is has no name, so that a file with # in its own name can be opened.
func SplitPath(p string) (disk, name string) {
	if _, err := os.Lstat(p); err == nil {
		return p, ""
	}
	for i := range len(p) {
		if p[i] != '#' || i == 0 || i == len(p)-1 {
			continue
		}
		if st, err := os.Stat(p[:i]); err == nil && !st.IsDir() {
			return p[:i], p[i+1:]
		}
	}
	return p, ""
}

// volume is a file system of a medium.
type volume struct {
	*filesystem.Volume
	// partition is its number, 0 for a file system without a partition table.
	partition int
	// start is where it begins on the medium.
	start int64
}

// name returns what follows # in the path of a file.
func (v volume) name(file string) string {
	if v.partition == 0 {
		return file
	}
	return fmt.Sprintf("%d:%s", v.partition, file)
}

func (v volume) String() string {
	s := v.Kind
	if v.Label != "" {
		s += fmt.Sprintf(" %q", v.Label)
	}
	if v.partition != 0 {
		s += fmt.Sprintf(" in partition %d", v.partition)
	}
	return s
}

// medium is a device or an image file with file systems, in which bundles are searched.
type medium struct {
	path    string
	volumes []volume
	found   []Found
	// files and directories are how many were checked.
	files, directories int
	// problems are why something could not be read.
	problems []string
	// stopped returns why the search must end before everything was read; nil: it never must.
	stopped func() error
	parts   partPool
	// deltas are the delta bundles if keepDeltas is set; else they are problems.
	keepDeltas bool
	deltas     []Found
	// delta says that the medium itself is a delta, or a file on it.
	delta error
}

// openMedium finds the file systems of a device or an image file: one at its start, and those of
// its partitions. A partition table next to a file system counts too, as on hybrid ISO images.
func openMedium(p string, r io.ReaderAt, size int64) *medium {
	m := &medium{path: p}
	if m.delta = deltaError(r); m.delta != nil {
		m.problem(m.delta)
		return m
	}
	err := m.addVolume(filesystem.Partition{}, r, size)
	partitions, tableErr := filesystem.Partitions(r, size)
	if err != nil && tableErr != nil {
		m.problem(tableErr)
	}
	for _, part := range partitions {
		if part.Start > 0 {
			_ = m.addVolume(part, io.NewSectionReader(r, part.Start, part.Size), part.Size)
		}
	}
	return m
}

// addVolume opens the file system of a partition, or the one at the start of the medium.
func (m *medium) addVolume(p filesystem.Partition, r io.ReaderAt, size int64) error {
	v, err := filesystem.Open(r, size)
	switch {
	case err == nil:
		m.volumes = append(m.volumes, volume{v, p.Number, p.Start})
	case p.Number > 0:
		m.problem(fmt.Errorf("partition %d: %w", p.Number, err))
	default:
		m.problem(err)
	}
	return err
}

// problem keeps an error for the message, as one line without control characters. That there is
// no file system is none.
func (m *medium) problem(err error) {
	if !errors.Is(err, filesystem.ErrUnknown) && len(m.problems) < maxFound {
		m.problems = append(m.problems, text.CleanLine(err.Error()))
	}
}

// search finds the bundles in the root directories and one level below them, by their headers.
func (m *medium) search() {
	m.collect()
	m.found = append(m.found, m.parts.found()...)
}

// collect finds whole bundles, and parts.
func (m *medium) collect() {
	for _, v := range m.volumes {
		for _, dir := range m.directory(v, ".") {
			if m.directories++; m.directories > maxDirectories || m.mustStop() {
				break
			}
			m.directory(v, dir)
		}
	}
}

func (m *medium) mustStop() bool { return m.stopped != nil && m.stopped() != nil }

// directory checks the files of a directory and returns its directories.
func (m *medium) directory(v volume, dir string) []string {
	list, err := v.ReadDir(dir)
	if err != nil {
		m.problem(err)
		return nil
	}
	var directories []string
	for _, e := range list {
		name := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			directories = append(directories, name)
		case e.Type().IsRegular():
			m.file(v, name, e)
		}
	}
	return directories
}

// file checks the beginning of a file: one block first, which rules out most files.
func (m *medium) file(v volume, name string, e fs.DirEntry) {
	info, err := e.Info()
	if err != nil || info.Size() < bundle.BlockSize || m.mustStop() {
		return
	}
	if m.files++; m.files > maxFiles || len(m.found) == maxFound {
		return
	}
	f, err := openIn(v, name)
	if err != nil {
		m.problem(err)
		return
	}
	p := text.CleanLine(v.name(name))
	if m.path != "" {
		p = text.CleanLine(m.path + "#" + v.name(name))
	}
	if raw, err := isBundle(f); err != nil || !raw {
		m.noWhole(Found{Path: p, file: f, size: info.Size(), name: v.name(name), start: v.start}, err)
		return
	}
	if found, ok := foundIn(p, f, info.Size()); ok {
		found.name, found.start = v.name(name), v.start
		m.found = append(m.found, found)
	}
}

// noWhole adds a file that is no whole bundle but may be a part or a delta, or says why it is none.
func (m *medium) noWhole(f Found, err error) {
	if err == nil && m.keepDeltas && BeginsDelta(f.file) {
		if len(m.deltas) < maxFound {
			m.deltas = append(m.deltas, f)
		}
		return
	}
	if err == nil {
		if err = deltaError(f.file); err != nil {
			err = fmt.Errorf("%s: %w", f.name, err)
			m.delta = cmp.Or(m.delta, err)
		}
	}
	if err != nil {
		m.problem(err)
		return
	}
	m.parts.addFile(f.file, f.Path, f.size, f.start)
}

// foundIn describes a bundle that begins with the first byte of r. ok is false if it is none.
func foundIn(path string, r io.ReaderAt, size int64) (found Found, ok bool) {
	found = Found{Path: path, file: r, size: size}
	if found.Header, found.Err = Summary(r); errors.Is(found.Err, bundle.ErrNotBundle) {
		return found, false
	}
	if found.Err == nil {
		found.Err = CheckSize(size, found.Header.FileSize())
	}
	return found, true
}

func openIn(v volume, name string) (filesystem.File, error) {
	f, err := v.Open(name)
	if err != nil {
		return nil, err
	}
	file, ok := f.(filesystem.File)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is not a regular file")}
	}
	return file, nil
}

// isBundle reports whether r begins as a bundle does.
func isBundle(r io.ReaderAt) (bool, error) {
	b := make([]byte, bundle.BlockSize)
	n, err := r.ReadAt(b, 0)
	if n < len(b) && err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	_, err = bundle.HeaderSize(b[:n])
	return !errors.Is(err, bundle.ErrNotBundle), nil
}

// one returns the only bundle of a medium.
func (m *medium) one() (Found, error) {
	m.search()
	if len(m.found) == 0 {
		return Found{}, m.noBundle()
	}
	return pickFound(m.path, m.found)
}

// noBundle is the error that names what was searched. Without a file system there is nothing to name.
func (m *medium) noBundle() error {
	var reasons []string
	if len(m.volumes) > 0 {
		files := text.Count(m.files, "file")
		if m.files > maxFiles {
			files = fmt.Sprintf("the first %d files", maxFiles)
		}
		reasons = append(reasons, fmt.Sprintf("no bundle in the file system %s", m.names()),
			fmt.Sprintf("searched were %s in the root directory and in directories below it; name a file elsewhere as %s#DIRECTORY/FILE", files, m.path))
	}
	reasons = append(reasons, m.problems...)
	if len(reasons) == 0 {
		return bundle.ErrNotBundle
	}
	if len(m.volumes) == 0 && m.delta != nil {
		return m.delta
	}
	return &noBundleError{text: strings.Join(reasons, "; "), delta: m.delta}
}

// noBundleError is bundle.ErrNotBundle, and a DeltaError if there is a delta.
type noBundleError struct {
	text  string
	delta error
}

func (e *noBundleError) Error() string { return bundle.ErrNotBundle.Error() + ": " + e.text }

func (e *noBundleError) Unwrap() []error { return []error{bundle.ErrNotBundle, e.delta} }

func (m *medium) names() string {
	var names []string
	for _, v := range m.volumes {
		names = append(names, v.String())
	}
	return strings.Join(names, ", ")
}

// named returns a file by its name: NAME, or PARTITION:NAME.
func (m *medium) named(name string) (Found, error) {
	if len(m.volumes) == 0 {
		return Found{}, errors.New(strings.Join(append([]string{"no known file system"}, m.problems...), "; "))
	}
	partition := 0
	if number, rest, ok := strings.Cut(name, ":"); ok {
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			partition, name = n, rest
		}
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for _, v := range m.volumes {
		if v.partition != partition {
			continue
		}
		f, err := openIn(v, name)
		if err != nil {
			return Found{}, err
		}
		info, err := f.Stat()
		if err != nil {
			return Found{}, err
		}
		if p := text.CleanLine(m.path + "#" + v.name(name)); new(partPool).add(f, p, info.Size()) {
			m.search()
			return pickFound(m.path, withPart(m.found, p))
		}
		return Found{file: f, size: info.Size()}, nil
	}
	return Found{}, fmt.Errorf("the file systems are %s; name a file in a partition as %s#PARTITION:FILE", m.names(), m.path)
}
