package filesystem

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// medium reads the bytes of one file system and names its kind in every error.
type medium struct {
	r    io.ReaderAt
	size int64
	kind string
}

func (m medium) errorf(format string, args ...any) error {
	return fmt.Errorf(m.kind+": "+format, args...)
}

// read fills p from byte at on. The error names what was read.
func (m medium) read(p []byte, at int64, what string) error {
	if err := m.readFull(p, at, what); err != nil {
		return m.errorf("%w", err)
	}
	return nil
}

// readFull is read for callers that name the kind themselves.
func (m medium) readFull(p []byte, at int64, what string) error {
	if !m.contains(at, int64(len(p))) {
		return fmt.Errorf("%s at byte %d is outside of the volume (%d bytes)", what, at, m.size)
	}
	n, err := m.r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %s at byte %d: %w", what, at, err)
}

// contains reports whether length bytes from byte at on belong to the volume.
func (m medium) contains(at, length int64) bool {
	return at >= 0 && length >= 0 && at <= m.size && length <= m.size-at
}

// extent is a part of a file, in bytes, whose contents follow each other on the medium.
type extent struct {
	at     int64
	length int64
	// zeros marks a part that is not on the medium and reads as zeros.
	zeros bool
}

// readExtents fills p from byte off of a file on. find returns the extent from one byte of the
// file on; it must not be empty.
func (m medium) readExtents(p []byte, off int64, find func(off int64) (extent, error)) (int, error) {
	done := 0
	for done < len(p) {
		e, err := find(off + int64(done))
		if err != nil {
			return done, err
		}
		part := p[done:]
		if int64(len(part)) > e.length {
			part = part[:e.length]
		}
		if e.zeros {
			clear(part)
		} else if err := m.read(part, e.at, "contents"); err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

// maxFinds bounds the search for the extents of one file. Block maps can take many for one extent.
const maxFinds = 1 << 18

// extents returns where the first size bytes of a file are. find is as for readExtents.
func (m medium) extents(size int64, limit int, find func(off int64) (extent, error)) ([]Extent, error) {
	var list []Extent
	finds := 0
	for off := int64(0); off < size; finds++ {
		e, err := find(off)
		if err != nil {
			return nil, err
		}
		next, err := m.place(e, size-off)
		if err != nil {
			return nil, err
		}
		off += next.Length
		n := len(list)
		joins := n > 0 && list[n-1].joins(next)
		switch {
		case finds >= maxFinds, !joins && n >= limit:
			return nil, m.errorf("the file has more than %d pieces: copy it to an empty medium", n)
		case joins:
			list[n-1].Length += next.Length
		default:
			list = append(list, next)
		}
	}
	return list, nil
}

// place returns where an extent is on the medium, of which most bytes belong to the file.
func (m medium) place(e extent, most int64) (Extent, error) {
	out := Extent{At: e.at, Length: min(e.length, most), Zeros: e.zeros}
	if e.zeros {
		out.At = 0
	}
	if out.Length <= 0 || !e.zeros && !m.contains(out.At, out.Length) {
		return out, m.errorf("contents at byte %d are outside of the volume (%d bytes)", out.At, m.size)
	}
	return out, nil
}

// joins reports whether next continues e on the medium.
func (e Extent) joins(next Extent) bool {
	return e.Zeros == next.Zeros && (e.Zeros || e.At+e.Length == next.At)
}

// unixModes are the file types of a Unix mode.
var unixModes = map[uint32]fs.FileMode{
	0x1000: fs.ModeNamedPipe,
	0x2000: fs.ModeDevice | fs.ModeCharDevice,
	0x4000: fs.ModeDir,
	0x6000: fs.ModeDevice,
	0x8000: 0,
	0xa000: fs.ModeSymlink,
	0xc000: fs.ModeSocket,
}

// unixMode converts a Unix mode. It reports false for a file type that Unix does not have.
func unixMode(unix uint32) (fs.FileMode, bool) {
	mode, ok := unixModes[unix&0xf000]
	mode |= fs.FileMode(unix & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if unix&bit != 0 {
			mode |= flag
		}
	}
	return mode, ok
}
