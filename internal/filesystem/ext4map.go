package filesystem

import "encoding/binary"

// run is a part of a file, in blocks, whose contents follow each other on the medium, or a hole.
type run struct {
	start, blocks int64
	hole          bool
}

const (
	// ext4MaxBlocks is the number of blocks a file can have.
	ext4MaxBlocks = int64(1) << 32
	// ext4MaxDepth is how deep a tree of extents may be.
	ext4MaxDepth = 5
	// ext4MaxExtent is the largest length of an extent; longer ones are not written yet.
	ext4MaxExtent = 32768
)

// findRun returns the run from a block of the file on. The map of blocks is read anew each
// time: it takes one read for each level, and no memory.
func (n *ext4Inode) findRun(block int64) (run, error) {
	if n.flags&ext4Extents != 0 {
		return n.findExtent(block)
	}
	return n.findPointer(block)
}

// findExtent descends the tree of extents. Its depth shrinks with each level, so it has no loops.
func (n *ext4Inode) findExtent(block int64) (run, error) {
	// limit is the first block of the file that the subtree does not have.
	limit := ext4MaxBlocks
	level, depth, err := n.parseExtents(n.root[:])
	if err != nil {
		return run{}, err
	}
	for depth > 0 {
		var child int64
		if child, limit, err = n.findChild(level, block, limit); err != nil {
			return run{}, err
		}
		above := depth
		if level, depth, err = n.readExtents(child); err != nil {
			return run{}, err
		}
		if depth != above-1 {
			return run{}, n.errorf("extents in block %d have the depth %d instead of %d", child, depth, above-1)
		}
	}
	return n.findLeaf(level, block, limit)
}

// parseExtents checks the header of one level and returns its entries of 12 bytes.
func (n *ext4Inode) parseExtents(level []byte) (entries []byte, depth int, err error) {
	count, room := int(binary.LittleEndian.Uint16(level[2:])), int(binary.LittleEndian.Uint16(level[4:]))
	depth = int(binary.LittleEndian.Uint16(level[6:]))
	if binary.LittleEndian.Uint16(level) != 0xf30a || room > len(level)/12-1 || count > room || depth > ext4MaxDepth {
		return nil, 0, n.errorf("header % x of extents is impossible", level[:8])
	}
	return level[12:][:12*count], depth, nil
}

// readExtents reads one level of the tree from its block.
func (n *ext4Inode) readExtents(block int64) (entries []byte, depth int, err error) {
	if !n.v.containsBlocks(block, 1) {
		return nil, 0, n.errorf("block %d of extents is outside of the volume (%d blocks)", block, n.v.blocks)
	}
	level := make([]byte, n.v.blockSize)
	if err := n.v.read(level, block*n.v.blockSize, "extents"); err != nil {
		return nil, 0, err
	}
	if entries, depth, err = n.parseExtents(level); err != nil {
		return nil, 0, err
	}
	if !n.v.checksums {
		return entries, depth, nil
	}
	end := 12 + 12*int(binary.LittleEndian.Uint16(level[4:]))
	if end+4 > len(level) || crc32c(n.seed, level[:end]) != binary.LittleEndian.Uint32(level[end:]) {
		return nil, 0, n.errorf("checksum of the extents in block %d is wrong", block)
	}
	return entries, depth, nil
}

// findChild returns the subtree that has a block of the file, and the limit of that subtree.
func (n *ext4Inode) findChild(index []byte, block, limit int64) (child, childLimit int64, err error) {
	if len(index) == 0 {
		return 0, 0, n.errorf("extent index has no entries")
	}
	before := int64(-1)
	for ; len(index) > 0; index = index[12:] {
		first := int64(binary.LittleEndian.Uint32(index))
		if first <= before || first >= limit {
			return 0, 0, n.errorf("extent index from file block %d on is out of order", first)
		}
		if first > block && before >= 0 {
			return child, first, nil
		}
		child = int64(binary.LittleEndian.Uint32(index[4:])) | int64(binary.LittleEndian.Uint16(index[8:]))<<32
		before = first
	}
	return child, limit, nil
}

