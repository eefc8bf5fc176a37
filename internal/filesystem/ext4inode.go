package filesystem

import (
	"encoding/binary"
	"iter"
	"sync/atomic"
	"time"
)

// Flags of an inode.
const (
	ext4Compressed = 0x4
	ext4Encrypted  = 0x800
	ext4Extents    = 0x80000
	ext4Inline     = 0x10000000
)

// ext4Inode is a file or directory of an ext4Volume.
type ext4Inode struct {
	v      *ext4Volume
	number uint32
	info   fileInfo
	flags  uint32
	// root is the root of the tree of extents, the first pointers of a block map, or the
	// beginning of inline data.
	root [60]byte
	// inline is the rest of inline data.
	inline []byte
	// seed starts the checksums of the inode and of its blocks of extents.
	seed uint32
	// last is the run that was found last. Small reads in a row need no other.
	last atomic.Pointer[fileRun]
}

func (n *ext4Inode) errorf(format string, args ...any) error {
	return n.v.errorf("inode %d: "+format, append([]any{n.number}, args...)...)
}

// parse checks an inode as it is on the medium and reads its fields.
func (n *ext4Inode) parse(raw []byte) error {
	if err := n.verify(raw); err != nil {
		return err
	}
	unix := uint32(binary.LittleEndian.Uint16(raw))
	mode, ok := unixMode(unix)
	if !ok || binary.LittleEndian.Uint16(raw[0x1a:]) == 0 {
		return n.errorf("not in use (mode %#o, %d links)", unix, binary.LittleEndian.Uint16(raw[0x1a:]))
	}
	n.flags = binary.LittleEndian.Uint32(raw[0x20:])
	copy(n.root[:], raw[0x28:])
	size := uint64(binary.LittleEndian.Uint32(raw[0x4:]))
	if mode.IsRegular() { // others use the upper half for something else
		size |= uint64(binary.LittleEndian.Uint32(raw[0x6c:])) << 32
	}
	if size > uint64(n.v.blockSize)<<32 {
		return n.errorf("size of %d bytes is larger than a file can be", size)
	}
	n.info = fileInfo{size: int64(size), mode: mode, modTime: ext4Time(raw), id: uint64(n.number)}
	if mode.IsDir() && size > maxDirectory {
		return n.errorf("directory of %d bytes, at most %d are supported", size, maxDirectory)
	}
	if n.flags&ext4Inline != 0 {
		return n.parseInline(raw)
	}
	return nil
}

// verify checks the checksum of an inode.
func (n *ext4Inode) verify(raw []byte) error {
	if !n.v.checksums {
		return nil
	}
	n.seed = crc32c(n.v.seed, littleEndian(n.number), raw[0x64:0x68])
	want := uint32(binary.LittleEndian.Uint16(raw[0x7c:]))
	mask := uint32(0xffff)
	clear(raw[0x7c:0x7e])
	if len(raw) > ext4OldInode && binary.LittleEndian.Uint16(raw[0x80:]) >= 4 {
		want |= uint32(binary.LittleEndian.Uint16(raw[0x82:])) << 16
		mask = ^uint32(0)
		clear(raw[0x82:0x84])
	}
	if crc32c(n.seed, raw)&mask != want {
		return n.errorf("checksum is wrong")
	}
	return nil
}

// ext4Time is the time of the last change, with the bits that large inodes add to it.
func ext4Time(raw []byte) time.Time {
	seconds, nanoseconds := int64(int32(binary.LittleEndian.Uint32(raw[0x10:]))), int64(0)
	if len(raw) > ext4OldInode && binary.LittleEndian.Uint16(raw[0x80:]) >= 0x8c-ext4OldInode {
		extra := binary.LittleEndian.Uint32(raw[0x88:])
		seconds += int64(extra&3) << 32
		nanoseconds = int64(extra >> 2)
	}
	return time.Unix(seconds, nanoseconds).UTC()
}

// parseInline finds inline data: it begins in the inode's 60 bytes for block numbers and goes on
// in the attribute "system.data" behind the inode's fields.
func (n *ext4Inode) parseInline(raw []byte) error {
	if len(raw) > ext4OldInode {
		start := ext4OldInode + int(binary.LittleEndian.Uint16(raw[0x80:]))
		if start+4 <= len(raw) && binary.LittleEndian.Uint32(raw[start:]) == 0xea020000 {
			if err := n.findInline(raw[start+4:]); err != nil {
				return err
			}
		}
	}
	if have := int64(len(n.root) + len(n.inline)); n.info.size > have {
		return n.errorf("inline data has %d bytes, the size is %d", have, n.info.size)
	}
	return nil
}

// findInline searches the attributes in an inode for inline data.
func (n *ext4Inode) findInline(attributes []byte) error {
	const header, systemIndex = 16, 7
	for at := 0; at+header <= len(attributes) && binary.LittleEndian.Uint32(attributes[at:]) != 0; {
		a := attributes[at:]
		nameEnd := header + int(a[0])
		if nameEnd > len(a) {
			return n.errorf("attribute at byte %d is longer than the inode", at)
		}
		if a[1] != systemIndex || string(a[header:nameEnd]) != "data" {
			at += (nameEnd + 3) &^ 3
			continue
		}
		offset, size := int64(binary.LittleEndian.Uint16(a[2:])), int64(binary.LittleEndian.Uint32(a[8:]))
		if binary.LittleEndian.Uint32(a[4:]) != 0 || offset+size > int64(len(attributes)) {
			return n.errorf("inline data of %d bytes is outside of the inode", size)
		}
		n.inline = attributes[offset : offset+size]
		return nil
	}
	return nil
}

