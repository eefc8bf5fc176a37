package bundle

import (
	"fmt"
	"sort"
)

// HashSize is the size of a chunk's digest in the chunk table.
const HashSize = 32

// Chunk is one piece of a blob: the unit that is verified and exchanged.
type Chunk struct {
	// Blob is the index into Metadata.Blobs.
	Blob int
	// Offset of the chunk in its blob, Size of the chunk, in bytes.
	Offset, Size int64
	// Digest is its SHA-256.
	Digest [HashSize]byte
}

// ChunkTable holds the digests of all chunks of a bundle. Chunks are numbered
// from 0 over Metadata.Blobs in order; none spans two blobs, an empty blob has
// none.
type ChunkTable struct {
	chunkSize int64
	sizes     []int64 // of the blobs
	first     []int   // number of a blob's first chunk; one more than blobs
	hashes    []byte
}

// ChunkCount is how many chunks a blob of size bytes has.
func ChunkCount(size, chunkSize int64) int64 {
	return size/chunkSize + min(1, size%chunkSize)
}

// chunkCount is how many chunks all blobs have.
func (m *Metadata) chunkCount() int64 {
	var n int64
	for _, b := range m.Blobs {
		n += ChunkCount(b.Size, m.ChunkSize)
	}
	return n
}

// newChunkTable expects checked metadata, and hashes for all its chunks.
func newChunkTable(m *Metadata, hashes []byte) *ChunkTable {
	t := &ChunkTable{chunkSize: m.ChunkSize, hashes: hashes, sizes: make([]int64, len(m.Blobs)), first: make([]int, len(m.Blobs)+1)}
	for i, b := range m.Blobs {
		t.sizes[i] = b.Size
		t.first[i+1] = t.first[i] + int(ChunkCount(b.Size, m.ChunkSize))
	}
	return t
}

// Len is the number of chunks.
func (t *ChunkTable) Len() int { return len(t.hashes) / HashSize }

// OfBlob is the number of a blob's first chunk and how many it has.
func (t *ChunkTable) OfBlob(blob int) (first, count int) {
	return t.first[blob], t.first[blob+1] - t.first[blob]
}

// Chunk is chunk n, 0 <= n < Len(); another n panics like a slice.
func (t *ChunkTable) Chunk(n int) Chunk {
	if n < 0 || n >= t.Len() {
		panic(fmt.Sprintf("bundle: chunk %d of %d", n, t.Len()))
	}
	// the last blob whose first chunk is not after n; empty blobs share their
	// first number with the next blob and are passed over
	blob := sort.Search(len(t.sizes), func(i int) bool { return t.first[i+1] > n })
	off := int64(n-t.first[blob]) * t.chunkSize
	c := Chunk{Blob: blob, Offset: off, Size: min(t.chunkSize, t.sizes[blob]-off)}
	copy(c.Digest[:], t.hashes[n*HashSize:])
	return c
}
