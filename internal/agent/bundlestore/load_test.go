package bundlestore

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func library(t *testing.T, dir string) *Library {
	t.Helper()
	l := OpenLibrary(dir, quiet(), statefile.Ignore)
	return l
}

func header(t *testing.T, raw []byte) *bundle.Header {
	t.Helper()
	f, err := bundlereader.Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return f.Header()
}

func all(h *bundle.Header) (out []int) {
	for n := range h.Chunks.Len() {
		out = append(out, n)
	}
	return out
}

// flaky is a medium whose bytes can change or go away.
type flaky struct {
	raw  []byte
	gone func(off int64) error
}

func (f *flaky) ReadAt(p []byte, off int64) (int, error) {
	if f.gone != nil {
		if err := f.gone(off); err != nil {
			return 0, err
		}
	}
	return bytes.NewReader(f.raw).ReadAt(p, off)
}

// What may happen to a stick while it is copied.
func TestCopy(t *testing.T) {
	good := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	swapped := bundletest.Bytes(t, bundletest.Spec{Name: "other", Images: []bundletest.Image{
		{Name: "registry.example/other:1", Group: bundle.GroupWorkload, Layers: [][]byte{bytes.Repeat([]byte("other"), 2000)}}}}, bundletest.Key(1))
	h := header(t, good)
	last := h.Chunks.Len() - 1
	for name, c := range map[string]struct {
		spoil   func(*flaky)
		missing int // chunks that must be missing afterwards, -1: all
		says    string
	}{
		"a good stick is copied":                          {func(*flaky) {}, 0, ""},
		"one bad chunk is passed over and reported":       {func(f *flaky) { f.raw[h.ChunkOffset(2)] ^= 1 }, 1, "1 chunks on the medium are damaged"},
		"one unreadable place is passed over":             {func(f *flaky) { f.gone = unreadable(h.ChunkOffset(1)) }, 1, "damaged"},
		"pulled out at once: it stops and says so":        {func(f *flaky) { f.gone = func(int64) error { return errors.New("no such device") } }, -1, "cannot be read any more"},
		"swapped for another bundle: nothing of it comes": {func(f *flaky) { f.raw = swapped }, -1, "swapped"},
		"cut off at the end":                              {func(f *flaky) { f.raw = f.raw[:h.ChunkOffset(last)] }, 1, "ends here"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flaky{raw: bytes.Clone(good)}
			file, err := bundlereader.Open(f, bundlereader.UnknownSize)
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(f)
			shelf, err := library(t, t.TempDir()).Add(h)
			if err != nil {
				t.Fatal(err)
			}
			var got int64
			err = Copy(t.Context(), file, shelf, all(h), func(n int64) { got += n })
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("got %v, want %q in it", err, c.says)
			}
			missing := 0
			for _, n := range all(h) {
				if !shelf.Has(n) {
					missing++
				}
			}
			if c.missing == -1 {
				c.missing = h.Chunks.Len()
			}
			if missing != c.missing {
				t.Fatalf("%d chunks are missing, want %d", missing, c.missing)
			}
			if missing == 0 && got != shelf.BytesHere(blobs(h)) {
				t.Fatalf("counted %d bytes", got)
			}
		})
	}
}

func blobs(h *bundle.Header) (out []int) {
	for i := range h.Metadata.Blobs {
		out = append(out, i)
	}
	return out
}

func unreadable(at int64) func(int64) error {
	return func(off int64) error {
		if off == at {
			return errors.New("input/output error")
		}
		return nil
	}
}

