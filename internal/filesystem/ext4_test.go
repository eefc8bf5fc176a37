package filesystem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestExt4(t *testing.T) {
	t.Parallel()
	const prealloc = "fallocate /PREALLOC 0 9;"
	for _, c := range []struct {
		name, options, debugfs string
	}{
		{"ext4, 4 KiB", "-t ext4 -b 4096", prealloc},
		{"ext4, 1 KiB, indexed directories", "-t ext4 -b 1024 -O 64bit,metadata_csum", prealloc + "e2fsck"},
		{"without checksums", "-t ext4 -b 1024 -O ^metadata_csum,^64bit,^flex_bg", prealloc},
		{"checksum seed, small inodes", "-t ext4 -b 2048 -I 128 -O metadata_csum_seed", prealloc},
		{"inline data", "-t ext4 -b 4096 -I 512 -O inline_data", ""},
		{"ext4 with block maps", "-t ext4 -b 1024 -O ^extents,^64bit", ""},
		{"ext3", "-t ext3 -b 4096", ""},
		{"ext2", "-t ext2 -b 1024", "e2fsck"},
		{"first revision", "-t ext2 -b 1024 -r 0", ""},
		{"64 KiB", "-t ext4 -b 65536", ""},
		{"clusters", "-t ext4 -b 4096 -O bigalloc", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files, size := unixFiles(), 12<<10
			if strings.Contains(c.options, "-b 65536") || strings.Contains(c.options, "bigalloc") {
				size = 24 << 10
			}
			if strings.Contains(c.options, "inline_data") {
				// mke2fs 1.47 cuts files with holes at the end of such volumes.
				maps.DeleteFunc(files, func(name string, _ []byte) bool { return slices.Contains(sparseFiles, name) })
			}
			v := openImage(t, makeExt4(t, c.options, size, writeTree(t, files), c.debugfs))
			if v.Kind != "ext4" {
				t.Errorf("kind %s", v.Kind)
			}
			checkVolume(t, v, files)
		})
	}
}

var sparseFiles = []string{"SPARSE", "HOLES", "PREALLOC"}

// The images must have what makes reading difficult.
func TestExt4Images(t *testing.T) {
	t.Parallel()
	v := openImage(t, makeExt4(t, "-t ext4 -b 1024", 12<<10, writeTree(t, unixFiles()), "fallocate /PREALLOC 0 9;e2fsck"))
	holes := findNode[*ext4Inode](t, v, "HOLES")
	if _, depth, err := holes.parseExtents(holes.root[:]); depth < 2 || err != nil {
		t.Errorf("extents have depth %d, %v", depth, err)
	}
	if r, err := findNode[*ext4Inode](t, v, "PREALLOC").findExtent(0); !r.hole || r.start == 0 || err != nil {
		t.Errorf("first extent %+v is not unwritten, %v", r, err)
	}
	if n := findNode[*ext4Inode](t, v, "MANY"); n.flags&0x1000 == 0 {
		t.Error("the large directory has no index")
	}
	v = openImage(t, makeExt4(t, "-t ext4 -I 512 -O inline_data", 4<<10, writeTree(t, map[string][]byte{"SMALL.TXT": nil, "lower/x": nil}), ""))
	for _, name := range []string{"SMALL.TXT", "lower"} {
		if n := findNode[*ext4Inode](t, v, name); n.flags&ext4Inline == 0 {
			t.Errorf("%s is not inline", name)
		}
	}
}

func TestExt4SpecialFiles(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, map[string][]byte{"file": []byte("x")})
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	v := openImage(t, makeExt4(t, "-t ext4", 4<<10, dir, "mknod pipe p"))
	checkSpecialFiles(t, v)
	if _, err := v.Open("pipe"); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("pipe: %v", err)
	}
}

// tinyExt4 is an image with a few files and directories. The file "holes" has a block of extents.
func tinyExt4(t testing.TB, options string) []byte {
	holes := make([]byte, 12*8192)
	for at := 0; at < len(holes); at += 8192 {
		holes[at] = 1
	}
	dir := writeTree(t, map[string][]byte{
		"a": []byte("contents of a"), "b": bytes.Repeat([]byte("b"), 5000), "dir/one": []byte("1"), "dir/two/three": []byte("3"), "empty": nil, "holes": holes,
	})
	return makeExt4(t, options+" -b 1024 -N 32 -m 0 -O ^has_journal,^resize_inode", 192, dir, "")
}

