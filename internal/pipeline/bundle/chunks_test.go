package bundle

import (
	"testing"

	"pgregory.net/rapid"
)

// Chunks cover each blob without gap or overlap and never span two blobs.
func TestChunksCoverEveryBlob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &Metadata{ChunkSize: rapid.Int64Range(1, 50).Draw(t, "chunk size")}
		var total int64
		for range rapid.IntRange(0, 8).Draw(t, "blobs") {
			size := rapid.Int64Range(0, 200).Draw(t, "size")
			m.Blobs = append(m.Blobs, Blob{Size: size})
			total += ChunkCount(size, m.ChunkSize)
		}
		table := newChunkTable(m, make([]byte, total*HashSize))
		if table.Len() != int(total) {
			t.Fatalf("Len = %d, want %d", table.Len(), total)
		}
		next := 0
		for i, b := range m.Blobs {
			first, n := table.OfBlob(i)
			if first != next {
				t.Fatalf("blob %d begins with chunk %d, want %d", i, first, next)
			}
			var at int64
			for c := first; c < first+n; c++ {
				got := table.Chunk(c)
				if got.Blob != i || got.Offset != at || got.Size < 1 || got.Size > m.ChunkSize {
					t.Fatalf("chunk %d = %+v, want blob %d at %d", c, got, i, at)
				}
				at += got.Size
			}
			if at != b.Size {
				t.Fatalf("the chunks of blob %d have %d bytes of %d", i, at, b.Size)
			}
			next += n
		}
	})
}
