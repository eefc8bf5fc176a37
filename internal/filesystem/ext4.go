package filesystem

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/bits"
	"strings"
)

// Features that change what a reader must do.
const (
	ext4NeedsRecovery = 0x4
	ext4Is64Bit       = 0x80
	ext4HasSeed       = 0x2000
	// ext4Readable are the incompatible features that the reader knows: filetype, extent, 64bit,
	// mmp, flex_bg, ea_inode, metadata_csum_seed, large_dir and inline_data.
	ext4Readable = 0x2 | 0x40 | ext4Is64Bit | 0x100 | 0x200 | 0x400 | ext4HasSeed | 0x4000 | 0x8000
	// ext4HasChecksums is the read-only compatible feature metadata_csum.
	ext4HasChecksums = 0x400
)

// ext4Unreadable names the incompatible features that are refused.
var ext4Unreadable = map[uint32]string{
	0x1: "compression", 0x8: "journal_dev", 0x10: "meta_bg", 0x1000: "dirdata", 0x10000: "encrypt", 0x20000: "casefold",
}

const (
	ext4SuperBlockAt = 1024
	ext4RootInode    = 2
	// ext4OldInode is the size of an inode before it had extra fields.
	ext4OldInode = 128
)

// ext4Volume reads ext2, ext3 and ext4 as the Linux kernel documents them
// (https://docs.kernel.org/filesystems/ext4/). A file with holes may be larger than the volume.
type ext4Volume struct {
	medium
	// blockSize is in bytes; blocks is their number in the volume, those before firstBlock are
	// not used.
	blockSize  int64
	blocks     int64
	firstBlock int64
	// groups are the block groups. Each has a descriptor and a part of the inode table.
	groups         int64
	descriptorSize int64
	inodes         uint32
	inodesPerGroup uint32
	inodeSize      int64
	checksums      bool
	seed           uint32
}

// openExt4 opens an ext2, ext3 or ext4 volume.
func openExt4(r io.ReaderAt, size int64) (*Volume, error) {
	m := medium{r: r, size: size, kind: "ext4"}
	super := make([]byte, 1024)
	if !m.contains(ext4SuperBlockAt, int64(len(super))) {
		return nil, errOther
	}
	if err := m.read(super, ext4SuperBlockAt, "superblock"); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint16(super[0x38:]) != 0xef53 {
		return nil, errOther
	}
	v := &ext4Volume{medium: m}
	for _, step := range []func([]byte) error{v.checkFeatures, v.readBlocks, v.readInodes} {
		if err := step(super); err != nil {
			return nil, err
		}
	}
	root, err := v.inode(ext4RootInode)
	if err != nil {
		return nil, err
	}
	if !root.info.IsDir() {
		return nil, v.errorf("root inode %d is not a directory", ext4RootInode)
	}
	label, _, _ := strings.Cut(string(super[0x78:0x88]), "\x00")
	return &Volume{Kind: m.kind, Label: strings.ToValidUTF8(label, "\uFFFD"), FS: newTree(v.medium, root, caseSensitive)}, nil
}