// findLeaf returns the run of a block of the file from the lowest level of the tree.
func (n *ext4Inode) findLeaf(extents []byte, block, limit int64) (run, error) {
	end := int64(0)
	for ; len(extents) > 0; extents = extents[12:] {
		first, length := int64(binary.LittleEndian.Uint32(extents)), int64(binary.LittleEndian.Uint16(extents[4:]))
		unwritten := length > ext4MaxExtent
		if unwritten {
			length -= ext4MaxExtent
		}
		if length == 0 || first < end || first+length > limit {
			return run{}, n.errorf("extent of length %d at file block %d overlaps another one", length, first)
		}
		end = first + length
		if block < first {
			return run{hole: true, blocks: first - block}, nil
		}
		if block >= end {
			continue
		}
		start := int64(binary.LittleEndian.Uint32(extents[8:])) | int64(binary.LittleEndian.Uint16(extents[6:]))<<32
		if !n.v.containsBlocks(start, length) {
			return run{}, n.errorf("extent of length %d at block %d is outside of the volume (%d blocks)", length, start, n.v.blocks)
		}
		return run{start: start + block - first, blocks: end - block, hole: unwritten}, nil
	}
	return run{hole: true, blocks: limit - block}, nil
}

// findPointer follows the block map of ext2 and ext3: twelve pointers to blocks, then one each
// to blocks with pointers of one, two and three levels.
func (n *ext4Inode) findPointer(block int64) (run, error) {
	const direct = 12
	if block < direct {
		return n.pointerRun(n.root[:4*direct], block)
	}
	block -= direct
	perBlock := n.v.blockSize / 4
	span := perBlock
	for level := range 3 {
		if block < span {
			pointer := int64(binary.LittleEndian.Uint32(n.root[4*(direct+level):]))
			return n.descend(pointer, block, span/perBlock)
		}
		block -= span
		span *= perBlock
	}
	return run{}, n.errorf("block map does not reach the end of the file")
}

// descend follows pointers until their blocks have contents. span is how many blocks of the file
// each entry in the block at pointer stands for.
func (n *ext4Inode) descend(pointer, block, span int64) (run, error) {
	pointers := make([]byte, n.v.blockSize)
	for {
		if pointer == 0 {
			return run{hole: true, blocks: span*n.v.blockSize/4 - block}, nil
		}
		if !n.v.containsBlocks(pointer, 1) {
			return run{}, n.errorf("block %d of pointers is outside of the volume (%d blocks)", pointer, n.v.blocks)
		}
		if err := n.v.read(pointers, pointer*n.v.blockSize, "block map"); err != nil {
			return run{}, err
		}
		if span == 1 {
			return n.pointerRun(pointers, block)
		}
		pointer = int64(binary.LittleEndian.Uint32(pointers[4*(block/span):]))
		block %= span
		span /= n.v.blockSize / 4
	}
}

// pointerRun returns the blocks that follow each other from one pointer on.
func (n *ext4Inode) pointerRun(pointers []byte, block int64) (run, error) {
	pointers = pointers[4*block:]
	start := int64(binary.LittleEndian.Uint32(pointers))
	r := run{start: start, blocks: 1, hole: start == 0}
	for pointers = pointers[4:]; len(pointers) > 0; pointers = pointers[4:] {
		next := int64(binary.LittleEndian.Uint32(pointers))
		if r.hole && next != 0 || !r.hole && next != start+r.blocks {
			break
		}
		r.blocks++
	}
	if !r.hole && !n.v.containsBlocks(start, r.blocks) {
		return run{}, n.errorf("extent of length %d at block %d is outside of the volume (%d blocks)", r.blocks, start, n.v.blocks)
	}
	return r, nil
}
