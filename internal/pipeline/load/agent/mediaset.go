package agent

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// MediaSet is what is plugged into this node. Safe for concurrent use.
type MediaSet struct {
	mu  sync.Mutex
	all map[string]*Plugged
	// probe is for tests; nil means the real one.
	probe func(media.Medium) *Plugged
}

// Plugged is a medium that is plugged in.
type Plugged struct {
	media.Medium
	// opened is nil if no bundle is on it, or it cannot be read (err).
	opened *Opened
	err    error
	// failed is why its bundle could not be copied to the end.
	failed error
}

// Reader reads the medium's chunks.
func (p *Plugged) Reader() ChunkReader { return p.opened.File }

// Header of its bundle.
func (p *Plugged) Header() *bundle.Header { return p.opened.File.Header() }

func (p *Plugged) close() {
	if p.opened != nil {
		_ = p.opened.Close() // opened for reading only
	}
}

// With finds a medium that has the bundle and has not failed; nil if none.
func (s *MediaSet) With(digest string) *Plugged {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if p.opened != nil && p.failed == nil && p.Header().Digest == digest {
			return p
		}
	}
	return nil
}

// Reader reads a bundle that is plugged in, nil if none is; it ends in errors when the
// medium is pulled.
func (s *MediaSet) Reader(digest string) ChunkReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if p.opened != nil && p.failed == nil && p.Header().Digest == digest {
			return p.opened.File
		}
	}
	return nil
}

// Fail notes that a medium could not be copied to the end; it is not used again
// until it is plugged in anew.
func (s *MediaSet) Fail(p *Plugged, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.failed = err
}

// Close lets go of all media.
func (s *MediaSet) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		p.close()
	}
	s.all = nil
}

// Scan takes over what is plugged in now. changed says that a bundle came or
// went. One Scan at a time; what it reads it reads without the lock, since a disk
// that hangs is read for minutes.
func (s *MediaSet) Scan(now []media.Medium) (changed bool) {
	seen, fresh := s.lookAt(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*Plugged{}
	}
	for path, p := range fresh {
		changed = s.drop(path) || changed
		s.all[path] = p
		changed = changed || p.opened != nil
	}
	for path := range s.all {
		if !seen[path] {
			changed = s.drop(path) || changed
		}
	}
	return changed
}

// lookAt reads what is not known yet, or is not what it was.
func (s *MediaSet) lookAt(now []media.Medium) (seen map[string]bool, fresh map[string]*Plugged) {
	s.mu.Lock()
	before := maps.Clone(s.all)
	s.mu.Unlock()
	seen, fresh = map[string]bool{}, map[string]*Plugged{}
	for _, m := range now {
		seen[m.Path] = true
		if have := before[m.Path]; have == nil || have.Key != m.Key || !have.same() {
			fresh[m.Path] = s.look(m)
		}
	}
	return seen, fresh
}

// drop lets go of a medium; it had a bundle or not.
func (s *MediaSet) drop(path string) (bundle bool) {
	p := s.all[path]
	if p == nil {
		return false
	}
	p.close()
	delete(s.all, path)
	return p.opened != nil
}

func (s *MediaSet) look(m media.Medium) *Plugged {
	if s.probe != nil {
		return s.probe(m)
	}
	return probe(m)
}

// probe reads the header of what is on a medium.
func probe(m media.Medium) *Plugged {
	p := &Plugged{Medium: m}
	o, err := OpenMedium(m)
	switch {
	case err == nil:
		p.opened = o
	case !errors.Is(err, bundle.ErrNotBundle):
		p.err = err
	}
	return p
}

// sameBytes is how much of a header is read again at every scan.
const sameBytes = 64 << 10

// same reports whether a medium with a bundle still has that bundle. One
// without is probed again if it is a device: it may have been written
// meanwhile; a file that changes has another key.
func (p *Plugged) same() bool {
	if p.opened == nil {
		return !p.Device
	}
	f, _, err := media.Open(p.Medium)
	if err != nil {
		return false
	}
	defer f.Close()
	want := p.Header().Raw
	want = want[:min(len(want), sameBytes)]
	got := make([]byte, len(want))
	_, err = f.ReadAt(got, 0)
	return err == nil && bytes.Equal(got, want)
}

// Here is how much of a bundle this node has.
type Here struct {
	// Missing bytes of what it needs, of Total; Total is 0 if the bundle's header is
	// not kept or nothing of it is needed.
	Missing, Total int64
	// All: it has every byte, needed here or not.
	All bool
}

// Describe says what the node's status says of all media. here tells how much of a
// bundle is in the node's own store.
func (s *MediaSet) Describe(policy Policy, here func(digest string) Here) map[string]v1alpha1.Medium {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]v1alpha1.Medium{}
	for path, p := range s.all {
		switch {
		case p.opened != nil:
			out[path] = p.describe(policy, here)
		case p.err != nil && mayBeBundle(p.err):
			out[path] = Unreadable(p.Medium, p.err)
		}
	}
	return out
}

// mayBeBundle: a disk that cannot be read at all is no business of ours, one
// that begins like a bundle is.
func mayBeBundle(err error) bool {
	var c *bundle.CorruptError
	var n *bundle.TooNewError
	return errors.As(err, &n) || errors.As(err, &c) && c.Offset > 0
}

func (p *Plugged) describe(policy Policy, here func(string) Here) v1alpha1.Medium {
	d := policy.Decide(p.Header())
	f := Finding(p.Medium, p.Header(), d)
	if !d.Allowed {
		return f
	}
	if p.failed != nil {
		f.State, f.Message = v1alpha1.MediumUnreadable, p.failed.Error()
		return cut(f)
	}
	switch h := here(f.Digest); {
	case h.Total == 0:
		f.Message = fmt.Sprintf("allowed by %s; nothing of it is to be held yet", d.By)
	case h.Missing > 0:
		f.State, f.Message = v1alpha1.MediumCopying, "do not pull it yet"
	case h.All:
		f.State, f.Message = v1alpha1.MediumCopied, "all of it is on this node's disk; the medium may be pulled"
	default:
		f.State, f.Message = v1alpha1.MediumCopied, "this node has all it needs of it, and reads the rest to other nodes; the medium may be pulled when every node holds what it needs"
	}
	return f
}
