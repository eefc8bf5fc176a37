package contents

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
)

// FactsLimits bound the reading of facts. A base image has 1 to 3 GB in some 100,000 files.
func FactsLimits() Limits {
	return Limits{Bytes: 16 << 30, Unpacked: 64 << 30, Entries: 4_000_000, File: 64 << 10, Kept: 1 << 20}
}

const (
	// maxRecorded entries of a layer that matter: a real one has some dozen.
	maxRecorded = 4096
	// maxObjects are large files of a layer whose size is kept for hard links to them.
	maxObjects = 4096
	// largeFile is the least size of a kernel, an initramfs, or a database of rpm.
	largeFile = 1 << 20
)

// tableEntry is an entry of a layer that matters for the facts.
type tableEntry struct {
	path string
	kind Kind
	link string
	size int64
	// text of a small file, version of the kubelet in a database of packages.
	text, version string
}

// layerTable is what a layer has and removes, as far as it matters.
type layerTable struct {
	entries []tableEntry
	// gone are removed paths, emptied directories whose lower content is hidden.
	gone, emptied []string
	// unpacked bytes of files.
	unpacked int64
}

// Tables keeps the tables of layers that were read, so that an image with a base that is known
// costs its own layers only. The zero value is ready; nil keeps none.
type Tables struct {
	mu   sync.Mutex
	read map[string]*layerTable
	// order of their reading.
	order []string
}

// maxTables are kept, some kilobytes each.
const maxTables = 512

func (c *Tables) get(digest string) *layerTable {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read[digest]
}

func (c *Tables) put(digest string, t *layerTable) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read == nil {
		c.read = map[string]*layerTable{}
	}
	if c.read[digest] == nil {
		c.order = append(c.order, digest)
	}
	if c.read[digest] = t; len(c.order) > maxTables {
		delete(c.read, c.order[0])
		c.order = c.order[1:]
	}
}

// tableReader reads the tables of layers within limits.
type tableReader struct {
	reader
	keep *Tables
	// of the layer that is read
	table   *layerTable
	objects map[string]tableEntry
}

// readTable reads the table of a layer. It verifies the digest of a layer that it reads whole;
// of a plain tar on a disk it reads the headers only.
func (r *tableReader) readTable(l Layer) (*layerTable, error) {
	if t := r.keep.get(l.Digest); t != nil {
		return t, nil
	}
	want, ok := strings.CutPrefix(l.Digest, "sha256:")
	if !ok {
		return nil, incomparable("layer " + l.Digest + " has a digest of another kind than sha256")
	}
	blob, err := l.Open()
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	r.table, r.objects = &layerTable{}, map[string]tableEntry{}
	raw := &limitedReader{from: blob, n: &r.read, limit: r.lim.Bytes, exceeded: incomparable(fmt.Sprintf("its layers have more than %d MB", r.lim.Bytes>>20))}
	if file, ok := blob.(io.Seeker); ok && !l.Unverified && strings.HasSuffix(l.MediaType, "tar") {
		err = r.readHeaders(seekingReader{raw, file})
	} else {
		raw.sum = sha256.New()
		err = r.readWhole(l, raw)
	}
	if err = l.verdict(raw, err); err == nil {
		err = l.compareDigest(raw, want)
	}
	if err != nil {
		return nil, l.blame(raw, want, err)
	}
	r.keep.put(l.Digest, r.table)
	return r.table, nil
}

// compareDigest compares a layer that was read whole with its digest.
func (l Layer) compareDigest(raw *limitedReader, want string) error {
	if raw.sum != nil && hex.EncodeToString(raw.sum.Sum(nil)) != want {
		return incomparable("layer " + l.Digest + " is not what its digest says")
	}
	return nil
}

// blame reads the rest of a layer whose source may send other bytes: of those nothing follows
// about the image.
func (l Layer) blame(raw *limitedReader, want string, err error) error {
	var mine incomparable
	if !l.Unverified || raw.sum == nil || !errors.As(err, &mine) {
		return err
	}
	if _, more := io.Copy(io.Discard, raw); more == nil && hex.EncodeToString(raw.sum.Sum(nil)) == want {
		return err
	}
	return fmt.Errorf("layer %s: its source sent other bytes, or not all of them", l.Digest)
}

// verdict tells a source that failed from a layer that is malformed.
func (l Layer) verdict(raw *limitedReader, err error) error {
	var mine incomparable
	switch {
	case err == nil, errors.As(err, &mine), errors.Is(err, errStop):
		return err
	case raw.failed != nil:
		return raw.failed
	}
	return incomparable("layer " + l.Digest + " cannot be read: " + err.Error())
}

// seekingReader counts what is read, and passes the content of files by.
type seekingReader struct {
	*limitedReader
	io.Seeker
}

func (r *tableReader) readWhole(l Layer, raw io.Reader) error {
	plain, done, err := decompress(l.MediaType, raw)
	if err != nil {
		return err
	}
	defer done()
	in := &limitedReader{from: plain, n: &r.plain, limit: r.lim.Unpacked, exceeded: incomparable(fmt.Sprintf("its layers unpack to more than %d MB", r.lim.Unpacked>>20))}
	if err := r.readHeaders(in); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, raw) // what follows the compressed data
	return err
}

func (r *tableReader) readHeaders(in io.Reader) error {
	for x := tar.NewReader(in); ; {
		h, err := x.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = r.addHeader(h, x)
		}
		if err != nil {
			return err
		}
	}
}

