package bundlewriter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
)

// sizer finds the unpacked size of a layer while the layer is written to it. If the format
// states the size, sizer does not unpack the layer. zstd states it in the headers of its
// frames, gzip in its last bytes (RFC 1952: the size modulo 2^32 of the last member). If
// there is no size that can be trusted, sizer unpacks the layer.
type sizer struct {
	size    int64 // of the layer as it travels
	whole   bool  // unpack in any case
	head    []byte
	decided bool

	full *measure  // unpacks
	zstd *zstdSize // reads frame headers
	tail *gzipTail // keeps the last bytes
	raw  int64     // bytes of a layer that is not compressed
}

// headSize is how much of a layer is looked into before its format is decided. A gzip member
// that ends within it is one of many.
const headSize = 128 << 10

func newSizer(size int64, whole bool) *sizer { return &sizer{size: size, whole: whole} }

func (s *sizer) Write(p []byte) (int, error) {
	if s.decided {
		return len(p), s.pass(p)
	}
	s.head = append(s.head, p...)
	if len(s.head) < headSize && int64(len(s.head)) < s.size {
		return len(p), nil
	}
	s.decide()
	head := s.head
	s.head = nil
	return len(p), s.pass(head)
}

func (s *sizer) decide() {
	s.decided = true
	switch {
	case s.whole || s.size <= headSize:
		s.full = startMeasure()
	case hasPrefix(s.head, gzipMagic):
		if s.tail = trustedTail(s.head[:headSize], s.size); s.tail == nil {
			s.full = startMeasure()
		}
	case bytes.HasPrefix(s.head, zstdMagic) || isSkippable(s.head):
		s.zstd = &zstdSize{}
		if s.zstd.write(s.head); s.zstd.failed {
			s.zstd, s.full = nil, startMeasure()
		} else {
			s.zstd = &zstdSize{}
		}
	}
}

func (s *sizer) pass(p []byte) error {
	switch {
	case s.full != nil:
		_, err := s.full.Write(p)
		return err
	case s.zstd != nil:
		s.zstd.write(p)
	case s.tail != nil:
		s.tail.write(p)
	default:
		s.raw += int64(len(p))
	}
	return nil
}

// finish returns the size. ok is false if the layer must be unpacked to know it.
func (s *sizer) finish(failed error) (n int64, ok bool, err error) {
	if !s.decided {
		s.decide()
		if err := s.pass(s.head); err != nil && failed == nil {
			failed = err
		}
	}
	switch {
	case s.full != nil:
		n, err = s.full.finish(failed)
		return n, true, err
	case s.zstd != nil:
		n, ok = s.zstd.size()
	case s.tail != nil:
		n, ok = s.tail.size(s.size)
	default:
		n, ok = s.raw, true
	}
	return n, ok, nil
}

// gzipTail keeps the last four bytes of a stream.
type gzipTail struct{ last [4]byte }

func (t *gzipTail) write(p []byte) {
	if len(p) >= len(t.last) {
		copy(t.last[:], p[len(p)-len(t.last):])
		return
	}
	copy(t.last[:], t.last[len(p):])
	copy(t.last[len(t.last)-len(p):], p)
}

const (
	// maxRatio of deflate: RFC 1951 allows no more than 1032 bytes from one.
	maxRatio = 1032
	// storedBlock is the least that deflate stores without compression in a block, of
	// which five bytes are its own.
	storedBlock = 8 << 10
)

// size is implausible if it is smaller than deflate can make of what it cannot compress, or
// larger than it can make of anything: padding, or another stream, follows the last member.
func (t *gzipTail) size(packed int64) (int64, bool) {
	n := int64(binary.LittleEndian.Uint32(t.last[:]))
	const wrapper = 1 << 10 // header with names, and the trailer
	least := packed - packed/storedBlock*5 - wrapper
	return n, n >= least && n <= packed*maxRatio
}

// trustedTail is nil if the last bytes of a gzip layer would not say its size: it has
// several members, or may unpack to more than 32 bits can count.
func trustedTail(head []byte, size int64) *gzipTail {
	r, err := gzip.NewReader(bytes.NewReader(head))
	if err != nil {
		return nil
	}
	r.Multistream(false)
	n, err := io.Copy(io.Discard, r)
	if !errors.Is(err, io.ErrUnexpectedEOF) || n == 0 {
		return nil
	}
	ratio := float64(n) / float64(len(head))
	const caution = 8 // the rest may be easier to compress than the beginning
	if float64(size)*ratio*caution > math.MaxUint32 {
		return nil
	}
	return &gzipTail{}
}
