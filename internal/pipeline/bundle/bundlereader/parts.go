package bundlereader

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// partPool are parts that were found at one or several places.
type partPool struct {
	files []bundle.PartFile
	// readers read the files from their headers on, by name; starts are where the file systems of
	// those in one begin on their medium.
	readers map[string]io.ReaderAt
	starts  map[string]int64
	// damaged are files with headers that cannot be read.
	damaged []Found
}

// add adds a file that begins as a part does, and reports whether it does. name is its path.
func (p *partPool) add(r io.ReaderAt, name string, size int64) bool {
	b := make([]byte, bundle.PartHeaderSize)
	n, err := r.ReadAt(b, 0)
	if n < len(b) && !errors.Is(err, io.EOF) {
		return false
	}
	part, err := bundle.ParsePart(b[:n])
	switch {
	case errors.Is(err, bundle.ErrNotPart):
		return false
	case len(p.files)+len(p.damaged) >= maxFiles:
	case err != nil:
		p.damaged = append(p.damaged, Found{Path: name, Err: &bundle.PartsError{Problems: []string{fmt.Sprintf("%s: %v", name, err)}}})
	default:
		if p.readers == nil {
			p.readers = map[string]io.ReaderAt{}
		}
		p.files = append(p.files, bundle.PartFile{Part: part, Name: name, FileSize: size})
		p.readers[name] = r
	}
	return true
}

// addFile is add for a file in a file system that begins at start on its medium.
func (p *partPool) addFile(r io.ReaderAt, name string, size, start int64) {
	if p.add(r, name, size) && p.readers[name] == r {
		if p.starts == nil {
			p.starts = map[string]int64{}
		}
		p.starts[name] = start
	}
}

// found describes the bundle of each split. One that cannot be opened has an error and no file.
func (p *partPool) found() []Found {
	groups := bundle.GroupParts(p.files)
	var out []Found
	for i, g := range groups {
		f := Found{Path: g[0].Name, parts: g}
		if err := bundle.CheckParts(g, slices.Concat(groups[:i], groups[i+1:])); err != nil {
			f.Err = p.withDamaged(err)
		} else {
			p.join(&f)
		}
		out = append(out, f)
	}
	if len(groups) == 0 {
		out = p.damaged
	}
	return out[:min(len(out), maxFound)]
}

// withDamaged adds the parts whose headers cannot be read: they may be those that are missing.
func (p *partPool) withDamaged(err error) error {
	var parts, more *bundle.PartsError
	if errors.As(err, &parts) {
		for _, d := range p.damaged {
			if errors.As(d.Err, &more) {
				parts.Problems = append(parts.Problems, more.Problems...)
			}
		}
	}
	return err
}

// pieces returns parts as pieces of their bundle.
func (p *partPool) pieces(parts []bundle.PartFile) []Piece {
	var out []Piece
	for _, part := range parts {
		out = append(out, Piece{Offset: part.Offset, Length: part.Length, From: p.readers[part.Name], At: bundle.PartHeaderSize, Name: part.String()})
	}
	return out
}

// join makes one bundle of its parts.
func (p *partPool) join(f *Found) {
	f.size = f.parts[0].Size
	j := Join(f.size, p.pieces(f.parts))
	f.Header, f.Err = summaryOfParts(f.parts[0], j)
	if f.Err == nil {
		f.file, f.where = j, j.where
		f.Err = CheckSize(f.size, f.Header.FileSize())
	}
}

// summaryOfParts reads the header of a bundle in parts. first is the part with its beginning.
func summaryOfParts(first bundle.PartFile, j *Joined) (*bundle.Header, error) {
	h, err := Summary(j)
	var other *bundle.OtherBundleError
	if err != nil {
		_, opened := OpenOf(first.Bundle, j, j.size)
		errors.As(opened, &other)
	}
	switch {
	case other != nil:
		return nil, beginsAs(first, other.Found)
	case errors.Is(err, bundle.ErrNotBundle):
		return nil, &bundle.PartsError{Bundle: first.Bundle, Problems: []string{fmt.Sprintf("%s is damaged, it does not begin as a bundle does: copy it again", first)}}
	case err != nil:
		return nil, located(err, j.where)
	case h.Digest != first.Bundle:
		return nil, beginsAs(first, h.Digest)
	}
	return h, nil
}

