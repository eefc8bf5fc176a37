package oci

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/fsutil"
)

// compression is the format of a tar.
type compression int

const (
	uncompressed compression = iota
	compressedGzip
	compressedZstd
)

func (c compression) mediaType() string {
	switch c {
	case compressedGzip:
		return ocispec.MediaTypeImageLayerGzip
	case compressedZstd:
		return ocispec.MediaTypeImageLayerZstd
	}
	return ocispec.MediaTypeImageLayer
}

const (
	// maxZstdWindow bounds the memory of unpacking zstd, in bytes. k3s and RKE2 use 32 MiB.
	maxZstdWindow = 128 << 20
	// maxUnpackedLayer bounds the unpacked bytes of a layer, so that hashing it ends.
	maxUnpackedLayer = 1 << 40
)

// compressionOf finds out how a tar is compressed, from its first block.
func compressionOf(r io.ReaderAt) (compression, error) {
	block := make([]byte, 512)
	n, err := r.ReadAt(block, 0)
	if n < len(block) && err != nil && !errors.Is(err, io.EOF) {
		return uncompressed, err
	}
	starts := func(magic ...string) bool {
		return slices.ContainsFunc(magic, func(m string) bool { return bytes.HasPrefix(block[:n], []byte(m)) })
	}
	switch {
	case string(block[257:262]) == "ustar":
		return uncompressed, nil
	case starts("\x1f\x8b"):
		return compressedGzip, nil
	case starts("\x28\xb5\x2f\xfd"), block[0]&0xf0 == 0x50 && string(block[1:4]) == "\x2a\x4d\x18": // a frame, or one to skip
		return compressedZstd, nil
	case starts("BZh", "\xfd7zXZ\x00"):
		return uncompressed, errors.New("it is compressed by bzip2 or xz: unpack it first; gzip and zstd are supported")
	}
	return uncompressed, nil
}

// unpack decompresses r. Close the result.
func unpack(r io.Reader, c compression) (io.ReadCloser, error) {
	if c == compressedGzip {
		return gzip.NewReader(r)
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// hashPacked reads a compressed layer once, for both of its digests.
func hashPacked(ctx context.Context, r io.Reader, c compression) (packedLayer, error) {
	packed, unpacked := sha256.New(), sha256.New()
	in := io.TeeReader(contextReader{ctx, r}, packed)
	z, err := unpack(in, c)
	if err != nil {
		return packedLayer{}, fmt.Errorf("unpack: %w", err)
	}
	n, err := io.Copy(unpacked, io.LimitReader(z, maxUnpackedLayer+1))
	z.Close()
	if err == nil && n > maxUnpackedLayer {
		err = fmt.Errorf("more than the %d bytes allowed", int64(maxUnpackedLayer))
	}
	if err == nil {
		_, err = io.Copy(io.Discard, in) // what follows the compressed data
	}
	if err != nil {
		return packedLayer{}, fmt.Errorf("unpack: %w", windowHint(err))
	}
	return packedLayer{digest.NewDigest(digest.SHA256, packed), digest.NewDigest(digest.SHA256, unpacked)}, nil
}

func windowHint(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return fmt.Errorf("%w: compress it with zstd --long=27 or less", err)
	}
	return err
}

// openTar opens a tar so that it can be read at any offset. A compressed one is unpacked first.
func openTar(ctx context.Context, file string) (*os.File, error) {
	f, err := fsutil.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	c, err := compressionOf(f)
	if err == nil && c == uncompressed {
		return f, nil
	}
	defer f.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out, err := spool(ctx, f, c)
	if err != nil {
		return nil, fmt.Errorf("%s: unpack: %w", file, windowHint(err))
	}
	return out, nil
}

// spoolDir is where archives are unpacked. /tmp is in memory on many systems.
func spoolDir() string {
	const big = "/var/tmp"
	if st, err := os.Stat(big); os.Getenv("TMPDIR") == "" && err == nil && st.IsDir() {
		return big
	}
	return os.TempDir()
}

// spool unpacks a file into one without a name, which ends with the process. It takes at most
// nine tenths of the free space.
func spool(ctx context.Context, f io.Reader, c compression) (_ *os.File, err error) {
	dir := spoolDir()
	out, err := fsutil.Unnamed(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	room, err := fsutil.RoomAt(dir)
	if err != nil {
		return nil, err
	}
	most := room.Free / 10 * 9
	z, err := unpack(contextReader{ctx, f}, c)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	n, err := io.Copy(out, io.LimitReader(z, most+1))
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("%s has room for %d bytes, and the archive has more: name a directory with more room in TMPDIR", dir, most)
	}
	_, err = out.Seek(0, io.SeekStart)
	return out, err
}

// contextReader ends a read with the context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
