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

// odd is why an image is not compared: it is too large, or not as images are.
type odd string

func (o odd) Error() string { return string(o) }

// longest path of an entry, or target of a link, in bytes.
const longest = 4096

// reader reads layers within limits.
type reader struct {
	lim     Limits
	read    int64
	plain   int64
	entries int
	kept    int64
}

// counted is a part of what may be read.
type counted struct {
	from io.Reader
	n    *int64
	most int64
	over odd
	sum  hash.Hash
	// failed is what the source said, if it is no end.
	failed error
}

func (c *counted) Read(p []byte) (int, error) {
	if *c.n >= c.most {
		p = p[:min(1, len(p))] // the end may be just there
	}
	n, err := c.from.Read(p)
	if *c.n += int64(n); *c.n > c.most {
		return 0, c.over
	}
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed = err
	}
	return n, err
}

// seen is told of every entry that counts; an error ends the reading.
type seen func(name string, e Entry) error

// tree of layers, the highest first.
func (r *reader) tree(layers []Layer, base Presence, see seen) (*tree, error) {
	t := newTree(base)
	for i := len(layers) - 1; i >= 0; i-- {
		t.begin()
		if err := r.layer(layers[i], t, see); err != nil {
			return nil, err
		}
		if err := t.end(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// layer reads one, and compares it with its digest.
func (r *reader) layer(l Layer, t *tree, see seen) error {
	want, ok := strings.CutPrefix(l.Digest, "sha256:")
	if !ok {
		return odd("layer " + l.Digest + " has a digest of another kind than sha256")
	}
	blob, err := l.Open()
	if err != nil {
		return err
	}
	defer blob.Close()
	raw := &counted{from: blob, n: &r.read, most: r.lim.Bytes, over: odd(fmt.Sprintf("its layers have more than %d MB", r.lim.Bytes>>20)), sum: sha256.New()}
	err = r.unpack(l, raw, t, see)
	if err == nil {
		_, err = io.Copy(io.Discard, raw)
	}
	var mine odd
	switch {
	case err == nil:
	case raw.failed != nil:
		return raw.failed
	case errors.Is(err, errStop), errors.As(err, &mine):
		return err
	default:
		return odd("layer " + l.Digest + " cannot be read: " + err.Error())
	}
	if got := hex.EncodeToString(raw.sum.Sum(nil)); got != want {
		return odd("layer " + l.Digest + " is not what its digest says")
	}
	return nil
}

func (r *reader) unpack(l Layer, raw io.Reader, t *tree, see seen) error {
	plain, done, err := decompress(l.MediaType, raw)
	if err != nil {
		return err
	}
	defer done()
	in := &counted{from: plain, n: &r.plain, most: r.lim.Unpacked, over: odd(fmt.Sprintf("its layers unpack to more than %d MB", r.lim.Unpacked>>20))}
	for x := tar.NewReader(in); ; {
		h, err := x.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.entry(h, x, t, see)
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
	return nil, nil, odd("a layer has media type " + mediaType + ", which is not read")
}

func (r *reader) entry(h *tar.Header, content io.Reader, t *tree, see seen) error {
	if r.entries++; r.entries > r.lim.Entries {
		return odd(fmt.Sprintf("its layers have more than %d entries", r.lim.Entries))
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil || name == "" || unapplied(name, h) {
		return err
	}
	if strings.HasPrefix(path.Base(name), whiteout) {
		return t.takeAway(name)
	}
	e, err := r.read1(name, h, content, t)
	if err != nil {
		return err
	}
	if t.add(name, e) && see != nil {
		return see(name, e)
	}
	return nil
}

// clean is a path without the leading slash.
func clean(name string) (string, error) {
	switch {
	case len(name) > longest:
		return "", odd(fmt.Sprintf("it has a path of %d bytes", len(name)))
	case slices.Contains(strings.Split(name, "/"), ".."), strings.ContainsAny(name, "\x00\n"):
		return "", odd(fmt.Sprintf("it has the path %q, which no image should have", name))
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// machines are directories in which an update of a node applies nothing: their content
// is the machine's own, or the kernel's.
var machines = []string{"dev", "proc", "run", "sys", "tmp", "var"}

func unapplied(name string, h *tar.Header) bool {
	top, _, below := strings.Cut(name, "/")
	return slices.Contains(machines, top) && (below || h.Typeflag == tar.TypeDir)
}

// read1 is what an entry says; the bytes of a file go through a hash.
func (r *reader) read1(name string, h *tar.Header, content io.Reader, t *tree) (Entry, error) {
	if len(h.Linkname) > longest {
		return Entry{}, odd(fmt.Sprintf("%s is a link with %d bytes", name, len(h.Linkname)))
	}
	e := Entry{Mode: uint32(h.Mode) & 0o7777, UID: h.Uid, GID: h.Gid, Attributes: attributes(h)}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		e.Kind = File
		err := r.content(name, h.Size, content, &e)
		return e, err
	case tar.TypeDir:
		e.Kind = Directory
	case tar.TypeSymlink:
		e.Kind, e.Link = Symlink, h.Linkname
	case tar.TypeLink:
		at, err := clean(h.Linkname)
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
		return e, odd(fmt.Sprintf("%s is an entry of type %q, which is not known here", name, h.Typeflag))
	}
	return e, nil
}

// content hashes a file, and keeps it if it is small and of /etc.
func (r *reader) content(name string, size int64, content io.Reader, e *Entry) error {
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
	if n > left { // a sparse file has more in it than what was read of it
		return odd(fmt.Sprintf("its layers unpack to more than %d MB", r.lim.Unpacked>>20))
	}
	r.plain = max(r.plain, before+n)
	e.Digest, e.Size = "sha256:"+hex.EncodeToString(sum.Sum(nil)), n
	if kept != nil {
		e.Data = []byte(kept.String())
	}
	return nil
}

// attributes is a hash of the extended ones. A label of SELinux is given by the node's
// own policy.
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
