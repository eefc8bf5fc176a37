package filesystem

import (
	"bytes"
	"io"
	"iter"
)

// maxISOExtents is how many directory records one file may have: enough for 4 TiB.
const maxISOExtents = 1024

// isoNode is a file or directory of an isoVolume.
type isoNode struct {
	v       *isoVolume
	name    string
	info    fileInfo
	extents []extent
	// refusal says why the contents cannot be read, "" if they can.
	refusal string
	// moved marks a directory that Rock Ridge shows elsewhere; child is the block of the
	// directory that Rock Ridge shows here instead of this file, 0 if there is none.
	moved bool
	child uint32
}

// add appends the extent of a record to the contents.
func (n *isoNode) add(rec isoRecord) error {
	e, err := n.v.extent(rec)
	if err != nil {
		return err
	}
	if len(n.extents) >= maxISOExtents {
		return n.v.errorf("file of the directory record at byte %d has more than %d extents", rec.at, maxISOExtents)
	}
	n.extents = append(n.extents, e)
	n.info.size += e.length
	if n.refusal == "" {
		n.refusal = rec.refusal
	}
	return nil
}

func (n *isoNode) stat() fileInfo { return n.info }

func (n *isoNode) contents() (contents, error) {
	if n.refusal != "" {
		return nil, n.v.errorf("%s", n.refusal)
	}
	return n, nil
}

// ReadAt reads contents. The caller asks within the size of the file.
func (n *isoNode) ReadAt(p []byte, off int64) (int, error) {
	return n.v.readExtents(p, off, n.find)
}

func (n *isoNode) find(off int64) (extent, error) {
	for _, e := range n.extents {
		if off < e.length {
			return extent{at: e.at + off, length: e.length - off}, nil
		}
		off -= e.length
	}
	return extent{}, io.ErrUnexpectedEOF
}

// load returns the node itself, or the directory that Rock Ridge shows in its place.
func (n *isoNode) load() (node, error) {
	if n.child == 0 {
		return n, nil
	}
	rec, err := n.v.selfRecord(n.child)
	if err != nil {
		return nil, err
	}
	return n.v.newNode(rec)
}

func (n *isoNode) entries() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		l := isoLister{v: n.v}
		for rec, err := range n.v.records(n.extents[0]) {
			var e *entry
			if err == nil {
				e, err = l.add(rec)
			}
			if err != nil {
				yield(entry{}, err)
				return
			}
			if e != nil && !yield(*e, nil) {
				return
			}
		}
		if !l.started || l.file != nil {
			yield(entry{}, n.v.errorf("directory at byte %d ends too early", n.extents[0].at))
		}
	}
}

// records yields the directory records of an extent, sector by sector. Each record is valid
// until the next one.
func (v *isoVolume) records(e extent) iter.Seq2[isoRecord, error] {
	return func(yield func(isoRecord, error) bool) {
		buffer := make([]byte, isoSector)
		for done := int64(0); done < e.length; done += isoSector {
			sector := buffer[:min(isoSector, e.length-done)]
			if err := v.read(sector, e.at+done, "directory"); err != nil {
				yield(isoRecord{}, err)
				return
			}
			if !v.sectorRecords(sector, e.at+done, yield) {
				return
			}
		}
	}
}

// sectorRecords yields the records of a sector and reports whether to continue with the next.
func (v *isoVolume) sectorRecords(sector []byte, at int64, yield func(isoRecord, error) bool) bool {
	for len(sector) > 0 && sector[0] != 0 {
		rec, err := v.parseRecord(sector, at)
		if !yield(rec, err) || err != nil {
			return false
		}
		at += int64(sector[0])
		sector = sector[sector[0]:]
	}
	// Only zeros may follow the last record: without this check damage would hide files.
	if len(bytes.Trim(sector, "\x00")) > 0 {
		yield(isoRecord{}, v.errorf("directory record at byte %d has the length 0, but its sector has more records", at))
		return false
	}
	return true
}

// isoLister makes entries of directory records. A file may have several of them.
type isoLister struct {
	v       *isoVolume
	started bool
	// file is what the next record belongs to, nil if it begins an entry. id is its identifier.
	file  *isoNode
	first int64
	id    []byte
}

// add returns the entry that is complete with a record, if one is.
func (l *isoLister) add(rec isoRecord) (*entry, error) {
	switch {
	case !l.started && !rec.isSelf():
		return nil, l.v.errorf("directory at byte %d does not begin with its own record", rec.at)
	case l.file != nil:
		return l.extend(rec)
	case rec.isSpecial() || rec.flags&isoAssociated != 0:
		l.started = true
		return nil, nil
	}
	n, err := l.v.newNode(rec)
	if err != nil {
		return nil, err
	}
	l.file, l.first, l.id = n, rec.at, bytes.Clone(rec.id)
	return l.complete(rec)
}

// extend adds the next record of a file that has several.
func (l *isoLister) extend(rec isoRecord) (*entry, error) {
	if !bytes.Equal(rec.id, l.id) {
		return nil, l.v.errorf("directory record at byte %d is not the next extent of %q", rec.at, l.file.name)
	}
	if err := l.file.add(rec); err != nil {
		return nil, err
	}
	return l.complete(rec)
}

func (l *isoLister) complete(rec isoRecord) (*entry, error) {
	n := l.file
	if rec.flags&isoContinues != 0 {
		if n.info.IsDir() || rec.flags&isoDirectory != 0 {
			return nil, l.v.errorf("directory record at byte %d: a directory has only one extent", rec.at)
		}
		return nil, nil
	}
	l.file = nil
	if n.moved {
		return nil, nil
	}
	return &entry{name: n.name, position: l.first, load: n.load}, nil
}
