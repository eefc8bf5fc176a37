package coldstart

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	rootfs "github.com/containerd/continuity/fs"
)

// Kinds of an Entry.
const (
	File = "f"
	Dir  = "d"
	Link = "l"
	// HardLink is a second name of a file.
	HardLink = "h"
)

// LayerEntry is one path of a layer.
type LayerEntry struct {
	Path string `json:"p"`
	Kind string `json:"k"`
	// Size in bytes of a file.
	Size int64 `json:"s,omitempty"`
	// Sum is the SHA-256 of a file's content, hex.
	Sum string `json:"h,omitempty"`
	// Target of a link.
	Target string `json:"t,omitempty"`
}

// LayerIndex is what a layer consists of.
type LayerIndex []LayerEntry

// whiteout is how an archive marks what a layer removes.
const whiteout = ".wh."

// IndexLayer makes an index of a layer's blob, compressed or not.
func IndexLayer(ctx context.Context, blob io.Reader) (LayerIndex, error) {
	plain, err := compression.DecompressStream(blob)
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	defer plain.Close()
	l := listing{byPath: map[string]LayerEntry{}, removed: map[string]bool{}}
	for r := tar.NewReader(plain); ctx.Err() == nil; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = l.addEntry(h, r)
		}
		if err != nil {
			return nil, fmt.Errorf("layer: %w", err)
		}
	}
	return l.index(), ctx.Err()
}

// listing is an archive while it is read: the last entry of a path counts.
type listing struct {
	byPath  map[string]LayerEntry
	removed map[string]bool
	order   []string
}

func (l *listing) addEntry(h *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if base := path.Base(name); strings.HasPrefix(base, whiteout) {
		l.removed[path.Join(path.Dir(name), strings.TrimPrefix(base, whiteout))] = true
		return nil
	}
	e, known, err := entry(h, name, content)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, again := l.byPath[name]; !again {
		l.order = append(l.order, name)
	}
	if l.byPath[name] = e; !known {
		l.byPath[name] = LayerEntry{}
	}
	return nil
}

func (l *listing) index() (out LayerIndex) {
	for _, name := range l.order {
		if e := l.byPath[name]; e.Kind != "" && !l.removed[name] {
			out = append(out, e)
		}
	}
	return out
}

// entry describes a path; devices and other special files are not compared.
func entry(h *tar.Header, name string, content io.Reader) (e LayerEntry, known bool, err error) {
	e.Path = name
	switch h.Typeflag {
	case tar.TypeReg:
		sum := sha256.New()
		if e.Size, err = io.Copy(sum, content); err != nil {
			return e, false, err
		}
		e.Kind, e.Sum = File, fmt.Sprintf("%x", sum.Sum(nil))
	case tar.TypeDir:
		e.Kind = Dir
	case tar.TypeSymlink:
		e.Kind, e.Target = Link, h.Linkname
	case tar.TypeLink:
		e.Kind = HardLink
	default:
		return e, false, nil
	}
	return e, name != "", nil
}

// LayerDamage is what differs from the index.
type LayerDamage struct {
	// Missing paths, files of another Size, files whose content Differs.
	Missing, Size, Differs []string
	// Files and Bytes whose content was compared.
	Files int
	Bytes int64
}

// Found reports whether there is damage.
func (d LayerDamage) Found() bool { return len(d.Missing)+len(d.Size)+len(d.Differs) > 0 }

// String describes the damage, with one path of each kind.
func (d LayerDamage) String() string {
	var parts []string
	for _, p := range []struct {
		what  string
		paths []string
	}{{"missing", d.Missing}, {"of another size", d.Size}, {"with another content", d.Differs}} {
		if len(p.paths) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(p.paths), p.what, p.paths[0]))
		}
	}
	return strings.Join(parts, ", ")
}