// beginsAs is the error for a first part with the bytes of another bundle.
func beginsAs(p bundle.PartFile, digest string) error {
	return &bundle.PartsError{Bundle: p.Bundle, Problems: []string{fmt.Sprintf("%s has the beginning of bundle %s: copy it again", p, digest)}}
}

// located names the part in which a bundle is damaged.
func located(err error, where func(offset, length int64) string) error {
	var c *bundle.CorruptError
	if where != nil && errors.As(err, &c) && c.Place == "" {
		c.Place = where(c.Offset, c.Length)
	}
	return err
}

// search finds bundles and parts at several places.
type search struct {
	partPool
	whole   []Found
	closers []io.Closer
	files   int
	// images searches in the files of a directory for file systems, too.
	images bool
}

// placesOf returns where to search for what a path names: a directory, places with commas between
// them, or the directory of a part, which is returned too. It returns nil for other paths.
func placesOf(path string) (places []string, part string) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return placeList(path), ""
	case st.IsDir():
		return []string{path}, ""
	}
	f, size, err := openDisk(path)
	if err != nil {
		return nil, ""
	}
	defer f.Close()
	if !new(partPool).add(f, path, size) {
		return nil, ""
	}
	if size == UnknownSize { // a part may be raw on a device
		return []string{path}, ""
	}
	return []string{filepath.Dir(path)}, filepath.Join(filepath.Dir(path), filepath.Base(path))
}

// placeList splits PLACE,PLACE... if each of them exists.
func placeList(path string) []string {
	list := strings.Split(path, ",")
	for _, p := range list {
		if _, err := os.Stat(p); err != nil || len(list) == 1 {
			return nil
		}
	}
	return list
}

func (s *search) Close() error {
	var err error
	for _, c := range s.closers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// all searches at the places and returns what was found, in their order. Close the search.
func (s *search) all(places []string) ([]Found, error) {
	for _, p := range places {
		st, err := os.Stat(p)
		if err == nil && st.IsDir() {
			err = s.directory(p)
		} else if err == nil {
			err = s.disk(p)
		}
		if err != nil {
			return nil, fmt.Errorf("search for bundles: %w", err)
		}
	}
	return append(s.whole, s.found()...), nil
}

func (s *search) directory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if s.files++; s.files > maxFiles {
			return nil
		}
		path := filepath.Join(dir, e.Name())
		if err := s.file(path); err != nil && s.images {
			s.whole = append(s.whole, Found{Path: path, Err: err})
		}
	}
	return nil
}

// file adds the bundle or the part in a file of a directory.
func (s *search) file(path string) error {
	f, size, err := openDisk(path)
	if err != nil {
		return err
	}
	if known, err := s.begins(f, path, size); err != nil || known {
		return err
	}
	defer f.Close()
	if !s.images {
		return nil
	}
	m := openMedium(path, f, size)
	m.search()
	s.whole = append(s.whole, m.found...)
	return nil
}

// begins adds what begins with the first byte of f: a bundle or a part. If it is neither, f stays
// with the caller.
func (s *search) begins(f *os.File, path string, size int64) (bool, error) {
	raw, err := isBundle(f)
	if err != nil {
		return false, errors.Join(err, f.Close())
	}
	found, ok := Found{}, false
	if raw {
		found, ok = foundIn(path, f, size)
	}
	if ok {
		s.whole = append(s.whole, found)
	}
	if ok || s.add(f, path, size) {
		s.closers = append(s.closers, f)
		return true, nil
	}
	return false, nil
}

// disk adds the bundles and parts of a file, a device, or the file systems in it.
func (s *search) disk(path string) error {
	f, size, err := openDisk(path)
	if err != nil {
		return err
	}
	if known, err := s.begins(f, path, size); err != nil || known {
		return err
	}
	s.closers = append(s.closers, f)
	m := searchable(path, f, size)
	if m == nil {
		return nil
	}
	m.collect()
	s.whole = append(s.whole, m.found...)
	for _, p := range m.parts.files {
		s.add(m.parts.readers[p.Name], p.Name, p.FileSize)
	}
	s.damaged = append(s.damaged, m.parts.damaged...)
	return nil
}

