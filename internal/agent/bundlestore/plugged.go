package bundlestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// inserted is a medium that is plugged in, and what was read of it.
type inserted struct {
	media.Medium
	// handle is open while bundles on it can be read, else nil.
	handle  Handle
	bundles []*Plugged
	deltas  []*PluggedDelta
	// parts are those of bundles in parts, labels what such bundles say of themselves.
	parts    []*pluggedPart
	labels   []*bundle.Header
	contents Contents
	// err is why the medium could not be read.
	err   error
	retry time.Time // when it is read again after an error of reading
}

// insert reads what is on a medium.
func insert(ctx context.Context, m media.Medium, open func(media.Medium) (Handle, int64, error), read ContentsReader) *inserted {
	in := &inserted{Medium: m}
	f, size, err := open(m)
	if err == nil {
		if in.err = in.read(ctx, f, size, read); in.isReadable() {
			in.handle = f
			return in
		}
		_ = f.Close() // opened for reading only
		err = in.err
	}
	in.err = err
	if in.failedToRead() {
		in.retry = time.Now().Add(retryAfter)
	}
	return in
}

// read finds the bundles on an open medium. Other contents than a bundle are no error.
func (in *inserted) read(ctx context.Context, f Handle, size int64, read ContentsReader) error {
	var first [1]byte
	if n, err := f.ReadAt(first[:], 0); errors.Is(err, io.EOF) && n == 0 {
		return nil // an empty file
	} else if err != nil && n == 0 {
		return fmt.Errorf("medium %s: %w", in.Path, err)
	}
	c, err := read(ctx, f)
	if err != nil {
		return fmt.Errorf("medium %s: %w", in.Path, err)
	}
	in.contents = c
	for _, b := range c.Bundles {
		if b.Name == "" { // a device can be larger than the bundle that starts with its first byte
			b.Size = size
		}
		if err := in.add(f, b); err != nil {
			return fmt.Errorf("%w: %w", errContents, err)
		}
	}
	return in.readParts(f)
}

// add opens a bundle or a delta on the medium.
func (in *inserted) add(f Handle, b OnMedium) error {
	p := &Plugged{Path: in.pathOf(b.Name), name: b.Name}
	if b.Err == nil && b.Base != "" {
		d, err := openDelta(f, p.Path, b)
		if err == nil {
			in.deltas = append(in.deltas, d)
		}
		return err
	}
	if p.opened, p.err = openBundle(f, b); p.err != nil {
		p.opened, p.err = nil, fmt.Errorf("medium %s: %w", p.Path, p.err)
	}
	in.bundles = append(in.bundles, p)
	return nil
}

// readParts opens the parts of bundles on the medium.
func (in *inserted) readParts(f Handle) error {
	for _, l := range in.contents.Labels {
		h, err := l.Header()
		if err != nil {
			return fmt.Errorf("%w: %w", errContents, err)
		}
		in.labels = append(in.labels, h)
	}
	for _, on := range in.contents.Parts {
		p, err := openPart(f, in.pathOf(on.Name), on)
		if err != nil {
			return fmt.Errorf("%w: %w", errContents, err)
		}
		in.parts = append(in.parts, p)
	}
	return nil
}

// pathOf names a bundle on the medium: as the commands of refit take it, and each only once.
func (in *inserted) pathOf(name string) string {
	if name == "" {
		return in.Path
	}
	path := in.Path + "#" + name
	taken := func() bool {
		return slices.ContainsFunc(in.bundles, func(p *Plugged) bool { return p.Path == path }) ||
			slices.ContainsFunc(in.deltas, func(d *PluggedDelta) bool { return d.Path == path }) ||
			slices.ContainsFunc(in.parts, func(p *pluggedPart) bool { return p.path == path })
	}
	for n := 2; taken(); n++ {
		path = fmt.Sprintf("%s#%s (%d)", in.Path, name, n)
	}
	return path
}

