package filesystem

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// ErrUnknown is the error of Open for a medium without a file system that is known here.
var ErrUnknown = errors.New("no known file system")

// errOther is what the reader of one format answers about a medium that has another format.
var errOther = errors.New("another file system")

// Limits of every reader, against media that are made to keep it busy.
const (
	// maxEntries is how many entries one directory may have.
	maxEntries = 65536
	// maxDepth is how deep directories may nest.
	maxDepth = 32
)

// Volume is the file system of a medium. Names are compared as the format does: FAT32, exFAT
// and ISO 9660 without Rock Ridge do not distinguish upper and lower case.
type Volume struct {
	// Kind is "FAT32", "FAT16", "FAT12", "exFAT", "ISO 9660" or "ext4".
	Kind string
	// Label is the volume's name, "" if it has none.
	Label string
	// FS has the files. It implements fs.ReadDirFS and fs.StatFS; what Open returns for a
	// regular file implements File.
	fs.FS
}

// ReadDir lists a directory, sorted by name.
func (v *Volume) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(v.FS, name) }

// Stat describes a file, a directory or a symbolic link.
func (v *Volume) Stat(name string) (fs.FileInfo, error) { return fs.Stat(v.FS, name) }

// File is a regular file of a Volume.
type File interface {
	fs.File
	io.ReaderAt
	// Extents returns where the contents are in the reader that Open got: at most limit extents,
	// in the order of the file and without gaps, as large as possible. They are for a process
	// that reads the file and must not parse a file system. Files with more extents, and files
	// with their contents among the numbers of the file system, are errors.
	Extents(limit int) ([]Extent, error)
}

// Extent is a part of a file whose bytes follow each other on the medium.
type Extent struct {
	// At is the place of the first byte; 0 for zeros.
	At int64
	// Length is the number of bytes, at least 1.
	Length int64
	// Zeros marks a part that is not on the medium and reads as zeros.
	Zeros bool
}

// Open finds the file system that begins at the start of r, which has size bytes. It does not
// look for partitions. Errors: ErrUnknown, *UnsupportedError, or what is wrong with the file
// system.
func Open(r io.ReaderAt, size int64) (*Volume, error) {
	// ISO 9660 is last: its descriptors can survive where a newer ext4 has not written yet.
	for _, open := range []func(io.ReaderAt, int64) (*Volume, error){openFAT32, openExFAT, openExt4, openISO9660} {
		v, err := open(r, size)
		if errors.Is(err, errOther) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("file system: %w", err)
		}
		return v, nil
	}
	return nil, unsupported(r, size)
}
