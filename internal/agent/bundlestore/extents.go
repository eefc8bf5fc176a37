package bundlestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/refit-dev/refit/internal/filesystem"
)

// maxExtents is how many extents the bundles of one medium may have. A file of 4 GiB on a full
// stick has some thousands.
const maxExtents = 1 << 16

// encodeExtents packs extents into two or three bytes where they are small.
func encodeExtents(list []filesystem.Extent) []byte {
	var b []byte
	for _, e := range list {
		length := uint64(e.Length) << 1
		if e.Zeros {
			length |= 1
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(e.At)), length)
	}
	return b
}

// decodeExtents unpacks the extents of a file of size bytes, at most limit of them, and checks
// that they are the whole file.
func decodeExtents(b []byte, size int64, limit int) ([]filesystem.Extent, error) {
	var list []filesystem.Extent
	var sum int64
	for len(b) > 0 {
		at, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errors.New("extents of a file are cut off")
		}
		b = b[n:]
		length, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errors.New("extents of a file are cut off")
		}
		b = b[n:]
		e := filesystem.Extent{At: int64(at), Length: int64(length >> 1), Zeros: length&1 != 0}
		if at > math.MaxInt64 || e.Length == 0 || e.Length > math.MaxInt64-e.At || e.Length > size-sum {
			return nil, fmt.Errorf("extent of %d bytes at %d does not fit into a file of %d bytes", e.Length, at, size)
		}
		if len(list) == limit {
			return nil, fmt.Errorf("a file has more than %d extents", limit)
		}
		sum += e.Length
		list = append(list, e)
	}
	if sum != size {
		return nil, fmt.Errorf("extents of a file have %d bytes, it has %d", sum, size)
	}
	return list, nil
}

// extentReader reads a file of a medium in place. A read that is in one extent is one read of
// the medium, so that a fragmented file is about as fast as the medium.
type extentReader struct {
	medium io.ReaderAt
	list   []filesystem.Extent
	// ends are where the extents end in the file.
	ends []int64
}

func newExtentReader(medium io.ReaderAt, list []filesystem.Extent) *extentReader {
	r := &extentReader{medium: medium, list: list}
	var end int64
	for _, e := range list {
		end += e.Length
		r.ends = append(r.ends, end)
	}
	return r
}

// ReadAt implements io.ReaderAt.
func (r *extentReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	done := 0
	for i := sort.Search(len(r.ends), func(i int) bool { return r.ends[i] > off }); i < len(r.list) && done < len(p); i++ {
		e := r.list[i]
		inside := off + int64(done) - (r.ends[i] - e.Length)
		part := p[done:]
		part = part[:min(int64(len(part)), e.Length-inside)]
		if e.Zeros {
			clear(part)
			done += len(part)
			continue
		}
		n, err := r.medium.ReadAt(part, e.At+inside)
		if done += n; n < len(part) {
			return done, err
		}
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}
