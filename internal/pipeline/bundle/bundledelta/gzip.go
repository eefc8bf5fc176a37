package bundledelta

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"runtime"
	"runtime/debug"

	fastflate "github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/refit-dev/refit/internal/componentversion"
)

// How a blob may be packed.
const (
	packedGzip = "gzip"
	packedZstd = "zstd"
)

// packing tells from the first bytes how a blob is packed.
func packing(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b, 8}):
		return packedGzip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return packedZstd
	}
	return ""
}

// unpack reads what is packed in r. Close it.
func unpack(r io.Reader, packed string) (io.ReadCloser, error) {
	switch packed {
	case packedGzip:
		return gzip.NewReader(r)
	case packedZstd:
		return newDecoder(r, window)
	}
	return io.NopCloser(r), nil
}

// newDecoder reads zstd in bounded memory.
func newDecoder(r io.Reader, most uint64) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(most))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// newEncoder writes zstd of size bytes at most, with a window of most bytes. It is slow, and a delta is
// carried by hand: bytes count.
func newEncoder(w io.Writer, size int64, most int) (*zstd.Encoder, error) {
	if size < int64(most) {
		most = min(most, max(leastWindow, 1<<bits.Len64(uint64(size))))
	}
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(most))
}

// deflater packs what is written to it.
type deflater interface {
	io.Writer
	Close() error
}

// deflaters are the encoders that programs write layers with, by name.
var deflaters = map[string]func(w io.Writer, level int) (deflater, error){
	"go":        func(w io.Writer, level int) (deflater, error) { return flate.NewWriter(w, level) },
	"klauspost": func(w io.Writer, level int) (deflater, error) { return fastflate.NewWriter(w, level) },
}

// usual are encoders and levels, the frequent ones first.
var usual = []recipe{
	{Encoder: "go", Level: 6}, {Encoder: "klauspost", Level: 5}, {Encoder: "klauspost", Level: 6}, {Encoder: "go", Level: 1}, {Encoder: "go", Level: 9},
	{Encoder: "klauspost", Level: 1}, {Encoder: "klauspost", Level: 9}, {Encoder: "go", Level: 2}, {Encoder: "go", Level: 3}, {Encoder: "go", Level: 4},
	{Encoder: "go", Level: 5}, {Encoder: "go", Level: 7}, {Encoder: "go", Level: 8}, {Encoder: "klauspost", Level: 2}, {Encoder: "klauspost", Level: 3},
	{Encoder: "klauspost", Level: 4}, {Encoder: "klauspost", Level: 7}, {Encoder: "klauspost", Level: 8}, {Encoder: "go", Level: flate.HuffmanOnly},
	{Encoder: "go", Level: flate.NoCompression},
}

// tools names what packs gzip here: another version may pack the same content to other bytes.
func tools() string {
	s := "refit " + componentversion.Refit() + ", " + runtime.Version()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return s
	}
	for _, d := range info.Deps {
		if d.Path == "github.com/klauspost/compress" {
			s += ", " + d.Path + " " + d.Version
		}
	}
	return s
}

// gzipWriter packs with a recipe. The encoder gets blocks of one size, however it is written to:
// an encoder may pack other blocks to other bytes.
type gzipWriter struct {
	out   io.Writer
	z     deflater
	block []byte
	sum   uint32
	size  uint32
}

func newGzipWriter(out io.Writer, r *recipe) (*gzipWriter, error) {
	if _, err := out.Write(r.Header); err != nil {
		return nil, err
	}
	z, err := deflaters[r.Encoder](out, r.Level)
	if err != nil {
		return nil, err
	}
	return &gzipWriter{out: out, z: z, block: make([]byte, 0, bufferSize)}, nil
}

func (g *gzipWriter) Write(p []byte) (int, error) {
	total := len(p)
	g.sum = crc32.Update(g.sum, crc32.IEEETable, p)
	g.size += uint32(len(p))
	for len(p) > 0 {
		n := min(cap(g.block)-len(g.block), len(p))
		g.block = append(g.block, p[:n]...)
		p = p[n:]
		if len(g.block) < cap(g.block) {
			continue
		}
		if err := g.flush(); err != nil {
			return 0, err
		}
	}
	return total, nil
}

