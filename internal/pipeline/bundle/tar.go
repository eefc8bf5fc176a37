package bundle

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// BlockSize is the block of a tar: headers take one, contents are padded to a
// multiple of it.
const BlockSize = 512

// EndSize is the size of the two zero blocks that end the archive.
const EndSize = 2 * BlockSize

const (
	maxOctal   = 1<<33 - 1 // largest size in eleven octal digits
	maxTarSize = 1 << 62   // larger sizes are hostile; keeps sums from overflowing
)

// PaddedSize is n rounded up to whole blocks.
func PaddedSize(n int64) int64 { return (n + BlockSize - 1) &^ (BlockSize - 1) }

// TarHeader is the one tar header that a bundle has for an entry: a plain
// file, mode 0644, owner 0, time 0. Sizes from 8 GiB are written base-256.
func TarHeader(name string, size int64) [BlockSize]byte {
	var h [BlockSize]byte
	copy(h[0:100], name)
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	if size <= maxOctal {
		copy(h[124:], fmt.Sprintf("%011o\x00", size))
	} else {
		h[124] = 0x80
		binary.BigEndian.PutUint64(h[128:], uint64(size))
	}
	copy(h[136:], "00000000000\x00")
	copy(h[148:], "        ")
	h[156] = '0'
	copy(h[257:], "ustar\x0000")
	copy(h[329:], "0000000\x00")
	copy(h[337:], "0000000\x00")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// BlobPath is the name of a blob's tar entry.
func BlobPath(digest string) string {
	return "blobs/sha256/" + digest[len(digestPrefix):]
}

// tarEntry reads name and size of a tar header and accepts only the header
// that TarHeader makes of them. at is its offset in the file.
func tarEntry(block []byte, at int64) (name string, size int64, err error) {
	name = string(bytes.TrimRight(block[0:100], "\x00"))
	size, ok := tarSize(block[124:136])
	if !ok {
		return "", 0, &CorruptError{Part: "tar header", Offset: at + 124, Length: 12, Found: "the size is not a number"}
	}
	want := TarHeader(name, size)
	if i := firstDifference(block[:BlockSize], want[:]); i >= 0 {
		return "", 0, &CorruptError{Part: fmt.Sprintf("tar header of %q", name), Offset: at + int64(i), Found: "differs from the only header allowed for this entry"}
	}
	return name, size, nil
}

func tarSize(f []byte) (int64, bool) {
	if f[0] == 0x80 {
		n := binary.BigEndian.Uint64(f[4:])
		return int64(n), n < maxTarSize
	}
	var n int64
	for _, c := range f[:11] {
		if c < '0' || c > '7' {
			return 0, false
		}
		n = n<<3 | int64(c-'0')
	}
	return n, true
}

// firstDifference is the first index at which a and b differ, or -1; a shorter
// slice differs where it ends.
func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// firstNonZero is the index of the first byte that is not zero, or -1.
func firstNonZero(b []byte) int {
	for i, c := range b {
		if c != 0 {
			return i
		}
	}
	return -1
}
