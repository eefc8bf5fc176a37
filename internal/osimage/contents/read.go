package contents

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// incomparable is why an image is not compared: it is too large or malformed.
type incomparable string

func (o incomparable) Error() string { return string(o) }

// maxPath path of an entry, or target of a link, in bytes.
const maxPath = 4096

// reader reads layers within limits.
type reader struct {
	lim     Limits
	read    int64
	plain   int64
	entries int
	kept    int64
}

// limitedReader counts what it reads, and fails with exceeded beyond the limit.
type limitedReader struct {
	from     io.Reader
	n        *int64
	limit    int64
	exceeded incomparable
	sum      hash.Hash
	// failed is the error of the source, other than io.EOF.
	failed error
}

func (c *limitedReader) Read(p []byte) (int, error) {
	if *c.n >= c.limit {
		p = p[:min(1, len(p))] // the source may end exactly at the limit
	}
	n, err := c.from.Read(p)
	if *c.n += int64(n); *c.n > c.limit {
		return 0, c.exceeded
	}
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed = err
	}
	return n, err
}

// visitFunc gets every visible entry; an error ends the reading.
type visitFunc func(name string, e Entry) error

// readTree reads layers into a tree, the highest first.
func (r *reader) readTree(layers []Layer, base Presence, see visitFunc) (*tree, error) {
	t := newTree(base)
	for i := len(layers) - 1; i >= 0; i-- {
		t.beginLayer()
		if err := r.readLayer(layers[i], t, see); err != nil {
			return nil, err
		}
		if err := t.endLayer(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// readLayer reads a layer and verifies its digest.
func (r *reader) readLayer(l Layer, t *tree, see visitFunc) error {
	want, ok := strings.CutPrefix(l.Digest, "sha256:")
	if !ok {
		return incomparable("layer " + l.Digest + " has a digest of another kind than sha256")
	}
	blob, err := l.Open()
	if err != nil {
		return err
	}
	defer blob.Close()
	raw := &limitedReader{from: blob, n: &r.read, limit: r.lim.Bytes, exceeded: incomparable(fmt.Sprintf("its layers have more than %d MB", r.lim.Bytes>>20)), sum: sha256.New()}
	err = r.unpackLayer(l, raw, t, see)
	if err == nil {
		_, err = io.Copy(io.Discard, raw)
	}
	if err = l.verdict(raw, err); err != nil {
		return err
	}
	if got := hex.EncodeToString(raw.sum.Sum(nil)); got != want {
		return incomparable("layer " + l.Digest + " is not what its digest says")
	}
	return nil
}

func (r *reader) unpackLayer(l Layer, raw io.Reader, t *tree, see visitFunc) error {
	plain, done, err := decompress(l.MediaType, raw)
	if err != nil {
		return err
	}
	defer done()
	in := &limitedReader{from: plain, n: &r.plain, limit: r.lim.Unpacked, exceeded: incomparable(fmt.Sprintf("its layers unpack to more than %d MB", r.lim.Unpacked>>20))}
	for x := tar.NewReader(in); ; {
		h, err := x.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.addEntry(h, x, t, see)
		}
		if err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

func decompress(mediaType string, raw io.Reader) (io.Reader, func(), error) {
	switch {
	case strings.HasSuffix(mediaType, "gzip"):
		z, err := gzip.NewReader(raw)
		return z, func() {}, err
	case strings.HasSuffix(mediaType, "zstd"):
		z, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case strings.HasSuffix(mediaType, "tar"):
		return raw, func() {}, nil
	}
	return nil, nil, incomparable("a layer has media type " + mediaType + ", which is not read")
}

func (r *reader) addEntry(h *tar.Header, content io.Reader, t *tree, see visitFunc) error {
	if r.entries++; r.entries > r.lim.Entries {
		return incomparable(fmt.Sprintf("its layers have more than %d entries", r.lim.Entries))
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanPath(h.Name)
	if err != nil || name == "" || isUnapplied(name, h) {
		return err
	}
	if strings.HasPrefix(path.Base(name), whiteout) {
		return t.applyWhiteout(name)
	}
	e, err := r.readEntry(name, h, content, t)
	if err != nil {
		return err
	}
	if t.addEntry(name, e) && see != nil {
		return see(name, e)
	}
	return nil
}

// cleanPath returns a path without the leading slash.
func cleanPath(name string) (string, error) {
	switch {
	case len(name) > maxPath:
		return "", incomparable(fmt.Sprintf("it has a path of %d bytes", len(name)))
	case slices.Contains(strings.Split(name, "/"), ".."), strings.ContainsAny(name, "\x00\n"):
		return "", incomparable(fmt.Sprintf("it has the path %q, which no image should have", name))
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// machineDirs are directories whose content belongs to the machine or the kernel; an update of
// a node does not apply it.
var machineDirs = []string{"dev", "proc", "run", "sys", "tmp", "var"}

func isUnapplied(name string, h *tar.Header) bool {
	top, _, below := strings.Cut(name, "/")
	return slices.Contains(machineDirs, top) && (below || h.Typeflag == tar.TypeDir)
}

// readEntry returns an entry, with the digest of a file's content.
func (r *reader) readEntry(name string, h *tar.Header, content io.Reader, t *tree) (Entry, error) {
	if len(h.Linkname) > maxPath {
		return Entry{}, incomparable(fmt.Sprintf("%s is a link with %d bytes", name, len(h.Linkname)))
	}
	e := Entry{Mode: uint32(h.Mode) & 0o7777, UID: h.Uid, GID: h.Gid, Attributes: attributes(h)}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		e.Kind = File
		err := r.readContent(name, h.Size, content, &e)
		return e, err
	case tar.TypeDir:
		e.Kind = Directory
	case tar.TypeSymlink:
		e.Kind, e.Link = Symlink, h.Linkname
	case tar.TypeLink:
		at, err := cleanPath(h.Linkname)
		if err != nil {
			return e, err
		}
		if same, ok := t.here[at]; ok && same.Kind == File {
			return same, nil
		}
		e.Kind, e.Link = Other, at
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		e.Kind, e.Link = Other, fmt.Sprint(string(h.Typeflag), h.Devmajor, ":", h.Devminor)
	default:
		return e, incomparable(fmt.Sprintf("%s is an entry of type %q, which is not known here", name, h.Typeflag))
	}
	return e, nil
}

// readContent hashes a file, and keeps the content of a small one below /etc.
func (r *reader) readContent(name string, size int64, content io.Reader, e *Entry) error {
	sum := sha256.New()
	var to io.Writer = sum
	var kept *strings.Builder
	if strings.HasPrefix(name, "etc/") && size <= r.lim.File && r.kept+size <= r.lim.Kept {
		kept = &strings.Builder{}
		to = io.MultiWriter(sum, kept)
		r.kept += size
	}
	before := r.plain
	left := r.lim.Unpacked - before
	n, err := io.Copy(to, io.LimitReader(content, left+1))
	if err != nil {
		return err
	}
	if n > left { // a sparse file is larger than its bytes in the tar
		return incomparable(fmt.Sprintf("its layers unpack to more than %d MB", r.lim.Unpacked>>20))
	}
	r.plain = max(r.plain, before+n)
	e.Digest, e.Size = "sha256:"+hex.EncodeToString(sum.Sum(nil)), n
	if kept != nil {
		e.Data = []byte(kept.String())
	}
	return nil
}

// attributes returns a hash of the extended attributes, without the SELinux label, which the
// node's own policy sets.
func attributes(h *tar.Header) string {
	var all []string
	for k, v := range h.PAXRecords {
		if (strings.HasPrefix(k, "SCHILY.xattr.") || strings.HasPrefix(k, "LIBARCHIVE.xattr.") || strings.HasPrefix(k, "SCHILY.acl.")) && !strings.HasSuffix(k, "security.selinux") {
			all = append(all, fmt.Sprintf("%d %s %s", len(k), k, v))
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])
}