func (n *ext4Inode) stat() fileInfo { return n.info }

func (n *ext4Inode) contents() (contents, error) { return n, n.checkPlain() }

// checkPlain refuses contents that are not stored as they are.
func (n *ext4Inode) checkPlain() error {
	switch {
	case n.flags&ext4Encrypted != 0:
		return n.errorf("encrypted files are not supported")
	case n.flags&ext4Compressed != 0:
		return n.errorf("compressed files are not supported")
	}
	return nil
}

// ReadAt reads contents. The caller asks within the size of the file.
func (n *ext4Inode) ReadAt(p []byte, off int64) (int, error) {
	if n.flags&ext4Inline == 0 {
		return n.v.readExtents(p, off, n.find)
	}
	if first := int64(len(n.root)); off >= first {
		return copy(p, n.inline[off-first:]), nil
	}
	done := copy(p, n.root[off:])
	return done + copy(p[done:], n.inline), nil
}

// find returns the extent from a byte of the file on.
func (n *ext4Inode) find(off int64) (extent, error) {
	if n.flags&ext4Inline != 0 {
		return extent{}, n.errorf("contents are in the inode")
	}
	block, size := off/n.v.blockSize, n.v.blockSize
	r := n.last.Load()
	if r == nil || block < r.first || block >= r.first+r.blocks {
		found, err := n.findRun(block)
		if err != nil {
			return extent{}, err
		}
		r = &fileRun{run: found, first: block}
		n.last.Store(r)
	}
	inside := off - r.first*size
	return extent{at: r.start*size + inside, length: r.blocks*size - inside, zeros: r.hole}, nil
}

// fileRun is a run that begins with a block of the file.
type fileRun struct {
	run
	first int64
}

func (n *ext4Inode) entries() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		if err := n.checkPlain(); err != nil {
			yield(entry{}, err)
			return
		}
		if n.flags&ext4Inline != 0 {
			n.inlineEntries(yield)
			return
		}
		block := make([]byte, n.v.blockSize)
		for at := int64(0); at < n.info.size; at += n.v.blockSize {
			if err := n.readDirectory(block, at); err != nil {
				yield(entry{}, err)
				return
			}
			if !n.blockEntries(block, at, yield) {
				return
			}
		}
	}
}

// readDirectory reads a whole block of a directory. Directories have no holes.
func (n *ext4Inode) readDirectory(block []byte, at int64) error {
	e, err := n.find(at)
	if err != nil {
		return err
	}
	if e.zeros || n.info.size-at < n.v.blockSize {
		return n.errorf("directory has no whole block at byte %d of %d", at, n.info.size)
	}
	return n.v.read(block, e.at, "directory")
}

// inlineEntries yields the entries of a directory in the inode. The number of its parent comes
// first.
func (n *ext4Inode) inlineEntries(yield func(entry, error) bool) {
	rest := n.info.size - int64(len(n.root))
	if rest < 0 {
		yield(entry{}, n.errorf("inline directory of %d bytes is too short", n.info.size))
		return
	}
	if n.blockEntries(n.root[4:], 4, yield) {
		n.blockEntries(n.inline[:rest], int64(len(n.root)), yield)
	}
}

// blockEntries yields the entries of a block and reports whether to continue with the next.
// The inner blocks of an indexed directory have one unused entry, so that indexes do not matter.
func (n *ext4Inode) blockEntries(block []byte, at int64, yield func(entry, error) bool) bool {
	for pos := 0; pos < len(block); {
		length, ok := n.entryLength(block[pos:])
		if !ok {
			yield(entry{}, n.errorf("directory entry at byte %d has the length %d, its block has %d bytes left", at+int64(pos), length, len(block)-pos))
			return false
		}
		number := binary.LittleEndian.Uint32(block[pos:])
		name := string(block[pos+8:][:block[pos+6]])
		position := at + int64(pos)
		pos += length
		// Every directory that is not inline begins with itself and its parent.
		isSpecial := n.flags&ext4Inline == 0 && (position == 0 && name == "." || position == 12 && name == "..")
		if number == 0 || isSpecial {
			continue
		}
		load := func() (node, error) { return n.v.inode(number) }
		if !yield(entry{name: name, position: position, load: load}, nil) {
			return false
		}
	}
	return true
}

// entryLength returns the length of the first entry and whether it fits into the block.
func (n *ext4Inode) entryLength(block []byte) (int, bool) {
	if len(block) < 8 {
		return 0, false
	}
	length := int(binary.LittleEndian.Uint16(block[4:]))
	if n.v.blockSize == 1<<16 && (length == 0 || length == 1<<16-1) {
		length = 1 << 16 // it does not fit into the field
	}
	return length, length >= 8+int(block[6]) && length >= 12 && length%4 == 0 && length <= len(block)
}
