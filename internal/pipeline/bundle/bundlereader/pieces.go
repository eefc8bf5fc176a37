package bundlereader

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// ErrMissingPart says that bytes of a bundle are in a part that is not at hand.
var ErrMissingPart = errors.New("the part with these bytes is missing")

// Piece is a range of a bundle that is at hand.
type Piece struct {
	Offset, Length int64
	// From has the range, from byte At on.
	From io.ReaderAt
	At   int64
	// Name of the piece, for messages.
	Name string
}

// Joined reads a bundle of size bytes in pieces. Some of its ranges may be missing.
type Joined struct {
	size   int64
	pieces []Piece
}

// Join returns the bundle in pieces. Of pieces with the same bytes the first one counts.
func Join(size int64, pieces []Piece) *Joined {
	j := &Joined{size: size}
	pieces = slices.Clone(pieces)
	sort.SliceStable(pieces, func(i, j int) bool { return pieces[i].Offset < pieces[j].Offset })
	var end int64
	for _, p := range pieces {
		over := max(0, end-p.Offset)
		if p.Length <= over {
			continue
		}
		p.Offset, p.At, p.Length = p.Offset+over, p.At+over, p.Length-over
		j.pieces = append(j.pieces, p)
		end = p.Offset + p.Length
	}
	return j
}

// index returns the first piece that ends behind an offset.
func (j *Joined) index(offset int64) int {
	return sort.Search(len(j.pieces), func(i int) bool { return j.pieces[i].Offset+j.pieces[i].Length > offset })
}

// Covers reports whether a range of the bundle is at hand.
func (j *Joined) Covers(offset, length int64) bool {
	end := offset + length
	for i := j.index(offset); offset < end; i++ {
		if i == len(j.pieces) || j.pieces[i].Offset > offset {
			return false
		}
		offset = j.pieces[i].Offset + j.pieces[i].Length
	}
	return true
}

// where names the pieces with a range, of which one is damaged.
func (j *Joined) where(offset, length int64) string {
	if len(j.pieces) == 0 {
		return ""
	}
	first := min(j.index(offset), len(j.pieces)-1)
	last := min(j.index(offset+max(length, 1)-1), len(j.pieces)-1)
	switch last - first {
	case 0:
		return j.pieces[first].Name
	case 1:
		return fmt.Sprintf("%s or %s", j.pieces[first].Name, j.pieces[last].Name)
	}
	return fmt.Sprintf("one of the parts from %s to %s", j.pieces[first].Name, j.pieces[last].Name)
}

// ReadAt implements io.ReaderAt. The error for bytes that are not at hand is ErrMissingPart.
func (j *Joined) ReadAt(b []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, errors.New("negative offset")
	}
	for n < len(b) {
		if offset >= j.size {
			return n, io.EOF
		}
		i := j.index(offset)
		if i == len(j.pieces) || j.pieces[i].Offset > offset {
			return n, ErrMissingPart
		}
		p := j.pieces[i]
		inside := offset - p.Offset
		want := int(min(int64(len(b)-n), p.Length-inside))
		got, err := p.From.ReadAt(b[n:n+want], p.At+inside)
		n, offset = n+got, offset+int64(got)
		if got == want {
			continue
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return n, fmt.Errorf("%s: %w", p.Name, err)
	}
	return n, nil
}

// Open returns the bundle with a header that is known already, from the pieces or from elsewhere.
func (j *Joined) Open(h *bundle.Header) *File {
	return &File{r: j, size: j.size, h: h, where: j.where, joined: j}
}

// Covers reports whether chunk n is at hand: not all of them are if parts of the bundle are missing.
func (f *File) Covers(n int) bool {
	if n < 0 || n >= f.h.Chunks.Len() {
		return false
	}
	if f.joined == nil {
		return true
	}
	at, size := ChunkRange(f.h, n)
	return f.joined.Covers(at, size)
}

// ChunkRange returns where chunk n is in the file of a bundle.
func ChunkRange(h *bundle.Header, n int) (offset, length int64) {
	c := h.Chunks.Chunk(n)
	return h.BlobOffset(c.Blob) + c.Offset, c.Size
}

// ChunkAt returns the first chunk that ends behind an offset of the file; there may be none.
func ChunkAt(h *bundle.Header, offset int64) int {
	return sort.Search(h.Chunks.Len(), func(n int) bool {
		at, size := ChunkRange(h, n)
		return at+size > offset
	})
}
