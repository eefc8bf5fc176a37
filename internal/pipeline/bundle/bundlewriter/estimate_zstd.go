package bundlewriter

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxFrame is the largest size of a frame that is believed, in bytes: a bundle holds no more.
const maxFrame = 1 << 50

// zstdSize adds up the sizes in the headers of zstd frames (RFC 8878). It walks from block
// to block without decompressing them.
type zstdSize struct {
	total  int64
	failed bool // a frame says no size, or this is no zstd

	need []byte // the beginning of a header that the last write cut
	skip int64  // bytes until the next header
	in   bool   // within a frame: a block header follows
	sums bool   // four bytes of a checksum follow the last block
}

func (z *zstdSize) write(p []byte) {
	for len(p) > 0 && !z.failed {
		if z.skip > 0 {
			n := min(z.skip, int64(len(p)))
			z.skip -= n
			p = p[n:]
			continue
		}
		if len(z.need) > 0 {
			p = p[z.complete(p):]
			continue
		}
		used, ok := z.step(p)
		if !ok {
			z.need = append([]byte(nil), p...)
			return
		}
		p = p[used:]
	}
}

// complete adds to a header that was cut, and returns how many bytes of p it took.
func (z *zstdSize) complete(p []byte) int {
	missing := zstd.HeaderMaxSize - len(z.need)
	take := min(missing, len(p))
	joined := append(z.need, p[:take]...)
	used, ok := z.step(joined)
	switch {
	case !ok && take == missing:
		z.failed = true
	case !ok:
		z.need = joined
	default:
		z.need = nil
		z.write(joined[used:])
	}
	return take
}

// step reads one header; ok is false if p holds too little of it.
func (z *zstdSize) step(p []byte) (used int, ok bool) {
	if z.in {
		return z.block(p)
	}
	var h zstd.Header
	if err := h.Decode(p); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return 0, false
		}
		z.failed = true
		return len(p), true
	}
	if h.Skippable {
		z.skip = int64(h.SkippableSize)
		return h.HeaderSize, true
	}
	if !h.HasFCS || h.FrameContentSize > maxFrame {
		z.failed = true
		return len(p), true
	}
	z.total += int64(h.FrameContentSize)
	z.in, z.sums = true, h.HasCheckSum
	return h.HeaderSize, true
}

// block reads a block header: three bytes with whether it is the last, its type and its size.
func (z *zstdSize) block(p []byte) (used int, ok bool) {
	if len(p) < 3 {
		return 0, false
	}
	v := uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16
	const repeated = 1 // of one byte
	if z.skip = int64(v >> 3); v>>1&3 == repeated {
		z.skip = 1
	}
	if v&1 != 0 {
		z.in = false
		if z.sums {
			z.skip += 4
		}
	}
	return 3, true
}

// size is what all frames say; ok is false if one says nothing or the last is cut.
func (z *zstdSize) size() (int64, bool) {
	return z.total, !z.failed && !z.in && z.skip == 0 && len(z.need) == 0
}

// isSkippable reports whether a stream begins with a skippable frame of zstd.
func isSkippable(b []byte) bool {
	return len(b) >= 4 && b[0]&0xf0 == 0x50 && b[1] == 0x2a && b[2] == 0x4d && b[3] == 0x18
}