// Check compares a directory with the index: paths, sizes, and if deep the content of every
// file.
func (x LayerIndex) Check(ctx context.Context, dir string, deep bool) (LayerDamage, error) {
	var d LayerDamage
	parents := map[string]string{}
	for _, e := range x {
		if ctx.Err() != nil {
			return d, ctx.Err()
		}
		at, err := resolveInLayer(parents, dir, e.Path)
		if err != nil {
			return d, err
		}
		st, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			d.Missing = append(d.Missing, e.Path)
			continue
		}
		if err != nil {
			return d, err
		}
		if err := d.compareEntry(e, at, st, deep); err != nil {
			return d, err
		}
	}
	return d, nil
}

// resolveInLayer is the location of a path of the layer; links among its parents are followed
// as from a root.
func resolveInLayer(parents map[string]string, dir, name string) (string, error) {
	parent := path.Dir(name)
	at, ok := parents[parent]
	if !ok {
		var err error
		if at, err = rootfs.RootPath(dir, parent); err != nil {
			return "", err
		}
		parents[parent] = at
	}
	return filepath.Join(at, path.Base(name)), nil
}

func (d *LayerDamage) compareEntry(e LayerEntry, at string, st fs.FileInfo, deep bool) error {
	switch e.Kind {
	case Dir:
		if !st.IsDir() {
			d.Differs = append(d.Differs, e.Path)
		}
	case Link:
		if target, err := os.Readlink(at); err != nil || target != e.Target {
			d.Differs = append(d.Differs, e.Path)
		}
	case HardLink:
		if !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0 {
			d.Differs = append(d.Differs, e.Path)
		}
	case File:
		return d.compareFile(e, at, st, deep)
	}
	return nil
}

func (d *LayerDamage) compareFile(e LayerEntry, at string, st fs.FileInfo, deep bool) error {
	if !st.Mode().IsRegular() || st.Size() != e.Size {
		d.Size = append(d.Size, e.Path)
		return nil
	}
	if !deep {
		return nil
	}
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil { // what the disk cannot read is damage too
		d.Differs = append(d.Differs, e.Path)
		return nil //nolint:nilerr // reported as damage
	}
	d.Files, d.Bytes = d.Files+1, d.Bytes+n
	if fmt.Sprintf("%x", sum.Sum(nil)) != e.Sum {
		d.Differs = append(d.Differs, e.Path)
	}
	return nil
}

// RestoreLayer unpacks a layer's blob over a directory, as the runtime did: it writes files
// anew, and whiteouts in the overlay format. base is the lowest layer of an image, which
// removes nothing. RestoreLayer compares the blob with its digest (sha256:<hex>) before it
// writes anything.
func RestoreLayer(ctx context.Context, dir string, blob io.ReadSeeker, digest string, base bool) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, blob); err != nil {
		return fmt.Errorf("layer %s: %w", digest, err)
	}
	if got := fmt.Sprintf("sha256:%x", sum.Sum(nil)); got != digest {
		return fmt.Errorf("layer %s: the copy has digest %s: it is corrupt and is not used", digest, got)
	}
	if _, err := blob.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("layer %s: %w", digest, err)
	}
	plain, err := compression.DecompressStream(blob)
	if err != nil {
		return fmt.Errorf("layer %s: %w", digest, err)
	}
	defer plain.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var opts []archive.ApplyOpt
	if !base {
		opts = append(opts, archive.WithConvertWhiteout(replaceWhiteout))
	}
	if _, err := archive.Apply(ctx, dir, plain, opts...); err != nil {
		return fmt.Errorf("layer %s into %s: %w", digest, dir, err)
	}
	return nil
}

// replaceWhiteout makes a whiteout that may exist already.
func replaceWhiteout(h *tar.Header, at string) (bool, error) {
	if name, ok := strings.CutPrefix(filepath.Base(at), whiteout); ok && !strings.HasPrefix(name, whiteout) {
		if err := os.RemoveAll(filepath.Join(filepath.Dir(at), name)); err != nil {
			return false, err
		}
	}
	return archive.OverlayConvertWhiteout(h, at)
}
