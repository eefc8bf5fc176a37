package bundlestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// ChunkReader is a bundle on a medium; read.File is one.
type ChunkReader interface {
	// ReadChunk reads and compares chunk n; buf is used if it is large enough.
	ReadChunk(n int, buf []byte) ([]byte, error)
	// Covers reports whether the medium has chunk n: parts of a bundle do not have all of them.
	Covers(n int) bool
}

// ChunkKeeper stores chunks; Shelf is one.
type ChunkKeeper interface {
	Has(n int) bool
	// Put compares and stores a chunk; kept is false if it was here.
	Put(n int, data []byte) (kept bool, err error)
}

// maxUnreadable is after how many unreadable chunks in a row a medium counts as removed: a
// damaged one has a few bad sectors, a removed one nothing else.
const maxUnreadable = 3

// ErrStore says that this node's own store cannot take a chunk. The medium is not at fault.
var ErrStore = errors.New("this node's store")

// Copy copies chunks from a medium to a shelf, in the given order (that of the file is the
// fastest). It skips chunks that are here, and those of parts that are not plugged in. It skips a
// bad sector too, and reports at the end how many chunks are damaged. A medium that was removed or
// swapped ends the copy. Other errors are ErrStore and those of the context.
func Copy(ctx context.Context, from ChunkReader, to ChunkKeeper, chunks []int, got func(bytes int64)) error {
	var buf []byte
	var first error
	bad, row := 0, 0
	for _, n := range chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !from.Covers(n) || to.Has(n) {
			continue
		}
		data, err := from.ReadChunk(n, buf)
		if err != nil {
			first = cmp.Or(first, err)
			bad++
			if row++; row >= maxUnreadable || isSwapped(err) {
				return fmt.Errorf("the medium cannot be read any more: %w", first)
			}
			continue
		}
		buf, row = data[:cap(data)], 0
		kept, err := to.Put(n, data)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrStore, err)
		}
		if kept {
			got(int64(len(data)))
		}
		failpoint.Here(failpoint.MediumCopy)
	}
	if first != nil {
		return fmt.Errorf("%d chunks on the medium are damaged, the rest was copied: %w", bad, first)
	}
	return nil
}

// isSwapped reports whether the header has changed, or cannot be read any more.
func isSwapped(err error) bool {
	var c *bundle.CorruptError
	return errors.As(err, &c) && c.Part == "header"
}
