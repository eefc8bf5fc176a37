package filesystem

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxDirectory is how many bytes one directory may have: enough for maxEntries long names.
	maxDirectory = 64 << 20
	// maxDirectories is how many directories of one volume can be opened.
	maxDirectories = 65536
)

// node is a file, a directory or anything else with a name, as the reader of a format knows it.
type node interface {
	// stat returns what is known about the node; the tree adds the name.
	stat() fileInfo
	// entries yields the entries of a directory in the order of the medium, without the
	// directory itself and its parent. An error is the last thing it yields.
	entries() iter.Seq2[entry, error]
	// contents returns the bytes of a regular file. The tree reads only within its size.
	contents() (contents, error)
}

// contents are the bytes of a regular file.
type contents interface {
	io.ReaderAt
	// find returns the extent from one byte of the file on.
	find(off int64) (extent, error)
}

// entry is a name in a directory.
type entry struct {
	name string
	// position tells the entries of one directory apart.
	position int64
	load     func() (node, error)
}

// fileInfo is the fs.FileInfo of a node.
type fileInfo struct {
	name    string
	size    int64
	mode    fs.FileMode
	modTime time.Time
	// id tells the directories of a volume apart.
	id uint64
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return i.mode }
func (i fileInfo) ModTime() time.Time { return i.modTime }
func (i fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (i fileInfo) Sys() any           { return nil }

// naming is how a format compares names.
type naming int

const (
	// caseSensitive names are compared byte by byte.
	caseSensitive naming = iota
	// caseFolding names do not distinguish upper and lower case; the same spelling wins.
	caseFolding
	// caseUnique names differ in more than case, as on FAT and exFAT. Two names that do not are
	// refused: which of them is meant would depend on the reader. So are the characters that
	// both formats forbid and that other programs take for separators.
	caseUnique
)

// tree makes an fs.FS of the nodes of a format.
//
// A directory has one place only. Without this rule a small medium whose directories contain
// each other twice would have more paths than a walk ever ends with.
type tree struct {
	medium
	root   node
	naming naming

	mu     sync.Mutex
	places map[uint64]place
}

// place is the entry through which a directory was reached.
type place struct {
	parent   uint64
	position int64
}

// directory is a directory and the path that led to it.
type directory struct {
	node
	path string
}

func newTree(m medium, root node, names naming) *tree {
	return &tree{medium: m, root: root, naming: names, places: map[uint64]place{root.stat().id: {position: -1}}}
}

// Open returns a File for a regular file and an fs.ReadDirFile for a directory. It refuses
// everything else: symbolic links are not followed.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.find(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f, err := t.open(n, name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func (t *tree) open(n node, name string) (fs.File, error) {
	info := n.stat()
	info.name = path.Base(name)
	switch info.mode.Type() {
	case fs.ModeDir:
		list, err := t.list(directory{n, name})
		return &openDirectory{info: info, list: list}, err
	case 0:
		c, err := n.contents()
		return &openFile{SectionReader: io.NewSectionReader(namedContents{c, name}, 0, info.size), info: info, medium: t.medium, contents: c}, err
	case fs.ModeSymlink:
		return nil, t.errorf("symbolic links are not followed")
	default:
		return nil, t.errorf("not a regular file or directory (%v)", info.mode)
	}
}

// Stat describes a file without following a symbolic link.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find(name)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	info := n.stat()
	info.name = path.Base(name)
	return info, nil
}

// ReadDir lists a directory, sorted by name.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find(name)
	if err == nil && !n.stat().IsDir() {
		err = t.errorf("not a directory")
	}
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	list, err := t.list(directory{n, name})
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return list, nil
}

func (t *tree) find(name string) (node, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	if name == "." {
		return t.root, nil
	}
	if strings.Count(name, "/") >= maxDepth {
		return nil, t.errorf("directories are nested more than %d deep", maxDepth)
	}
	at := directory{t.root, "."}
	for element := range strings.SplitSeq(name, "/") {
		next, err := t.child(at, element)
		if err != nil {
			return nil, err
		}
		at = directory{next, path.Join(at.path, element)}
	}
	return at.node, nil
}

func (t *tree) child(d directory, name string) (node, error) {
	if mode := d.stat().mode; mode.Type() == fs.ModeSymlink {
		return nil, t.errorf("symbolic links are not followed")
	} else if !mode.IsDir() {
		return nil, fs.ErrNotExist
	}
	e, err := t.match(d, name)
	if err != nil {
		return nil, err
	}
	return t.enter(d, e)
}