// inodeAt returns where the inode of a path is on the medium.
func inodeAt(t testing.TB, v *Volume, name string) int64 {
	t.Helper()
	n := findNode[*ext4Inode](t, v, name)
	table, err := n.v.inodeTable(int64((n.number - 1) / n.v.inodesPerGroup))
	if err != nil {
		t.Fatal(err)
	}
	return table*n.v.blockSize + int64((n.number-1)%n.v.inodesPerGroup)*n.v.inodeSize
}

func TestExt4Corruption(t *testing.T) {
	t.Parallel()
	image := tinyExt4(t, "-t ext4 -O ^metadata_csum,^uninit_bg,64bit")
	v := openImage(t, image)
	root, err := findNode[*ext4Inode](t, v, ".").find(0)
	if err != nil {
		t.Fatal(err)
	}
	rootInode := inodeAt(t, v, ".")
	a, dir, holes := inodeAt(t, v, "a"), inodeAt(t, v, "dir"), inodeAt(t, v, "holes")
	entryA, entryDir := root.at+position(t, v, "a"), root.at+position(t, v, "dir")
	leaf := int64(binary.LittleEndian.Uint32(image[holes+0x28+16:])) * 1024
	put := func(at int64, n uint32) func([]byte) {
		return func(image []byte) { binary.LittleEndian.PutUint32(image[at:], n) }
	}
	set := func(at int64, b ...byte) func([]byte) {
		return func(image []byte) { copy(image[at:], b) }
	}
	const super, groups = 1024, 2048
	checkCorruptions(t, openExt4, image, []corruption{
		{"volume larger than medium", put(super+0x4, 1<<20), "is larger than its medium"},
		{"volume much larger than medium", put(super+0x150, 1<<31), "is larger than its medium"},
		{"block size", put(super+0x18, 40), "block size 2^50"},
		{"first block", put(super+0x14, 1<<31), "geometry of the superblock is impossible"},
		{"no blocks in a group", put(super+0x20, 0), "geometry of the superblock is impossible"},
		{"more groups than inodes", put(super+0x20, 8), "geometry of the superblock is impossible"},
		{"no inodes in a group", put(super+0x28, 0), "geometry of the superblock is impossible"},
		{"inode size", set(super+0x58, 100, 0), "inodes of 100 bytes"},
		{"descriptor size", set(super+0xfe, 48, 0), "group descriptors of 48 bytes"},
		{"journal not replayed", set(super+0x60, image[super+0x60]|ext4NeedsRecovery), "run e2fsck"},
		{"compression", set(super+0x60, image[super+0x60]|1), "feature compression"},
		{"encryption", set(super+0x62, 1), "feature encrypt"},
		{"case folding", set(super+0x62, 2), "feature casefold"},
		{"unknown feature", set(super+0x63, 0x80), "unknown feature 0x80000000"},
		{"inode table outside", put(groups+0x8, 1<<31), "inode table of group 0"},
		{"inode table in front", put(groups+0x8, 0), "inode table of group 0"},
		{"root is a file", set(rootInode+1, 0x81), "root inode 2 is not a directory"},
		{"unknown mode", set(a+1, 0), "not in use"},
		{"deleted file", set(a+0x1a, 0, 0), "not in use"},
		{"encrypted file", set(a+0x21, 8), "encrypted files"},
		{"compressed file", set(a+0x20, 4), "compressed files"},
		{"endless file", put(a+0x6c, 1<<31), "is larger than a file can be"},
		{"endless directory", put(dir+0x4, 1<<31), "directory of 2147483648 bytes"},
		{"directory with a hole", put(dir+0x4, 4096), "directory has no whole block at byte 1024"},
		{"odd directory", put(dir+0x4, 1500), "directory has no whole block at byte 1024"},
		{"no header of extents", set(a+0x28, 0), "of extents is impossible"},
		{"depth of extents", set(a+0x28+6, 9), "of extents is impossible"},
		{"number of extents", set(a+0x28+2, 5), "of extents is impossible"},
		{"room for extents", set(a+0x28+4, 5), "of extents is impossible"},
		{"extent outside", put(a+0x28+12+8, 1<<30), "extent of length 1 at block 1073741824 is outside"},
		{"extent beyond the end", put(a+0x28+12+8, uint32(len(image)/1024)), "is outside of the volume"},
		{"extent over the superblock", put(a+0x28+12+8, 1), "is outside of the volume"},
		{"extent of length 0", set(a+0x28+12+4, 0, 0), "extent of length 0"},
		{"index outside", put(holes+0x28+16, 1<<30), "is outside of the volume"},
		{"index without entries", set(holes+0x28+2, 0), "index has no entries"},
		{"loop of extents", func(image []byte) { copy(image[leaf:], image[holes+0x28:holes+0x28+60]) }, "have the depth 1 instead of 0"},
		{"leaf without header", put(leaf, 0), "of extents is impossible"},
		{"extents out of order", put(leaf+12+12, 0), "overlaps another one"},
		{"inline data", func(image []byte) {
			put(a+0x20, ext4Inline)(image)
			put(a+0x4, 2000)(image)
		}, "the size is 2000"},
		{"attribute too long", func(image []byte) {
			put(a+0x20, ext4Inline)(image)
			put(a+0x80+int64(image[a+0x80]), 0xea020000)(image)
			put(a+0x80+int64(image[a+0x80])+4, 0x7ff)(image)
		}, "longer than the inode"},
		{"inline data outside", func(image []byte) {
			put(a+0x20, ext4Inline)(image)
			at := a + 0x80 + int64(image[a+0x80])
			put(at, 0xea020000)(image)
			copy(image[at+4:], "\x04\x07\xff\xff\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00data")
		}, "outside of the inode"},
		{"short inline directory", func(image []byte) {
			put(dir+0x20, ext4Inline)(image)
			put(dir+0x4, 20)(image)
		}, "inline directory of 20 bytes is too short"},
		{"encrypted directory", set(dir+0x21, 8), "encrypted files"},
		{"index out of order", func(image []byte) {
			set(holes+0x28+2, 2)(image)
			set(holes+0x28+4, 4)(image)
			put(holes+0x28+24, 0)(image)
		}, "extent index from file block 0 on is out of order"},
		{"entry of length 0", set(entryA+4, 0, 0), "has the length 0"},
		{"entry beyond its block", set(entryA+4, 0, 4), "has the length 1024"},
		{"unaligned entry", set(entryA+4, 13, 0), "has the length 13"},
		{"name beyond its entry", set(entryA+6, 250), "has the length 12"},
		{"no name", set(entryA+6, 0), "is not a name"},
		{"name with a separator", set(entryA+8, '/'), "is not a name"},
		{"name of the directory", set(entryA+8, '.'), "is not a name"},
		{"name twice", set(entryA+8, 'b'), "has the name \"b\" twice"},
		{"inode that does not exist", put(entryA, 33), "inode 33 does not exist"},
		{"inode not in use", put(entryA, 31), "inode 31: not in use"},
		{"directory in itself", put(entryDir, ext4RootInode), "more than one place"},
		{"directory twice", put(entryA, binary.LittleEndian.Uint32(image[entryDir:])), "more than one place"},
	})
}