// isReadable reports whether a bundle on the medium, or a part of one, can be read.
func (in *inserted) isReadable() bool {
	return len(in.parts) > 0 || len(in.deltas) > 0 || slices.ContainsFunc(in.bundles, func(p *Plugged) bool { return p.opened != nil })
}

// failedToRead reports whether the medium was not readable: it may be a bad contact.
func (in *inserted) failedToRead() bool {
	return in.err != nil || in.contents.Unreadable != "" ||
		slices.ContainsFunc(in.bundles, func(p *Plugged) bool { return p.err != nil && !isContentError(p.err) })
}

func (in *inserted) close() {
	if in.handle != nil {
		_ = in.handle.Close() // opened for reading only
	}
}

// describe returns the bundles on the medium for the node's status.
func (in *inserted) describe(policy Policy, here func(string) Availability) (out []*ranked) {
	for _, p := range in.bundles {
		if p.opened == nil {
			m := Unreadable(p.Path, p.err)
			out = append(out, &ranked{m, rank(m, false)})
			continue
		}
		d := policy.Decide(p.Header())
		m := p.describe(d, here)
		out = append(out, &ranked{m, rank(m, d.Allowed)})
	}
	if in.err != nil && (in.Expected || errors.Is(in.err, errContents)) {
		m := Unreadable(in.Path, in.err)
		out = append(out, &ranked{m, rank(m, false)})
	}
	return out
}

// describeMissing says what was seen on a medium without a bundle. It is empty if there is one,
// if the medium could not be read, and for the machine's own devices.
func (in *inserted) describeMissing() string {
	if !in.Expected || len(in.bundles) > 0 || len(in.deltas) > 0 || len(in.parts) > 0 || in.err != nil {
		return ""
	}
	name := in.Model
	if name == "" {
		name = in.Path
	}
	c := in.contents
	var seen []string
	if len(c.FileSystems) > 0 {
		files := text.Count(c.Files, "file")
		if c.More {
			files = "the first " + files
		}
		seen = append(seen, fmt.Sprintf("checked %s in %s, in the root directory and in directories below it", files, strings.Join(c.FileSystems, ", ")))
	}
	seen = append(seen, c.Problems...)
	if c.Unreadable != "" {
		seen = append(seen, c.Unreadable)
	}
	if len(seen) == 0 {
		seen = append(seen, "it has no known file system: copy the bundle to a medium with FAT, exFAT, ISO 9660 or ext4, or write it with refit bundle write")
	}
	return fmt.Sprintf("no bundle found on %s: %s", name, strings.Join(seen, "; "))
}

// isContentError reports whether the medium was readable, and its content is invalid.
func isContentError(err error) bool {
	var c *bundle.CorruptError
	var n *bundle.TooNewError
	return errors.As(err, &n) || errors.As(err, &c) && c.Err == nil
}

// Plugged is a bundle on a medium that is plugged in.
type Plugged struct {
	// Path of the medium, and after # that of the file on it.
	Path string
	// name is that of the file, empty for a bundle without a file system.
	name string
	// opened is nil if the bundle cannot be read (err), or is in parts.
	opened *Opened
	err    error
	// inParts reads a bundle in parts, nil for a whole one.
	inParts *partReader
	// failed is why the bundle could not be copied to the end.
	failed error
	// damaged is why a part of it could not be read for another node; the rest is still used.
	damaged error
}

// Reader reads the bundle's chunks; of a bundle in parts, those that the medium covers. h is the
// header if it is known. Else Reader parses the whole header: call it only after the bundle is
// allowed.
func (p *Plugged) Reader(h *bundle.Header) (*bundlereader.File, error) {
	switch {
	case p.inParts == nil:
		return p.opened.readHeader()
	case h == nil && p.inParts.label == nil:
		return nil, errHeaderElsewhere
	}
	return p.inParts.open(h)
}

// Header is the content of the label: enough to decide whether the bundle is allowed, and no
// more. It is nil for a bundle in parts if the part with its header is not plugged in.
func (p *Plugged) Header() *bundle.Header {
	if p.inParts != nil {
		return p.inParts.label
	}
	return p.opened.header
}