// match finds a name in a directory.
func (t *tree) match(d directory, name string) (entry, error) {
	var found *entry
	for e, err := range t.scan(d) {
		same := e.name == name
		switch {
		case err != nil:
			return e, err
		case same && t.naming != caseUnique:
			return e, nil
		case !same && (t.naming == caseSensitive || !strings.EqualFold(e.name, name)):
		case found == nil:
			found = &e
		case t.naming == caseUnique:
			return e, t.nameTwice(d, e.name)
		}
	}
	if found == nil {
		return entry{}, fs.ErrNotExist
	}
	return *found, nil
}

func (t *tree) nameTwice(d directory, name string) error {
	return t.errorf("directory %s has the name %q twice", d.path, name)
}

// enter loads the node of an entry. A directory must not have been reached another way before.
func (t *tree) enter(d directory, e entry) (node, error) {
	n, err := e.load()
	if err != nil {
		return nil, err
	}
	info := n.stat()
	if !info.IsDir() {
		return n, nil
	}
	here := place{parent: d.stat().id, position: e.position}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch known, ok := t.places[info.id]; {
	case ok && known != here:
		return nil, t.errorf("directory %d has more than one place, one of them is %q", info.id, e.name)
	case !ok && len(t.places) >= maxDirectories:
		return nil, t.errorf("more than %d directories", maxDirectories)
	}
	t.places[info.id] = here
	return n, nil
}

// scan yields the entries of a directory after it checked their number and names.
func (t *tree) scan(d directory) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		count := 0
		for e, err := range d.entries() {
			count++
			if err == nil {
				err = t.checkEntry(e, count)
			}
			if err == nil {
				// Paths of an fs.FS are UTF-8; a name of another encoding must have one too.
				e.name = strings.ToValidUTF8(e.name, "\uFFFD")
			} else {
				err = fmt.Errorf("directory %s: %w", d.path, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (t *tree) checkEntry(e entry, count int) error {
	if count > maxEntries {
		return t.errorf("more than %d entries", maxEntries)
	}
	if e.name == "" || e.name == "." || e.name == ".." || strings.ContainsFunc(e.name, t.forbidden) {
		return t.errorf("%q at byte %d is not a name", e.name, e.position)
	}
	return nil
}

// forbidden reports a character that no name may have.
func (t *tree) forbidden(r rune) bool {
	return r == '/' || r == 0 || t.naming == caseUnique && (r < ' ' || r == '\\')
}

func (t *tree) list(d directory) ([]fs.DirEntry, error) {
	var list []fs.DirEntry
	for e, err := range t.scan(d) {
		if err != nil {
			return nil, err
		}
		n, err := e.load()
		if err != nil {
			return nil, fmt.Errorf("directory %s: %q: %w", d.path, e.name, err)
		}
		info := n.stat()
		info.name = e.name
		list = append(list, fs.FileInfoToDirEntry(info))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for i := 1; i < len(list); i++ {
		if list[i].Name() == list[i-1].Name() {
			return nil, t.nameTwice(d, list[i].Name())
		}
	}
	return list, nil
}

// namedContents adds the path of the file to errors.
type namedContents struct {
	contents io.ReaderAt
	path     string
}

// ReadAt implements io.ReaderAt.
func (c namedContents) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.contents.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &fs.PathError{Op: "read", Path: c.path, Err: err}
	}
	return n, err
}

// openFile is an open regular file: a File and an io.Seeker.
type openFile struct {
	*io.SectionReader
	info     fileInfo
	medium   medium
	contents contents
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

// Extents implements File.
func (f *openFile) Extents(limit int) ([]Extent, error) {
	list, err := f.medium.extents(f.info.size, limit, f.contents.find)
	if err != nil {
		return nil, &fs.PathError{Op: "map", Path: f.info.name, Err: err}
	}
	return list, nil
}

// openDirectory is an open directory.
type openDirectory struct {
	info fileInfo
	list []fs.DirEntry
}

func (d *openDirectory) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDirectory) Close() error               { return nil }

func (d *openDirectory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

// ReadDir returns the next n entries, or all that are left if n is not positive.
func (d *openDirectory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.list)
	} else if len(d.list) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.list))
	list := slices.Clone(d.list[:n])
	d.list = d.list[n:]
	return list, nil
}