func TestLibrary(t *testing.T) {
	raw := bundletest.Bytes(t, bundletest.Tiny())
	h := header(t, raw)
	fill := func(t *testing.T, l *Library) *Shelf {
		t.Helper()
		s, err := l.Add(h)
		if err != nil {
			t.Fatal(err)
		}
		f, err := bundlereader.Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		if err := Copy(t.Context(), f, s, all(h), func(int64) {}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	t.Run("what was kept is there after a restart, a header that rotted is not", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, library(t, dir))
		again := library(t, dir)
		s := again.Shelf(h.Digest)
		if s == nil {
			t.Fatal("the header was lost")
		}
		for _, n := range all(h) {
			if data, err := s.Get(n); err != nil || int64(len(data)) != s.ChunkSize(n) {
				t.Fatalf("chunk %d: %v", n, err)
			}
		}
		for i := range h.Metadata.Blobs {
			if !s.HasBlob(i) {
				t.Fatalf("blob %d is not complete", i)
			}
		}
		file := filepath.Join(dir, "bundles", strings.TrimPrefix(h.Digest, "sha256:"), "header")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if library(t, dir).Shelf(h.Digest) != nil {
			t.Fatal("a rotten header is used")
		}
	})
	t.Run("peers see what is served, nothing else", func(t *testing.T) {
		l := library(t, t.TempDir())
		fill(t, l)
		if l.Served(h.Digest) != nil {
			t.Fatal("served before it was allowed")
		}
		l.Serve([]string{h.Digest})
		if l.Served(h.Digest) == nil {
			t.Fatal("not served")
		}
		l.Serve(nil)
		if l.Served(h.Digest) != nil {
			t.Fatal("still served")
		}
	})
	t.Run("garbage goes, what is kept and what is not ours stays", func(t *testing.T) {
		dir := t.TempDir()
		l := library(t, dir)
		fill(t, l)
		foreign := filepath.Join(dir, "blobs", "sha256", "notes.txt")
		if err := os.WriteFile(foreign, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		keep := h.Metadata.Blobs[0].Digest
		if err := l.Collect(map[string]bool{h.Digest: true}, map[string]bool{keep: true}); err != nil {
			t.Fatal(err)
		}
		have, _ := l.Blobs().List()
		if len(have) != 1 || l.Shelf(h.Digest) == nil {
			t.Fatalf("left: %v", have)
		}
		if err := l.Collect(nil, nil); err != nil {
			t.Fatal(err)
		}
		if have, _ := l.Blobs().List(); len(have) != 0 || l.Shelf(h.Digest) != nil {
			t.Fatalf("left: %v", have)
		}
		if _, err := os.Stat(foreign); err != nil {
			t.Fatal("a foreign file was removed")
		}
	})
	t.Run("killed around the header: it is there whole or not at all", func(t *testing.T) {
		for _, p := range []string{failpoint.HeaderFetched, failpoint.HeaderStored} {
			dir := t.TempDir()
			restore := failpoint.OnHit(func(n string) {
				if n == p {
					panic(p)
				}
			})
			func() {
				defer func() { _ = recover() }()
				_, _ = library(t, dir).Add(h)
			}()
			restore()
			if s := library(t, dir).Shelf(h.Digest); (s != nil) != (p == failpoint.HeaderStored) {
				t.Errorf("killed at %s: header there: %v", p, s != nil)
			}
		}
	})
}

func TestMediaSet(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stick")
	put := func(t *testing.T, raw []byte) []media.Medium {
		t.Helper()
		if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		m, err := media.Scan(media.Places{Sys: filepath.Join(dir, "none")}, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	raw := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	h := header(t, raw)
	policy := Policy{Approved: []string{h.Digest}, Refit: "9.0.0"}
	state := func(s *MediaSet) string {
		for _, m := range s.Describe(policy, func(string) Availability { return Availability{Missing: 5, Total: 10} }) {
			return m.State
		}
		return ""
	}
	var s MediaSet
	defer s.Close()
	if s.Scan(put(t, []byte("holiday pictures"))) || s.With(h.Digest) != nil || state(&s) != v1alpha1.MediumUnreadable {
		t.Fatalf("a medium without a bundle is %q", state(&s))
	}
	if !s.Scan(put(t, raw)) || s.With(h.Digest) == nil || state(&s) != v1alpha1.MediumCopying {
		t.Fatalf("a bundle came and is %q", state(&s))
	}
	s.Fail(s.With(h.Digest), io.ErrUnexpectedEOF)
	if s.With(h.Digest) != nil || state(&s) != v1alpha1.MediumUnreadable {
		t.Fatalf("failed, and is %q", state(&s))
	}
	if !s.Scan(put(t, raw)) || s.With(h.Digest) == nil {
		t.Fatal("plugged in anew it must be used again")
	}
	altered := bytes.Clone(raw)
	altered[h.BlobOffset(0)] ^= 1
	if !s.Scan(put(t, altered)) {
		t.Fatal("the altered bundle was not taken over")
	}
	if _, err := s.Reader(h).ReadChunk(h.Chunks.Len()-1, nil); err != nil || state(&s) != v1alpha1.MediumCopying {
		t.Fatalf("an intact chunk for another node: %v, %s", err, state(&s))
	}
	_, err := s.Reader(h).ReadChunk(0, nil)
	if got := s.Describe(policy, func(string) Availability { return Availability{All: true, Total: 10} })[0]; err == nil || got.State != v1alpha1.MediumUnreadable ||
		!strings.Contains(got.Message, "another node wants a part that cannot be read") || !strings.Contains(got.Message, "found sha256:") {
		t.Fatalf("a damaged chunk that another node wants: %v, %+v", err, got)
	}
	if s.With(h.Digest) == nil {
		t.Fatal("the intact rest must stay in use")
	}
	torn := bytes.Clone(raw)[:len(raw)-2000]
	s.Scan(put(t, torn))
	if got := s.Describe(policy, nil)[0]; got.State != v1alpha1.MediumUnreadable || !strings.Contains(got.Message, "not copied completely") {
		t.Fatalf("a torn file is %+v", got)
	}
	if !s.Scan(put(t, raw)) || !s.Scan(nil) || len(s.Describe(policy, nil)) != 0 {
		t.Fatal("pulled out, it must be gone")
	}
}
