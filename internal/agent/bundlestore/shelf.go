package bundlestore

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Shelf is one bundle on this node: its header, and the chunks that are here.
type Shelf struct {
	header *bundle.Header
	store  *BlobStore
	blobs  []Blob

	mu      sync.Mutex
	changed chan struct{}
}

func newShelf(h *bundle.Header, st *BlobStore) *Shelf {
	s := &Shelf{header: h, store: st, changed: make(chan struct{})}
	for i, b := range h.Metadata.Blobs {
		first, n := h.Chunks.OfBlob(i)
		sums := make([][32]byte, n)
		for k := range n {
			sums[k] = h.Chunks.Chunk(first + k).Digest
		}
		s.blobs = append(s.blobs, Blob{Digest: b.Digest, Size: b.Size, ChunkSize: h.Metadata.ChunkSize, Sums: sums})
	}
	return s
}

// Bundle is the verified header.
func (s *Shelf) Bundle() *bundle.Header { return s.header }

// Digest of the bundle.
func (s *Shelf) Digest() string { return s.header.Digest }

// Chunks is how many the bundle has.
func (s *Shelf) Chunks() int { return s.header.Chunks.Len() }

// ChunkSize is the size of chunk n in bytes.
func (s *Shelf) ChunkSize(n int) int64 { return s.header.Chunks.Chunk(n).Size }

// locate finds a chunk in its blob.
func (s *Shelf) locate(n int) (Blob, int, error) {
	if n < 0 || n >= s.Chunks() {
		return Blob{}, 0, fmt.Errorf("bundle %s has no chunk %d: %w", s.Digest(), n, ErrAbsent)
	}
	blob := s.header.Chunks.Chunk(n).Blob
	first, _ := s.header.Chunks.OfBlob(blob)
	return s.blobs[blob], n - first, nil
}

// Has reports whether chunk n is here.
func (s *Shelf) Has(n int) bool {
	b, k, err := s.locate(n)
	return err == nil && s.store.HasChunk(b, k)
}

// Put compares and stores chunk n; kept is false if it was here.
func (s *Shelf) Put(n int, data []byte) (kept bool, err error) {
	b, k, err := s.locate(n)
	if err != nil {
		return false, err
	}
	if kept, err = s.store.Put(b, k, data); kept {
		s.mu.Lock()
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
	return kept, err
}

// Changed is closed when another chunk has come to this shelf since the call.
func (s *Shelf) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Get reads chunk n and compares it.
func (s *Shelf) Get(n int) ([]byte, error) {
	b, k, err := s.locate(n)
	if err != nil {
		return nil, err
	}
	return s.store.Get(b, k, make([]byte, s.ChunkSize(n)))
}

// GetRecent is Get for peers, which compare chunks themselves: it does not compare a chunk
// again that was compared in the last minutes. It uses buf if buf is large enough.
func (s *Shelf) GetRecent(n int, buf []byte) ([]byte, error) {
	b, k, err := s.locate(n)
	if err != nil {
		return nil, err
	}
	if size := s.ChunkSize(n); int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	return s.store.getRecent(b, k, buf[:cap(buf)])
}

// Recheck compares chunks that are here with their digests, and returns how many do not
// match: those are missing then, and wanted again.
func (s *Shelf) Recheck(blobs []int) (bad int) {
	for _, b := range blobs {
		first, count := s.header.Chunks.OfBlob(b)
		for n := first; n < first+count; n++ {
			if !s.Has(n) {
				continue
			}
			if _, err := s.Get(n); err != nil {
				bad++
			}
		}
	}
	return bad
}

// Bitmap has one bit for every chunk, set if it is here, least significant bit first.
func (s *Shelf) Bitmap() ([]byte, error) {
	out := make([]byte, (s.Chunks()+7)/8)
	n := 0
	for _, b := range s.blobs {
		have, err := s.store.Have(b)
		if err != nil {
			return nil, err
		}
		for _, h := range have {
			if h {
				out[n/8] |= 1 << (n % 8)
			}
			n++
		}
	}
	return out, nil
}

// HasBlob reports whether a blob is complete; it creates a blob of no bytes.
func (s *Shelf) HasBlob(i int) bool {
	if s.blobs[i].Size == 0 {
		return s.store.Finish(s.blobs[i]) == nil
	}
	return s.store.Has(s.blobs[i].Digest)
}

// smallBlob is the largest size of an index or a manifest, in bytes.
const smallBlob = 4 << 20

// ReadSmall reads a complete blob of the bundle, nil if it is missing or large.
func (s *Shelf) ReadSmall(digest string) []byte {
	f, err := s.store.Open(digest)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() > smallBlob {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, smallBlob))
	if err != nil || bundle.DigestOf(b) != digest {
		return nil
	}
	return b
}

// Wanted is what a pin set requires of this bundle for a platform.
func (s *Shelf) Wanted(hold model.PinSet, platform string) pin.Needed {
	return pin.SelectNeeded(s.header, hold, platform, s.ReadSmall)
}

// BytesHere counts the bytes of these blobs that are here, including partial ones.
func (s *Shelf) BytesHere(blobs []int) int64 {
	var sum int64
	for _, i := range blobs {
		b := s.blobs[i]
		have, err := s.store.Have(b)
		if err != nil {
			continue
		}
		for n, h := range have {
			if h {
				sum += min(b.ChunkSize, b.Size-int64(n)*b.ChunkSize)
			}
		}
	}
	return sum
}

// Target is a pinned image of this bundle in the form for a runtime; ok is false while
// blobs are missing.
func (s *Shelf) Target(img model.PinSetImage, platform string) (out cri.Target, ok bool) {
	have := s.header.ImageForPin(img)
	if have == nil {
		return cri.Target{}, false
	}
	out = cri.Target{Name: have.Name, Digest: have.Digest, MediaType: have.MediaType}
	for _, b := range pin.PlatformBlobs(s.header, have, platform, s.ReadSmall) {
		if !s.HasBlob(b) {
			return cri.Target{}, false
		}
		if blob := s.header.Metadata.Blobs[b]; blob.Digest == have.Digest {
			out.Size = blob.Size
		}
	}
	if img.Base != "" {
		return s.overlayTarget(img, platform)
	}
	return out, true
}

// overlayTarget is an image that was assembled on the site from one of this bundle; ok is
// true if all its blobs are here. No bundle lists its blobs, so it follows them from the
// image's digest down.
func (s *Shelf) overlayTarget(img model.PinSetImage, platform string) (out cri.Target, ok bool) {
	top := s.ReadSmall(img.Digest)
	kind, err := mediaTypeOf(top)
	if top == nil || err != nil {
		return cri.Target{}, false
	}
	for _, d := range pin.ImageDigests(img.Digest, platform, s.ReadSmall) {
		if !s.store.Has(d) {
			return cri.Target{}, false
		}
	}
	return cri.Target{Name: img.Name, Digest: img.Digest, MediaType: kind, Size: int64(len(top))}, true
}

// mediaTypeOf an index or a manifest: its own media type, or OCI's default.
func mediaTypeOf(raw []byte) (string, error) {
	var said struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return "", err
	}
	switch {
	case said.MediaType != "":
		return said.MediaType, nil
	case said.Manifests != nil:
		return ocispec.MediaTypeImageIndex, nil
	}
	return ocispec.MediaTypeImageManifest, nil
}
