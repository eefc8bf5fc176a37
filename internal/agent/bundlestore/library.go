package bundlestore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Library is all bundles whose header this node has, over one blob store. Safe for
// concurrent use.
type Library struct {
	dir   string
	store *BlobStore
	log   *slog.Logger

	mu      sync.Mutex
	shelves map[string]*Shelf
	served  map[string]bool
	edges   map[string][]edge // by bundle
}

// OpenLibrary reads the headers that are on disk below dir (bundles/<hex>/header)
// and opens its blobs (blobs/sha256). A header that no longer matches its
// digest is removed: it is fetched again if it is wanted. A directory that cannot be
// listed is set aside: all of it is fetched again.
func OpenLibrary(dir string, log *slog.Logger, note statefile.Note) *Library {
	const instead = "what was in it is fetched again from peers or a medium"
	st := BlobsAt(filepath.Join(dir, "blobs", "sha256"))
	l := &Library{dir: filepath.Join(dir, "bundles"), store: st, log: log, shelves: map[string]*Shelf{}, served: map[string]bool{}, edges: map[string][]edge{}}
	for _, d := range []string{filepath.Join(dir, "blobs"), st.Dir(), l.dir} {
		statefile.Dir(d, instead, note)
	}
	entries, _ := os.ReadDir(l.dir) // a problem is reported above
	for _, e := range entries {
		l.restoreHeader(e.Name(), note)
	}
	return l
}

func (l *Library) restoreHeader(hex string, note statefile.Note) {
	raw, err := os.ReadFile(filepath.Join(l.dir, hex, "header"))
	if err == nil {
		var h *bundle.Header
		if h, err = bundle.ParseHeaderOf("sha256:"+hex, raw); err == nil {
			l.shelves[h.Digest] = newShelf(h, l.store)
			l.restoreEdges(h.Digest)
			return
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // its write was interrupted
		_ = os.Remove(filepath.Join(l.dir, hex))
		return
	}
	if bundle.ValidDigest("sha256:" + hex) {
		note(statefile.Problem{Reason: statefile.ReasonDamaged, Object: filepath.Join(l.dir, hex), Repaired: true,
			Message: fmt.Sprintf("the stored header of bundle %.12s is damaged and was removed: %v", hex, err), Fix: "nothing: it is fetched again from peers or a medium"})
		_ = os.RemoveAll(filepath.Join(l.dir, hex)) // it is not used either way
	}
}

// Add stores the header of a bundle that the caller has found to be allowed.
func (l *Library) Add(h *bundle.Header) (*Shelf, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shelves[h.Digest]; s != nil {
		return s, nil
	}
	failpoint.Here(failpoint.HeaderFetched)
	path := filepath.Join(l.dir, strings.TrimPrefix(h.Digest, "sha256:"), "header")
	if err := fsutil.WriteFile(path, h.Raw, 0o600); err != nil {
		return nil, fmt.Errorf("header of bundle %s: %w", h.Digest, err)
	}
	failpoint.Here(failpoint.HeaderStored)
	s := newShelf(h, l.store)
	l.shelves[h.Digest] = s
	return s, nil
}

// Shelf is the bundle with this digest, nil if its header is not here.
func (l *Library) Shelf(digest string) *Shelf {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shelves[digest]
}

// Header is that of a bundle whose header is here, else nil.
func (l *Library) Header(digest string) *bundle.Header {
	if s := l.Shelf(digest); s != nil {
		return s.Bundle()
	}
	return nil
}

// Digests of the bundles whose header is here, sorted.
func (l *Library) Digests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.shelves))
	for d := range l.shelves {
		out = append(out, d)
	}
	sort.Strings(out)
	return out
}

// Serve sets the bundles that peers may read from now on; no others.
func (l *Library) Serve(digests []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = map[string]bool{}
	for _, d := range digests {
		l.served[d] = true
	}
}

// Served is the shelf of a bundle that peers may read, nil if they may not.
func (l *Library) Served(digest string) *Shelf {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.served[digest] {
		return nil
	}
	return l.shelves[digest]
}

// Blobs is the store of all blobs.
func (l *Library) Blobs() *BlobStore { return l.store }

// Open opens a complete blob.
func (l *Library) Open(digest string) (io.ReadCloser, error) { return l.store.Open(digest) }

// StoreBlob stores a small blob that is in no bundle. It calls open only if the blob is not
// here, or does not match its digest any more.
func (l *Library) StoreBlob(digest string, size int64, open func() ([]byte, error)) error {
	b := Blob{Digest: digest, Size: size, ChunkSize: size, Sums: make([][32]byte, 1)}
	sum, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil || copy(b.Sums[0][:], sum) != len(b.Sums[0]) || size <= 0 {
		return fmt.Errorf("blob %q of %d bytes: it is empty, or its digest is invalid", digest, size)
	}
	if l.store.HasChunk(b, 0) {
		if _, err := l.store.Get(b, 0, make([]byte, size)); err == nil {
			return nil
		}
	}
	data, err := open()
	if err != nil {
		return err
	}
	_, err = l.store.Put(b, 0, data)
	return err
}

// Collect removes the bundles and blobs that are not kept: bundles has the digests of
// bundles, blobs those of blobs. Files of others stay.
func (l *Library) Collect(bundles, blobs map[string]bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []error
	for d := range l.shelves {
		if bundles[d] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.dir, strings.TrimPrefix(d, "sha256:"))); err != nil {
			all = append(all, fmt.Errorf("removal of bundle %s: %w", d, err))
			continue
		}
		delete(l.shelves, d)
		delete(l.edges, d)
	}
	have, err := l.store.List()
	if err != nil {
		return errors.Join(append(all, err)...)
	}
	for d := range have {
		if !blobs[d] {
			all = append(all, l.store.Remove(d))
		}
	}
	return errors.Join(all...)
}