// crc32c is the checksum of the Linux kernel, which unlike Go's is not inverted at the end.
func crc32c(crc uint32, parts ...[]byte) uint32 {
	for _, p := range parts {
		crc = ^crc32.Update(^crc, castagnoli, p)
	}
	return crc
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkFeatures verifies the superblock and refuses what the reader does not know.
func (v *ext4Volume) checkFeatures(super []byte) error {
	v.descriptorSize = 32
	if binary.LittleEndian.Uint32(super[0x4c:]) == 0 {
		return nil // the first revision had no features
	}
	incompatible := binary.LittleEndian.Uint32(super[0x60:])
	v.checksums = binary.LittleEndian.Uint32(super[0x64:])&ext4HasChecksums != 0
	if v.checksums {
		if kind := super[0x175]; kind != 1 {
			return v.errorf("checksum type %d of the superblock is not supported", kind)
		}
		if sum := crc32c(^uint32(0), super[:0x3fc]); sum != binary.LittleEndian.Uint32(super[0x3fc:]) {
			return v.errorf("checksum of the superblock at byte %d is wrong", ext4SuperBlockAt)
		}
		v.seed = crc32c(^uint32(0), super[0x68:0x78])
		if incompatible&ext4HasSeed != 0 {
			v.seed = binary.LittleEndian.Uint32(super[0x270:])
		}
	}
	if incompatible&ext4Is64Bit != 0 {
		v.descriptorSize = int64(binary.LittleEndian.Uint16(super[0xfe:]))
	}
	return v.checkIncompatible(incompatible)
}

func (v *ext4Volume) checkIncompatible(features uint32) error {
	if features&ext4NeedsRecovery != 0 {
		return v.errorf("the journal has changes that are not in the file system yet: run e2fsck or mount and unmount it once")
	}
	unknown := features &^ ext4Readable
	if unknown == 0 {
		return nil
	}
	bit := uint32(1) << bits.TrailingZeros32(unknown)
	if name, ok := ext4Unreadable[bit]; ok {
		return v.errorf("feature %s is not supported", name)
	}
	return v.errorf("unknown feature %#x", bit)
}

// readBlocks reads the geometry of blocks and block groups.
func (v *ext4Volume) readBlocks(super []byte) error {
	shift := binary.LittleEndian.Uint32(super[0x18:])
	if shift > 6 {
		return v.errorf("block size 2^%d at byte %d is not supported", 10+uint64(shift), ext4SuperBlockAt+0x18)
	}
	v.blockSize = 1024 << shift
	blocks := uint64(binary.LittleEndian.Uint32(super[0x4:]))
	if v.descriptorSize > 32 {
		blocks |= uint64(binary.LittleEndian.Uint32(super[0x150:])) << 32
	}
	if blocks > uint64(v.size/v.blockSize) {
		return v.errorf("volume of %d blocks of %d bytes is larger than its medium of %d bytes", blocks, v.blockSize, v.size)
	}
	v.blocks, v.size = int64(blocks), int64(blocks)*v.blockSize
	v.firstBlock = int64(binary.LittleEndian.Uint32(super[0x14:]))
	perGroup := int64(binary.LittleEndian.Uint32(super[0x20:]))
	if v.firstBlock > 1 || v.firstBlock >= v.blocks || perGroup == 0 {
		return v.errorf("geometry of the superblock is impossible: %d blocks, the first is %d, %d in a group", v.blocks, v.firstBlock, perGroup)
	}
	v.groups = (v.blocks - v.firstBlock + perGroup - 1) / perGroup
	if s := v.descriptorSize; s < 32 || s > 1024 || s&(s-1) != 0 {
		return v.errorf("group descriptors of %d bytes are not supported", s)
	}
	return nil
}

// readInodes reads the geometry of the inode tables.
func (v *ext4Volume) readInodes(super []byte) error {
	v.inodes = binary.LittleEndian.Uint32(super[0x0:])
	v.inodesPerGroup = binary.LittleEndian.Uint32(super[0x28:])
	if v.inodesPerGroup == 0 || int64(v.inodesPerGroup) > 8*v.blockSize || int64(v.inodes) != v.groups*int64(v.inodesPerGroup) {
		return v.errorf("geometry of the superblock is impossible: %d inodes, %d block groups of %d inodes", v.inodes, v.groups, v.inodesPerGroup)
	}
	v.inodeSize = ext4OldInode
	if binary.LittleEndian.Uint32(super[0x4c:]) > 0 {
		v.inodeSize = int64(binary.LittleEndian.Uint16(super[0x58:]))
	}
	if s := v.inodeSize; s < ext4OldInode || s > v.blockSize || s&(s-1) != 0 {
		return v.errorf("inodes of %d bytes are not supported", s)
	}
	return nil
}

// containsBlocks reports whether n blocks from a block on can have contents of the volume.
func (v *ext4Volume) containsBlocks(block, n int64) bool {
	return block > v.firstBlock && n >= 0 && block <= v.blocks && n <= v.blocks-block
}

// inodeTable returns the first block of a group's part of the inode table.
func (v *ext4Volume) inodeTable(group int64) (int64, error) {
	d := make([]byte, v.descriptorSize)
	// The descriptors are in the first block behind the superblock.
	at := max(2*ext4SuperBlockAt, v.blockSize) + group*v.descriptorSize
	if err := v.read(d, at, "group descriptor"); err != nil {
		return 0, err
	}
	if v.checksums {
		stored := binary.LittleEndian.Uint16(d[0x1e:])
		clear(d[0x1e:0x20])
		if uint16(crc32c(v.seed, littleEndian(uint32(group)), d)) != stored {
			return 0, v.errorf("checksum of group descriptor %d at byte %d is wrong", group, at)
		}
	}
	table := int64(binary.LittleEndian.Uint32(d[0x8:]))
	if v.descriptorSize > 32 {
		table |= int64(binary.LittleEndian.Uint32(d[0x28:])&0xffff) << 32
	}
	length := (int64(v.inodesPerGroup)*v.inodeSize + v.blockSize - 1) / v.blockSize
	if !v.containsBlocks(table, length) {
		return 0, v.errorf("inode table of group %d (length %d at block %d) is outside of the volume (%d blocks)", group, length, table, v.blocks)
	}
	return table, nil
}

func littleEndian(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// inode reads and checks an inode.
func (v *ext4Volume) inode(number uint32) (*ext4Inode, error) {
	if number == 0 || number > v.inodes {
		return nil, v.errorf("inode %d does not exist, there are %d", number, v.inodes)
	}
	table, err := v.inodeTable(int64((number - 1) / v.inodesPerGroup))
	if err != nil {
		return nil, err
	}
	raw := make([]byte, v.inodeSize)
	at := table*v.blockSize + int64((number-1)%v.inodesPerGroup)*v.inodeSize
	if err := v.read(raw, at, "inode"); err != nil {
		return nil, err
	}
	n := &ext4Inode{v: v, number: number}
	return n, n.parse(raw)
}