// RawHeader reads the bytes of the header from the medium, as many as the label says, and
// parses nothing.
func (p *Plugged) RawHeader() ([]byte, error) {
	if p.inParts != nil {
		raw, err := p.inParts.rawHeader()
		if err != nil {
			return nil, fmt.Errorf("header on %s: %w", p.Path, err)
		}
		return raw, nil
	}
	raw := make([]byte, p.Header().HeaderSize())
	if _, err := p.opened.file.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("header on %s: %w", p.Path, err)
	}
	return raw, nil
}

// describe returns the bundle for the node's status.
func (p *Plugged) describe(d bundle.Decision, here func(string) Availability) v1alpha1.Medium {
	f := Finding(p.Path, p.Header(), d)
	if !d.Allowed {
		return f
	}
	if p.failed != nil {
		f.State, f.Message = v1alpha1.MediumUnreadable, p.failed.Error()
		return truncateMessage(f)
	}
	if p.damaged != nil {
		f.State, f.Message = v1alpha1.MediumUnreadable, "another node wants a part that cannot be read: "+p.damaged.Error()
		return truncateMessage(f)
	}
	switch h := here(f.Digest); {
	case h.Total == 0:
		f.Message = fmt.Sprintf("allowed by %s; this node needs nothing of it yet", d.By)
	case h.Missing > 0:
		f.State, f.Message = v1alpha1.MediumCopying, "do not pull it yet"
	case h.All:
		f.State, f.Message = v1alpha1.MediumCopied, "all of it is on this node's disk; the medium may be pulled"
	default:
		f.State, f.Message = v1alpha1.MediumCopied, "this node has all it needs of it, and serves the rest to other nodes; the medium may be pulled when every node has what it needs"
	}
	return f
}

// Opened is a bundle on an open medium. Only the label of its header is read until readHeader
// is called.
type Opened struct {
	header *bundle.Header // what the label says
	begin  []byte         // the first bytes of the bundle
	// place is where the bundle is, file reads it.
	place  OnMedium
	medium Handle
	file   io.ReaderAt
	size   int64

	once   sync.Once
	reader *bundlereader.File
	err    error
}

// comparedBytes is how much of a header is read again at every scan.
const comparedBytes = 64 << 10

// openBundle opens a bundle that the reader of the medium found.
func openBundle(f Handle, b OnMedium) (*Opened, error) {
	if b.Err != nil {
		return nil, b.Err
	}
	o := &Opened{place: b, medium: f, size: b.Size, file: b.on(f)}
	var err error
	if o.header, err = b.Label.Header(); err != nil {
		return nil, fmt.Errorf("%w: %w", errContents, err)
	}
	if err := bundlereader.CheckSize(o.size, b.Label.FileSize); err != nil {
		return nil, err
	}
	o.begin = make([]byte, min(comparedBytes, b.Label.HeaderSize))
	_, err = o.file.ReadAt(o.begin, 0)
	return o, err
}

// on returns the bytes of the bundle on an open medium.
func (b OnMedium) on(f Handle) io.ReaderAt {
	if b.Name == "" {
		return f
	}
	return newExtentReader(f, b.Extents)
}

// isOn reports whether the bundle is still where it was.
func (o *Opened) isOn(f Handle) bool {
	got := make([]byte, len(o.begin))
	_, err := o.place.on(f).ReadAt(got, 0)
	return err == nil && bytes.Equal(got, o.begin)
}

// readHeader parses the whole header. The label's digest was approved or signed by then, and
// is compared before anything is decoded: it covers every byte of the header.
func (o *Opened) readHeader() (*bundlereader.File, error) {
	o.once.Do(func() {
		o.reader, o.err = bundlereader.OpenOf(o.header.Digest, o.file, o.size)
		if o.err == nil {
			o.err = o.reader.CheckSize()
		}
	})
	return o.reader, o.err
}
