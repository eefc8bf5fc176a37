package bundlereader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"runtime"
	"sync"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// maxVerifiers bounds the goroutines that hash, and so the memory.
const maxVerifiers = 4

// Verify reads the whole bundle once, in order, and compares every byte with what the bundle's
// digest covers. The header is still the one that was opened, chunks are those of the chunk table,
// tar headers, paddings and the end are as they must be. It finds every change since the bundle was
// made, at the price of one hash. Bytes after the end are an error in a regular file and none of the
// bundle's business on a device. progress (may be nil) gets bytes, in
// ascending order, from one goroutine at a time. The error is that of the
// lowest offset, a *bundle.CorruptError, or the context's.
func Verify(ctx context.Context, f *File, progress func(done, total int64)) error {
	return located(verify(&verifier{ctx: ctx, f: f, progress: progress}), f.where)
}

// VerifyBlobs is Verify, and hashes each blob as a whole too, which takes about twice the processor
// time. It also finds a chunk table that its maker did not compute from these blobs. Nodes find that
// when they load the image, before anything moves.
func VerifyBlobs(ctx context.Context, f *File, progress func(done, total int64)) error {
	return located(verify(&verifier{ctx: ctx, f: f, progress: progress, whole: sha256.New()}), f.where)
}

func verify(v *verifier) error {
	if err := v.f.CheckSize(); err != nil {
		return err
	}
	if err := v.f.sameHeader(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range min(maxVerifiers, runtime.GOMAXPROCS(0)) {
		wg.Go(v.work)
	}
	wg.Wait()
	if v.err != nil {
		return v.err
	}
	return v.end()
}

// verifier hands out the segments of the file in order: under its lock one
// worker at a time reads the next segment, then hashes it outside the lock.
type verifier struct {
	ctx      context.Context
	f        *File
	progress func(done, total int64)

	mu    sync.Mutex
	blob  int // next segment: chunk number chunk of this blob
	chunk int
	err   error
	errAt int64

	// order is locked before mu is unlocked, so that segments come to whole in the order
	// of the file while the next one is read.
	order sync.Mutex
	whole hash.Hash // of the blob so far; nil: only chunks are hashed
}

// segment is a chunk with what surrounds it: the tar header before a blob's
// first one, the padding after its last one. An empty blob is a segment
// without a chunk.
type segment struct {
	blob   int
	at     int64
	lead   int64             // bytes of tar header
	chunk  int               // number, -1 if there is none
	size   int64             // of the chunk
	length int64             // of everything
	many   bool              // the blob has more than one chunk, and is hashed as a whole too
	last   bool              // and this is the last one
	sum    [sha256.Size]byte // then of the whole blob
}

func (v *verifier) work() {
	var buf []byte
	for {
		s, data, ok := v.read(buf)
		if !ok {
			return
		}
		buf = data
		v.addToWhole(&s, data)
		if err := v.check(s, data); err != nil {
			v.fail(s.at, err)
			return
		}
	}
}

// addToWhole hashes a blob of many chunks as a whole, if that is wanted, and gives order back.
func (v *verifier) addToWhole(s *segment, data []byte) {
	defer v.order.Unlock()
	if !s.many {
		return // its only chunk has its digest: the header was checked for that
	}
	if s.lead > 0 {
		v.whole.Reset()
	}
	v.whole.Write(data[s.lead : s.lead+s.size])
	if s.last {
		v.whole.Sum(s.sum[:0])
	}
}

// read takes the next segment and reads it. If there is one, order is taken.
func (v *verifier) read(buf []byte) (segment, []byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil && v.ctx.Err() != nil {
		v.err = v.ctx.Err()
	}
	if v.err != nil || v.blob == len(v.f.h.Metadata.Blobs) {
		return segment{}, nil, false
	}
	s := v.next()
	if int64(cap(buf)) < s.length {
		buf = make([]byte, s.length)
	}
	buf = buf[:s.length]
	if got, err := v.f.r.ReadAt(buf, s.at); got < len(buf) {
		v.err, v.errAt = v.f.unreadable(s.blob, s.at+int64(got), err), s.at
		return s, nil, false
	}
	if v.progress != nil {
		v.progress(s.at+s.length, v.f.h.FileSize())
	}
	v.order.Lock()
	return s, buf, true
}

// next describes the next segment and steps over it.
func (v *verifier) next() segment {
	h := v.f.h
	first, n := h.Chunks.OfBlob(v.blob)
	s := segment{blob: v.blob, chunk: -1, at: h.BlobOffset(v.blob)}
	if n > 0 {
		s.chunk = first + v.chunk
		c := h.Chunks.Chunk(s.chunk)
		s.at, s.size = s.at+c.Offset, c.Size
	}
	s.length = s.size
	if v.chunk == 0 {
		s.lead = bundle.BlockSize
		s.at -= s.lead
		s.length += s.lead
	}
	v.chunk++
	s.many, s.last = n > 1 && v.whole != nil, v.chunk >= n
	if s.last {
		blobSize := h.Metadata.Blobs[v.blob].Size
		s.length += bundle.PaddedSize(blobSize) - blobSize
		v.blob, v.chunk = v.blob+1, 0
	}
	return s
}

func (v *verifier) check(s segment, data []byte) error {
	h := v.f.h
	blob := h.Metadata.Blobs[s.blob]
	if s.lead > 0 {
		want := bundle.TarHeader(bundle.BlobPath(blob.Digest), blob.Size)
		if i := differs(data[:s.lead], want[:]); i >= 0 {
			return v.damaged(s, "tar header of blob", s.at+int64(i), "is not the one that the metadata implies")
		}
	}
	if s.chunk >= 0 {
		if err := v.checkChunk(s, data); err != nil {
			return err
		}
	}
	if s.many && s.last && bundle.FormatDigest(s.sum) != blob.Digest {
		return v.damaged(s, "chunk table", h.BlobOffset(s.blob), "is not that of blob "+blob.Digest+": each chunk is as the table says, the whole blob has digest "+bundle.FormatDigest(s.sum))
	}
	for i, c := range data[s.lead+s.size:] {
		if c != 0 {
			return v.damaged(s, "padding after blob", s.at+s.lead+s.size+int64(i), "is not zero")
		}
	}
	return nil
}

func (v *verifier) checkChunk(s segment, data []byte) error {
	c := v.f.h.Chunks.Chunk(s.chunk)
	if sum := sha256.Sum256(data[s.lead : s.lead+s.size]); sum != c.Digest {
		return v.f.mismatch(c, sum)
	}
	return nil
}

// differs is the first index at which a and b, equally long, differ, or -1.
func differs(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func (v *verifier) damaged(s segment, part string, at int64, found string) error {
	if err := v.f.sameHeader(); err != nil {
		return err
	}
	return &bundle.CorruptError{Part: part, Digest: v.f.h.Metadata.Blobs[s.blob].Digest, Image: v.f.h.UserOf(s.blob), Offset: at, Found: found}
}

// fail keeps the error of the lowest offset: segments before it were all
// handed out already and their workers finish.
func (v *verifier) fail(at int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err == nil || at < v.errAt {
		v.err, v.errAt = err, at
	}
}

// end checks the two zero blocks.
func (v *verifier) end() error {
	var buf [bundle.EndSize]byte
	at := v.f.h.FileSize() - bundle.EndSize
	if got, err := v.f.r.ReadAt(buf[:], at); got < len(buf) {
		return &bundle.CorruptError{Part: "end of archive", Offset: at + int64(got), Found: "the file or device ends here", Err: err}
	}
	for i, c := range buf {
		if c != 0 {
			return &bundle.CorruptError{Part: "end of archive", Offset: at + int64(i), Found: "is not zero"}
		}
	}
	if v.progress != nil {
		v.progress(v.f.h.FileSize(), v.f.h.FileSize())
	}
	return nil
}
