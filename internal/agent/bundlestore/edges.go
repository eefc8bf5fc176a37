package bundlestore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// edgesDir has the edges of a bundle, next to its header.
const edgesDir = "edges"

// maxEdgeBytes bounds the edges of one bundle: two chunks of 512 KiB for each of 256 parts.
const maxEdgeBytes = 256 << 20

// edge is one end of a part: the bytes of a chunk whose other bytes are in the next part. It is kept
// until a medium brings those, and is not verified before.
type edge struct {
	offset, length int64
	path           string
	sum            [sha256.Size]byte
}

// edgeName names an edge in messages.
const edgeName = "the end of a part that this node keeps"

// errEdge says that an edge is not what was written.
var errEdge = errors.New("the end of a part is damaged")

// IsWrongEdge reports whether a chunk was wrong, and may have been so for an edge. It is false for a
// medium that could not be read.
func IsWrongEdge(err error) bool {
	var c *bundle.CorruptError
	return errors.Is(err, errEdge) || errors.As(err, &c) && c.Err == nil && strings.Contains(c.Place, edgeName)
}

func (l *Library) edgesPath(digest string) string {
	return filepath.Join(l.dir, strings.TrimPrefix(digest, "sha256:"), edgesDir)
}

// restoreEdges lists the edges that an earlier process kept.
func (l *Library) restoreEdges(digest string) {
	entries, _ := os.ReadDir(l.edgesPath(digest)) // most bundles have none
	for _, e := range entries {
		offset, sum, _ := strings.Cut(e.Name(), "-")
		at, err := strconv.ParseInt(offset, 10, 64)
		raw, hexErr := hex.DecodeString(sum)
		info, statErr := e.Info()
		if errors.Join(err, hexErr, statErr) == nil && len(raw) == sha256.Size && at >= 0 && info.Size() > 0 {
			l.edges[digest] = append(l.edges[digest], edge{at, info.Size(), filepath.Join(l.edgesPath(digest), e.Name()), [sha256.Size]byte(raw)})
		}
	}
}

// ReadAt reads an edge and compares it with what was written.
func (e edge) ReadAt(p []byte, off int64) (int, error) {
	b, err := os.ReadFile(e.path)
	if err != nil {
		return 0, err
	}
	if sha256.Sum256(b) != e.sum {
		return 0, fmt.Errorf("%s: %w", e.path, errEdge)
	}
	return bytes.NewReader(b).ReadAt(p, off)
}

// Edges returns the edges of a bundle.
func (l *Library) Edges(digest string) (out []bundlereader.Piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.edges[digest] {
		out = append(out, bundlereader.Piece{Offset: e.offset, Length: e.length, From: e, Name: edgeName})
	}
	return out
}

// DropEdges removes the edges of a bundle: a chunk with one of them was wrong.
func (l *Library) DropEdges(digest string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.edges, digest)
	return os.RemoveAll(l.edgesPath(digest))
}

// KeepEdges copies the edges of plugged-in parts: of chunks that are neither here nor complete on
// the media. So the media with the parts of a bundle may come one after the other.
func (l *Library) KeepEdges(s *Shelf, p *Plugged) error {
	if p.inParts == nil {
		return nil
	}
	f, err := p.Reader(s.Bundle())
	if err != nil {
		return err
	}
	for _, piece := range p.inParts.pieces(s.Bundle().FileSize()) {
		for _, e := range edgesOf(s.Bundle(), piece) {
			if s.Has(e.chunk) || f.Covers(e.chunk) {
				continue
			}
			if err := l.keepEdge(s.Digest(), e.from, e.to, f.Unverified()); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutChunk is a chunk of which a part has the bytes from..to only.
type cutChunk struct {
	chunk    int
	from, to int64
}

// edgesOf returns the chunks at both ends of a part that other parts have bytes of.
func edgesOf(h *bundle.Header, p bundlereader.Piece) (out []cutChunk) {
	end := p.Offset + p.Length
	for _, at := range []int64{p.Offset, end - 1} {
		n := bundlereader.ChunkAt(h, at)
		if n == h.Chunks.Len() {
			continue
		}
		begin, size := bundlereader.ChunkRange(h, n)
		c := cutChunk{n, max(begin, p.Offset), min(begin+size, end)}
		if c.from < c.to && c.to-c.from < size {
			out = append(out, c)
		}
	}
	return out
}

// keepEdge keeps the bytes from..to of a bundle.
func (l *Library) keepEdge(digest string, from, to int64, r io.ReaderAt) error {
	var kept int64
	for _, e := range l.Edges(digest) {
		if e.Offset <= from && to <= e.Offset+e.Length {
			return nil
		}
		kept += e.Length
	}
	if kept+to-from > maxEdgeBytes {
		return nil // such parts must be plugged in at the same time
	}
	b := make([]byte, to-from)
	if _, err := r.ReadAt(b, from); err != nil {
		return fmt.Errorf("end of a part of bundle %s: %w", digest, err)
	}
	e := edge{offset: from, length: to - from, sum: sha256.Sum256(b)}
	e.path = filepath.Join(l.edgesPath(digest), fmt.Sprintf("%d-%x", from, e.sum))
	if err := fsutil.WriteFile(e.path, b, 0o600); err != nil {
		return fmt.Errorf("%w: end of a part of bundle %s: %w", ErrStore, digest, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.edges[digest] = append(l.edges[digest], e)
	return nil
}