func (r *tableReader) addHeader(h *tar.Header, content io.Reader) error {
	if r.entries++; r.entries > r.lim.Entries {
		return incomparable(fmt.Sprintf("its layers have more than %d entries", r.lim.Entries))
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanPath(h.Name)
	if err != nil || name == "" {
		return err
	}
	if len(h.Linkname) > maxPath {
		return incomparable(fmt.Sprintf("%.200s is a link with %d bytes", name, len(h.Linkname)))
	}
	name = mergedPath(name)
	if base := path.Base(name); strings.HasPrefix(base, whiteout) {
		return r.addWhiteout(name, base)
	}
	e, err := r.entryOf(name, h, content)
	if err != nil || !matters(name, e.kind) {
		return err
	}
	return r.record(func() { r.table.entries = append(r.table.entries, e) })
}

func (r *tableReader) record(do func()) error {
	if len(r.table.entries)+len(r.table.gone)+len(r.table.emptied) >= maxRecorded {
		return incomparable(fmt.Sprintf("a layer has more than %d kernels, programs, units or whiteouts", maxRecorded))
	}
	do()
	return nil
}

func (r *tableReader) addWhiteout(name, base string) error {
	dir := strings.TrimSuffix(strings.TrimSuffix(name, base), "/")
	what := strings.TrimPrefix(base, whiteout)
	switch {
	case base == opaque:
		if dir == "" || mayMatter(dir) {
			return r.record(func() { r.table.emptied = append(r.table.emptied, dir) })
		}
	case what == "" || what == "." || what == ".." || strings.HasPrefix(what, whiteout):
		return incomparable("the whiteout " + name + " names nothing that can be removed")
	default:
		if at := path.Join(dir, what); mayMatter(at) {
			return r.record(func() { r.table.gone = append(r.table.gone, at) })
		}
	}
	return nil
}

// entryOf reads an entry, and the content of the few files that say something.
func (r *tableReader) entryOf(name string, h *tar.Header, content io.Reader) (e tableEntry, err error) {
	e = tableEntry{path: name, kind: Other}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		e.kind, e.size = File, h.Size
		if h.Size < 0 || h.Size > r.lim.Unpacked || r.table.unpacked+h.Size > r.lim.Unpacked {
			return e, incomparable(fmt.Sprintf("its layers unpack to more than %d MB", r.lim.Unpacked>>20))
		}
		r.table.unpacked += h.Size
		return e, r.readFile(&e, content)
	case tar.TypeDir:
		e.kind = Directory
	case tar.TypeSymlink:
		e.kind, e.link = Symlink, h.Linkname
	case tar.TypeLink:
		e.kind = File
		at, err := cleanPath(h.Linkname)
		if err != nil {
			return e, err
		}
		if same, ok := r.objects[mergedPath(at)]; ok {
			e.size, e.version, e.text = same.size, same.version, same.text
		}
	}
	return e, nil
}

// readFile reads a file that says something, and keeps the size of one that a hard link may
// name: images of ostree have all their files below sysroot/ostree/repo, and links to them.
func (r *tableReader) readFile(e *tableEntry, content io.Reader) error {
	var err error
	switch scan := scannerOf(e.path); {
	case scan != nil:
		e.version, err = scan(content)
	case isText(e.path) && e.size <= r.lim.File && r.kept+e.size <= r.lim.Kept:
		var b []byte
		b, err = io.ReadAll(io.LimitReader(content, r.lim.File))
		r.kept += int64(len(b))
		e.text = string(b)
	case e.size >= largeFile && strings.HasPrefix(e.path, ostreeObjects):
		e.version, err = scanRPM(content)
	}
	if err == nil && e.size >= largeFile && len(r.objects) < maxObjects {
		r.objects[e.path] = *e
	}
	return err
}

// ReadFacts reads what an image has. It streams the layers, and unpacks nothing to a disk;
// keep has tables of layers that were read before. An error means that a layer is unreadable
// now; a malformed one is the Problem of the facts.
func ReadFacts(img Image, lim Limits, keep *Tables) (osimage.ImageFacts, error) {
	f := osimage.ImageFacts{Platform: img.Platform}
	f.ReadLabels(img.Labels)
	for _, l := range img.Layers {
		if l.Size < 0 || l.Size > lim.Bytes || f.Packed+l.Size > lim.Bytes {
			f.Problem = fmt.Sprintf("its layers have more than %d MB", lim.Bytes>>20)
			return f, nil
		}
		f.Packed += l.Size
	}
	r := &tableReader{reader: reader{lim: lim}, keep: keep}
	m := merged{}
	for _, l := range img.Layers {
		t, err := r.readTable(l)
		f.Read = r.read
		var why incomparable
		if errors.As(err, &why) {
			f.Problem = string(why)
			return f, nil
		}
		if err != nil {
			return f, err
		}
		m.apply(t)
		f.Unpacked += t.unpacked
	}
	m.fill(&f)
	return f, nil
}

// ReadAllFacts opens an image and reads what each of its platforms has. An image that is none
// is one with a Problem.
func ReadAllFacts(ctx context.Context, root oci.Root, lim Limits, keep *Tables) ([]osimage.ImageFacts, error) {
	images, err := Open(ctx, root)
	if errors.Is(err, ErrNoImage) {
		return []osimage.ImageFacts{{Problem: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	var out []osimage.ImageFacts
	for _, img := range images {
		f, err := ReadFacts(img, lim, keep)
		if err != nil {
			return nil, fmt.Errorf("%s, platform %s: %w", root.Name, img.Platform, err)
		}
		out = append(out, f)
	}
	return out, nil
}
