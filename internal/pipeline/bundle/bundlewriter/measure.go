package bundlewriter

import (
	"bufio"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory for unpacking zstd in bytes; layers above need
// it on every node too.
const maxWindow = 128 << 20

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// measure counts the unpacked bytes of a layer that is written to it.
type measure struct {
	*io.PipeWriter
	done chan struct{}
	n    int64
	err  error
}

func startMeasure() *measure {
	r, w := io.Pipe()
	m := &measure{PipeWriter: w, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.n, m.err = unpackedSize(r)
		// what follows the compressed data is not part of it
		_, _ = io.Copy(io.Discard, r)
	}()
	return m
}

// finish ends the layer; with an error of the writer the count is void.
func (m *measure) finish(failed error) (int64, error) {
	if failed == nil {
		m.Close()
	} else {
		m.CloseWithError(failed)
	}
	<-m.done
	return m.n, m.err
}

// unpackedSize decompresses as the first bytes say: media types are wrong more often than
// magic numbers.
func unpackedSize(r io.Reader) (int64, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	switch {
	case hasPrefix(head, gzipMagic):
		zr, err := gzip.NewReader(br)
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(io.Discard, zr)
		if errors.Is(err, gzip.ErrHeader) && n > 0 {
			err = nil // padding after the stream, which runtimes accept
		}
		return n, err
	case hasPrefix(head, zstdMagic):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return 0, err
		}
		defer zr.Close()
		return io.Copy(io.Discard, zr)
	}
	return io.Copy(io.Discard, br)
}

func hasPrefix(b, prefix []byte) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == string(prefix)
}
