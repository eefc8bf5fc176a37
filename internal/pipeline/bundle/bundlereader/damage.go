package bundlereader

import (
	"bytes"
	"context"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Damage is a range of a bundle that is not as its header implies.
type Damage struct {
	Offset, Length int64
	// Chunk is the number of a damaged chunk, else -1: then Want has the bytes.
	Chunk int
	Want  []byte
	// Err says what is wrong.
	Err error
}

// FindDamage reads the whole bundle once and calls each for every damaged range, in order. It
// goes on after an error of reading: a bad sector is damage too. The error is that of each, or of
// the context.
func FindDamage(ctx context.Context, f *File, progress func(done, total int64), each func(Damage) error) error {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	s := &damageSearch{ctx: ctx, f: f, each: each, progress: progress}
	for i, b := range f.h.Metadata.Blobs {
		if err := s.blob(i, b); err != nil {
			return err
		}
	}
	end := f.h.FileSize() - bundle.EndSize
	return s.compare("end of archive", "", end, make([]byte, bundle.EndSize))
}

type damageSearch struct {
	ctx      context.Context //nolint:containedctx // as long as FindDamage
	f        *File
	each     func(Damage) error
	progress func(done, total int64)
	buf      []byte
}

func (s *damageSearch) blob(i int, b bundle.Blob) error {
	h := s.f.h
	at := h.BlobOffset(i)
	head := bundle.TarHeader(bundle.BlobPath(b.Digest), b.Size)
	if err := s.compare("tar header of blob", b.Digest, at-bundle.BlockSize, head[:]); err != nil {
		return err
	}
	first, count := h.Chunks.OfBlob(i)
	for n := first; n < first+count; n++ {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		offset, size := ChunkRange(h, n)
		data, err := s.f.ReadChunk(n, s.buf)
		if err != nil {
			if err := s.each(Damage{Offset: offset, Length: size, Chunk: n, Err: err}); err != nil {
				return err
			}
		} else {
			s.buf = data[:cap(data)]
		}
		s.progress(offset+size, h.FileSize())
	}
	return s.compare("padding after blob", b.Digest, at+b.Size, make([]byte, bundle.PaddedSize(b.Size)-b.Size))
}

// compare compares bytes that follow from the header.
func (s *damageSearch) compare(part, digest string, at int64, want []byte) error {
	got := make([]byte, len(want))
	n, err := s.f.r.ReadAt(got, at)
	if n == len(want) && bytes.Equal(got, want) {
		return nil
	}
	e := &bundle.CorruptError{Part: part, Digest: digest, Offset: at, Length: int64(len(want)), Found: "is not the one that the metadata implies"}
	if n < len(want) {
		e.Found, e.Err = "cannot be read", err
	}
	return s.each(Damage{Offset: at, Length: int64(len(want)), Chunk: -1, Want: want, Err: located(e, s.f.where)})
}