func TestExt4Checksums(t *testing.T) {
	t.Parallel()
	image := tinyExt4(t, "-t ext4 -O metadata_csum")
	v := openImage(t, image)
	holes := inodeAt(t, v, "holes")
	leaf := int64(binary.LittleEndian.Uint32(image[holes+0x28+16:])) * 1024
	flip := func(at int64) func([]byte) { return func(image []byte) { image[at] ^= 1 } }
	checkCorruptions(t, openExt4, image, []corruption{
		{"superblock", flip(1024 + 0x10), "checksum of the superblock"},
		{"kind", flip(1024 + 0x175), "checksum type 0"},
		{"group descriptor", flip(2048 + 0xc), "checksum of group descriptor 0"},
		{"inode", flip(holes + 0x8), fmt.Sprintf("inode %d: checksum is wrong", findNode[*ext4Inode](t, v, "holes").number)},
		{"extents", flip(leaf + 12 + 8), fmt.Sprintf("checksum of the extents in block %d", leaf/1024)},
	})
}

func TestExt4BlockMapCorruption(t *testing.T) {
	t.Parallel()
	image := tinyExt4(t, "-t ext2")
	v := openImage(t, image)
	holes := inodeAt(t, v, "holes")
	indirect := int64(binary.LittleEndian.Uint32(image[holes+0x28+48:])) * 1024
	put := func(at int64, n uint32) func([]byte) {
		return func(image []byte) { binary.LittleEndian.PutUint32(image[at:], n) }
	}
	checkCorruptions(t, openExt4, image, []corruption{
		{"direct block outside", put(holes+0x28, 1<<30), "extent of length 1 at block 1073741824 is outside"},
		{"pointers outside", put(holes+0x28+48, 1<<30), "of pointers is outside"},
		{"indirect block outside", func(image []byte) {
			for at := indirect; at < indirect+1024; at += 4 {
				put(at, 1<<30)(image)
			}
		}, "extent of length 1 at block 1073741824 is outside"},
		{"size beyond the map", put(holes+0x6c, 1<<6), "block map does not reach the end"},
	})
}