func (g *gzipWriter) flush() error {
	_, err := g.z.Write(g.block)
	g.block = g.block[:0]
	return err
}

func (g *gzipWriter) Close() error {
	if err := g.flush(); err != nil {
		return err
	}
	if err := g.z.Close(); err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint32(nil, g.sum)
	_, err := g.out.Write(binary.LittleEndian.AppendUint32(end, g.size))
	return err
}

// Flags of a gzip header.
const (
	gzipHasSum     = 1 << 1
	gzipHasExtra   = 1 << 2
	gzipHasName    = 1 << 3
	gzipHasComment = 1 << 4
)

var errNoRecipe = errors.New("gzip header too long or cut")

// gzipHeader returns the header that a gzip stream begins with.
func gzipHeader(b []byte) ([]byte, error) {
	n := 10
	if len(b) < n {
		return nil, errNoRecipe
	}
	flags := b[3]
	if flags&gzipHasExtra != 0 {
		if len(b) < n+2 {
			return nil, errNoRecipe
		}
		n += 2 + int(binary.LittleEndian.Uint16(b[n:]))
	}
	for _, text := range []byte{gzipHasName, gzipHasComment} {
		if flags&text == 0 {
			continue
		}
		if n > len(b) {
			return nil, errNoRecipe
		}
		i := bytes.IndexByte(b[n:], 0)
		if i < 0 {
			return nil, errNoRecipe
		}
		n += i + 1
	}
	if flags&gzipHasSum != 0 {
		n += 2
	}
	if n > len(b) || n > maxGzipHeader {
		return nil, errNoRecipe
	}
	return bytes.Clone(b[:n]), nil
}

// sampleSize is how much is packed to rule out a recipe.
const sampleSize = 1 << 20

// findRecipe returns the recipe that packs content to exactly the bytes of r, nil if none does.
func findRecipe(content []byte, r io.ReaderAt, size int64) (*recipe, error) {
	head := make([]byte, min(size, maxGzipHeader))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	header, err := gzipHeader(head)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // such a layer is not patched
	}
	for _, u := range usual {
		u.Header = header
		same, err := u.makes(content[:min(len(content), sampleSize)], r, size, false)
		if same {
			same, err = u.makes(content, r, size, true)
		}
		if err != nil {
			return nil, err
		}
		if same {
			return &u, nil
		}
	}
	return nil, nil //nolint:nilnil // no recipe is no error
}

// makes reports whether the packed content begins as r does; if it is whole, whether all is equal.
func (r *recipe) makes(content []byte, want io.ReaderAt, size int64, whole bool) (bool, error) {
	c := newComparer(want, size)
	g, err := newGzipWriter(c, r)
	if err == nil {
		_, err = g.Write(content)
	}
	if err == nil && whole {
		err = g.Close()
	}
	if errors.Is(err, errDiffers) {
		return false, nil
	}
	return err == nil && (!whole || c.left == 0), err
}

var errDiffers = errors.New("differs")

// comparer is a writer that fails with errDiffers once the bytes are not those of want.
type comparer struct {
	want io.ReaderAt
	at   int64
	left int64
	buf  []byte
}

func newComparer(want io.ReaderAt, size int64) *comparer {
	return &comparer{want: want, left: size, buf: make([]byte, bufferSize)}
}

func (c *comparer) Write(p []byte) (int, error) {
	total := len(p)
	if int64(total) > c.left {
		return 0, errDiffers
	}
	for len(p) > 0 {
		b := c.buf[:min(len(p), len(c.buf))]
		if n, err := c.want.ReadAt(b, c.at); n < len(b) {
			return 0, fmt.Errorf("read the packed blob: %w", err)
		}
		if !bytes.Equal(b, p[:len(b)]) {
			return 0, errDiffers
		}
		p = p[len(b):]
		c.at, c.left = c.at+int64(len(b)), c.left-int64(len(b))
	}
	return total, nil
}
