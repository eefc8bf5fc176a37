package bundleserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

const (
	// slotWait is how long a request waits for others to finish reading.
	slotWait = 30 * time.Second
	// writeStep is how much is sent at once, writeTime how long a client may take for it.
	writeStep = 256 << 10
	writeTime = time.Minute
)

var mediaForm = regexp.MustCompile(`^[a-zA-Z0-9.+/_-]{1,127}$`)

func (s *Server) getManifest(w http.ResponseWriter, r *http.Request, repo *repository, ref string) *httpError {
	digest := ref
	if !strings.Contains(ref, ":") {
		if digest = repo.digests[ref]; digest == "" {
			return fail(http.StatusNotFound, codeManifestUnknown, "the bundle has no image %s:%.200s", repo.name, ref)
		}
	} else if err := checkDigest(ref); err != nil {
		return err
	}
	m := s.manifests[digest]
	if m != nil && m.blob == nil {
		return fail(http.StatusNotFound, codeManifestUnknown, "the bundle has the image %s for other platforms, not for %.80s", repo.name, m.missing)
	}
	if _, ok := repo.blobs[digest]; m == nil || !ok {
		return fail(http.StatusNotFound, codeManifestUnknown, "the bundle has no manifest %.200s of %s", digest, repo.name)
	}
	if m.size > maxManifest {
		return fail(http.StatusInternalServerError, codeUnknown, "manifest %s has %d bytes, more than the %d that are served", digest, m.size, maxManifest)
	}
	kind := m.mediaType
	if !mediaForm.MatchString(kind) {
		kind = bundle.MediaTypeManifest
	}
	w.Header().Set("Content-Type", kind)
	return s.send(w, r, m.blob, span{0, m.size})
}

func (s *Server) getBlob(w http.ResponseWriter, r *http.Request, repo *repository, digest string) *httpError {
	if err := checkDigest(digest); err != nil {
		return err
	}
	_, ok := repo.blobs[digest]
	if !ok {
		return fail(http.StatusNotFound, codeBlobUnknown, "the bundle has no blob %.200s of %s", digest, repo.name)
	}
	b := s.blobs[digest]
	part, ok := rangeOf(r, etag(digest), b.size)
	if !ok {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", b.size))
		return fail(http.StatusRequestedRangeNotSatisfiable, codeUnsupported, "blob %s has %d bytes, none in the range %.80q", digest, b.size, r.Header.Get("Range"))
	}
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Type", "application/octet-stream")
	return s.send(w, r, b, part)
}

func etag(digest string) string { return `"` + digest + `"` }

// send answers with the bytes of a part of a blob, all of them verified.
func (s *Server) send(w http.ResponseWriter, r *http.Request, b *blob, part span) *httpError {
	h := w.Header()
	h.Set("Docker-Content-Digest", b.digest)
	h.Set("ETag", etag(b.digest))
	h.Set("X-Content-Type-Options", "nosniff")
	if matches(r.Header.Get("If-None-Match"), etag(b.digest)) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	status := http.StatusOK
	if part.length != b.size {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.at, part.at+part.length-1, b.size))
	}
	if r.Method == http.MethodHead || part.length == 0 {
		h.Set("Content-Length", strconv.FormatInt(part.length, 10))
		return nil
	}
	buf, busy := s.acquire(r.Context())
	if busy != nil {
		h.Set("Retry-After", "5")
		return busy
	}
	c := &copier{s: s, w: w, control: http.NewResponseController(w), b: b, part: part, status: status, buf: buf}
	defer func() { s.slots <- c.buf }() // also if the copy panics
	return c.run(r.Context())
}

// acquire waits for a buffer, so that the memory for chunks is bounded.
func (s *Server) acquire(ctx context.Context) ([]byte, *httpError) {
	t := time.NewTimer(slotWait)
	defer t.Stop()
	select {
	case buf := <-s.slots:
		return buf, nil
	case <-ctx.Done():
	case <-t.C:
	}
	return nil, fail(http.StatusTooManyRequests, codeTooMany, "%d reads of the bundle run already", cap(s.slots))
}

// copier sends a part of a blob.
type copier struct {
	s       *Server
	w       http.ResponseWriter
	control *http.ResponseController
	b       *blob
	part    span
	status  int
	started bool
	buf     []byte
}

// run sends the part. An error before the first byte is an answer; after it the connection ends,
// so that the client cannot take what it has for the whole.
func (c *copier) run(ctx context.Context) *httpError {
	err := c.copy(ctx)
	if err == nil {
		c.b.setVerified(c.part.length == c.b.size)
		return nil
	}
	var gone *goneError
	if !errors.As(err, &gone) && ctx.Err() == nil {
		c.s.stats.damaged.Add(1)
		c.s.log.Error("failed to read blob", "digest", c.b.digest, "error", err)
	}
	if c.started {
		panic(http.ErrAbortHandler)
	}
	return fail(http.StatusInternalServerError, codeUnknown, "%v", err)
}