// pickFound returns the only bundle of several places. The error is *SeveralError, or what is
// wrong with the parts if there is no whole bundle.
func pickFound(path string, all []Found) (Found, error) {
	whole := slices.ContainsFunc(all, func(f Found) bool { return f.file != nil })
	switch {
	case len(all) == 0:
		return Found{}, bundle.ErrNotBundle
	case len(all) > 1 && whole:
		return Found{}, &SeveralError{path, all}
	case all[0].file == nil:
		return Found{}, all[0].Err
	}
	return all[0], nil
}

// withPart returns the bundle of a part.
func withPart(all []Found, part string) []Found {
	return slices.DeleteFunc(slices.Clone(all), func(f Found) bool {
		return f.Path != part && !slices.ContainsFunc(f.parts, func(p bundle.PartFile) bool { return p.Name == part })
	})
}

func openPlaces(path string, places []string, part string) (source, error) {
	s := &search{}
	all, err := s.all(places)
	if err == nil && part != "" {
		all = withPart(all, part)
	}
	var found Found
	if err == nil {
		found, err = pickFound(path, all)
	}
	var several *SeveralError
	if err != nil {
		s.Close()
		if errors.As(err, &several) {
			return source{}, err
		}
		return source{}, fmt.Errorf("%s: %w", path, err)
	}
	name := path
	if len(places) == 1 {
		name = cmp.Or(found.Path, path)
	}
	return source{found.file, found.size, name, s, found.where, found.paths()}, nil
}

// paths returns the paths of the parts of a bundle in parts, else that of the bundle if it is known.
func (f Found) paths() (out []string) {
	for _, p := range f.parts {
		out = append(out, p.Name)
	}
	if len(out) == 0 && f.Path != "" {
		out = []string{f.Path}
	}
	return out
}

func listPlaces(path string, places []string, part string) ([]Found, error) {
	s := &search{images: part == ""}
	defer s.Close()
	all, err := s.all(places)
	if err != nil {
		return nil, err
	}
	if part != "" {
		all = withPart(all, part)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", path, bundle.ErrNotBundle)
	}
	return all, nil
}

// VerifyParts reads the parts at a path, as OpenPath takes it, also if not all are there. It
// compares each with the digest in its header. report is called for each part; its error is nil
// for an intact one. The error is a *bundle.PartsError with all that is missing or wrong. That
// the digests in the headers are those of an approved bundle is not checked: Verify does that
// when all parts are there.
func VerifyParts(ctx context.Context, path string, report func(bundle.PartFile, error)) error {
	s := &search{}
	defer s.Close()
	places, _ := placesOf(path)
	if places == nil {
		disk, _ := SplitPath(path)
		places = []string{disk}
	}
	all, err := s.all(places)
	if err != nil {
		return err
	}
	e := &bundle.PartsError{}
	for _, f := range all {
		var parts *bundle.PartsError
		if errors.As(f.Err, &parts) {
			e.Bundle, e.Problems = cmp.Or(e.Bundle, parts.Bundle), append(e.Problems, parts.Problems...)
		}
		for _, p := range f.parts {
			err := sumPart(ctx, s.readers[p.Name], p)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.As(err, &parts) {
				e.Problems = append(e.Problems, parts.Problems...)
			}
			report(p, err)
		}
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// sumPart reads a part. Its error is a *bundle.PartsError or the context's.
func sumPart(ctx context.Context, r io.ReaderAt, p bundle.PartFile) error {
	h := sha256.New()
	in := io.NewSectionReader(r, bundle.PartHeaderSize, p.Length)
	buf := make([]byte, readStep)
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := in.Read(buf)
		h.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return p.PartSum([sha256.Size]byte(h.Sum(nil)))
		}
		if err != nil {
			return &bundle.PartsError{Bundle: p.Bundle, Problems: []string{fmt.Sprintf("%s cannot be read: %v", p, err)}}
		}
	}
}
