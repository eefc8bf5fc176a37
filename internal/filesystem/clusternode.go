package filesystem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"
)

// sizeUnknown is the size of a directory that has as many bytes as its cluster chain.
const sizeUnknown = -1

// recordSize is the size of a directory's records on FAT and exFAT.
const recordSize = 32

// clusterVolume is a FAT or exFAT volume: directories are lists of 32-byte records, and files are
// chains of clusters.
type clusterVolume struct {
	clusterHeap
	// rootArea is the root directory of FAT12 and FAT16, which is outside of the clusters.
	rootArea *io.SectionReader
	// nextEntry reads the records of the next file or directory; its error is io.EOF after the last.
	nextEntry func(*recordReader) (*clusterNode, error)
}

// clusterNode is a file or directory as its directory entry describes it.
type clusterNode struct {
	v    *clusterVolume
	name string
	dir  bool
	// root is whether it is the root directory, which has records of its own.
	root bool
	// size is the length in bytes or sizeUnknown, valid how many of them were written.
	size, valid int64
	first       uint32
	// contiguous files have no chain: their clusters follow each other.
	contiguous bool
	modified   time.Time
	// at is the offset of the entry in its directory, and parent the first cluster of that.
	at     int64
	parent uint32
}

// open returns the volume with the root directory that starts at a cluster.
func (v *clusterVolume) open(first uint32, label func(leBytes) (string, bool)) (*Volume, error) {
	root := &clusterNode{v: v, dir: true, root: true, first: first, size: sizeUnknown}
	text, err := root.label(label)
	if err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}
	return &Volume{Kind: v.kind, Label: text, FS: newTree(v.medium, root, caseUnique)}, nil
}

// stat implements node. The formats have no permissions, and the reader is read-only.
func (n *clusterNode) stat() fileInfo {
	info := fileInfo{size: max(0, n.size), mode: 0o444, modTime: n.modified, id: uint64(n.first)}
	if n.dir {
		info.mode = fs.ModeDir | 0o555
	}
	if n.dir && n.size == 0 {
		// A directory of exFAT without contents has no cluster. Only its entry tells it apart.
		info.id = 1<<63 | uint64(n.parent)<<31 | uint64(n.at)
	}
	return info
}

// contents implements node.
func (n *clusterNode) contents() (contents, error) {
	content, err := n.v.content(n)
	if err != nil {
		return nil, n.v.errorf("%w", err)
	}
	return content, nil
}

// entries implements node.
func (n *clusterNode) entries() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		d, err := n.records()
		if err != nil {
			yield(entry{}, n.v.errorf("%w", err))
			return
		}
		for {
			child, err := n.v.nextEntry(d)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(entry{}, n.v.errorf("record at byte %d: %w", d.at, err))
				return
			}
			child.v, child.parent = n.v, n.first
			if !yield(entry{name: child.name, position: child.at, load: func() (node, error) { return child, nil }}, nil) {
				return
			}
		}
	}
}

// recordReader reads the records of a directory.
type recordReader struct {
	r    *bufio.Reader
	root bool
	// at is the offset of the record that next returned last.
	at     int64
	record [recordSize]byte
}

func (n *clusterNode) records() (*recordReader, error) {
	d := &recordReader{root: n.root, at: -recordSize}
	if n.root && n.v.rootArea != nil {
		d.r = bufio.NewReader(io.NewSectionReader(n.v.rootArea, 0, n.v.rootArea.Size()))
		return d, nil
	}
	content, err := n.v.content(n)
	if err != nil {
		return nil, err
	}
	d.r = bufio.NewReader(io.NewSectionReader(content, 0, content.size))
	return d, nil
}

// next returns the next record, valid until the next call, and io.EOF after the last one.
func (d *recordReader) next() (leBytes, error) {
	d.at += recordSize
	if d.at >= maxDirectorySize {
		return nil, fmt.Errorf("directory is larger than %d bytes", maxDirectorySize)
	}
	if _, err := io.ReadFull(d.r, d.record[:]); err != nil {
		return nil, err
	}
	if d.record[0] == 0 {
		return nil, io.EOF
	}
	return d.record[:], nil
}

// label returns the first label that match finds in the root directory.
func (n *clusterNode) label(match func(leBytes) (string, bool)) (string, error) {
	d, err := n.records()
	for err == nil {
		var b leBytes
		if b, err = d.next(); err != nil {
			break
		}
		if label, ok := match(b); ok {
			return label, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	return "", err
}