// goneError says that the client does not read any more.
type goneError struct{ error }

// copy reads the chunks of the part. The last chunk of a whole blob is sent after the digest of
// the blob is known. A part of a blob is sent after the whole blob was read once: a hostile chunk
// table may fit other bytes than the blob's.
func (c *copier) copy(ctx context.Context) error {
	h := c.b.file.Header()
	first, n := h.Chunks.OfBlob(c.b.index)
	whole := c.part.length == c.b.size
	if !whole && n > 1 {
		if err := c.verifyWhole(ctx, first, n); err != nil {
			return err
		}
	}
	size := h.Metadata.ChunkSize
	from, to := int(c.part.at/size), int((c.part.at+c.part.length-1)/size)
	sum := sha256.New()
	for i := from; i <= to; i++ {
		if err := c.read(ctx, first+i); err != nil {
			return err
		}
		if whole && n > 1 {
			sum.Write(c.buf)
			if got := bundle.FormatDigest([sha256.Size]byte(sum.Sum(nil))); i == to && got != c.b.digest {
				return c.mismatch(got)
			}
		}
		at := int64(i) * size
		if err := c.write(c.buf[max(0, c.part.at-at):min(int64(len(c.buf)), c.part.at+c.part.length-at)]); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) read(ctx context.Context, chunk int) error {
	if err := ctx.Err(); err != nil {
		return &goneError{err}
	}
	data, err := c.b.file.ReadChunk(chunk, c.buf[:0])
	if err != nil {
		return err
	}
	c.buf = data
	return nil
}

func (c *copier) mismatch(got string) error {
	return &bundle.CorruptError{Part: "chunk table", Digest: c.b.digest, Image: c.b.file.Header().UserOf(c.b.index), Offset: c.b.file.Header().BlobOffset(c.b.index),
		Found: "is not that of the blob: each chunk is as the table says, the whole blob has digest " + got}
}

// verifyWhole compares a blob with its digest, once.
func (c *copier) verifyWhole(ctx context.Context, first, n int) error {
	select {
	case c.b.checking <- struct{}{}:
		defer func() { <-c.b.checking }()
	case <-ctx.Done():
		return &goneError{ctx.Err()}
	}
	if c.b.isVerified() {
		return nil
	}
	sum := sha256.New()
	for i := range n {
		if err := c.read(ctx, first+i); err != nil {
			return err
		}
		sum.Write(c.buf)
	}
	if got := bundle.FormatDigest([sha256.Size]byte(sum.Sum(nil))); got != c.b.digest {
		return c.mismatch(got)
	}
	c.b.setVerified(true)
	return nil
}

func (b *blob) isVerified() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.verified
}

func (b *blob) setVerified(v bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verified = b.verified || v
}

// write sends verified bytes. A client has a time for each step, not for the whole: a layer may
// be large and a network slow.
func (c *copier) write(data []byte) error {
	if !c.started {
		c.w.Header().Set("Content-Length", strconv.FormatInt(c.part.length, 10))
		c.w.WriteHeader(c.status)
		c.started = true
	}
	for len(data) > 0 {
		step := data[:min(len(data), writeStep)]
		_ = c.control.SetWriteDeadline(time.Now().Add(writeTime)) // a writer of tests has no deadline
		n, err := c.w.Write(step)
		c.s.stats.sent.Add(int64(n))
		if err != nil {
			return &goneError{err}
		}
		data = data[len(step):]
	}
	return nil
}

// span is a part of a blob.
type span struct{ at, length int64 }

// rangeForm is one range. Others are ignored, as HTTP allows, and the whole blob is the answer.
var rangeForm = regexp.MustCompile(`^bytes=([0-9]{0,18})-([0-9]{0,18})$`)

// rangeOf returns what a request asks of a blob. ok is false if that is outside of it.
func rangeOf(r *http.Request, tag string, size int64) (part span, ok bool) {
	whole := span{0, size}
	m := rangeForm.FindStringSubmatch(strings.ReplaceAll(r.Header.Get("Range"), " ", ""))
	if only := r.Header.Get("If-Range"); m == nil || r.Method != http.MethodGet || only != "" && only != tag {
		return whole, true
	}
	from, fromErr := strconv.ParseInt(m[1], 10, 64)
	to, toErr := strconv.ParseInt(m[2], 10, 64)
	switch {
	case fromErr != nil && toErr != nil:
		return whole, true
	case fromErr != nil: // the last bytes
		n := min(to, size)
		return span{size - n, n}, n > 0
	case toErr != nil:
		to = size - 1
	case to < from:
		return whole, true
	}
	if from >= size {
		return span{}, false
	}
	return span{from, min(to, size-1) - from + 1}, true
}

// matches reports whether a list of tags, as If-None-Match has it, has one.
func matches(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}
