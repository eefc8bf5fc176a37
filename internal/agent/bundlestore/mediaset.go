package bundlestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

const (
	// answerTimeout is how long a device may take before the status reports that it does
	// not answer. Other devices do not wait for it.
	answerTimeout = 5 * time.Second
	// retryAfter is the pause after a device could not be read: it may be a bad contact.
	// A device that was read and has no bundle is not read again.
	retryAfter = time.Minute
)

// MediaSet is what is plugged into this node. Safe for concurrent use. Each medium is
// read by a goroutine of its own.
type MediaSet struct {
	// Label reads the label of a bundle that is not approved; nil reads it in this
	// process.
	Label LabelReader
	// Changed is called when a bundle came or went after Scan returned. May be nil.
	Changed func()

	mu      sync.Mutex
	all     map[string]*Plugged
	current map[string]media.Medium // what the last scan saw
	busy    map[string]time.Time    // media that are being read, since when
	// open and wait are for tests; zero values are the real ones.
	open func(media.Medium) (Handle, int64, error)
	wait time.Duration
}

// Plugged is a medium that is plugged in.
type Plugged struct {
	media.Medium
	// opened is nil if no bundle is on it, or it cannot be read (err).
	opened *Opened
	err    error
	retry  time.Time // when it is read again after an error of reading
	// failed is why its bundle could not be copied to the end.
	failed error
}

// Reader reads the medium's chunks. It parses the whole header: call it only after the
// bundle is allowed.
func (p *Plugged) Reader() (*bundlereader.File, error) { return p.opened.readHeader() }

// Header is the content of the label: enough to decide whether the bundle is allowed, and no
// more.
func (p *Plugged) Header() *bundle.Header { return p.opened.header }

// RawHeader reads the bytes of the header from the medium, as many as the label says, and
// parses nothing.
func (p *Plugged) RawHeader() ([]byte, error) {
	raw := make([]byte, p.Header().HeaderSize())
	if _, err := p.opened.handle.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("header on %s: %w", p.Path, err)
	}
	return raw, nil
}

func (p *Plugged) close() {
	if p.opened != nil {
		_ = p.opened.Close() // opened for reading only
	}
}

// With finds a medium that has the bundle and has not failed; nil if there is none.
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

// Reader reads a bundle that is plugged in and allowed, nil if there is none. It returns
// errors after the medium is pulled.
func (s *MediaSet) Reader(digest string) ChunkReader {
	p := s.With(digest)
	if p == nil {
		return nil
	}
	f, err := p.Reader()
	if err != nil {
		s.Fail(p, err)
		return nil
	}
	return f
}

// Fail records that a medium could not be copied completely; it is not used again until it
// is plugged in anew.
func (s *MediaSet) Fail(p *Plugged, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.failed = err
}

// Close closes all media.
func (s *MediaSet) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		p.close()
	}
	s.all, s.current = nil, nil
}

// Scan takes over the media that are plugged in now. changed says that a bundle came or
// went. It waits a while for new media. A medium that hangs is waited for no longer, is
// named by Describe, and is taken over when it answers.
func (s *MediaSet) Scan(now []media.Medium) (changed bool) {
	changed = s.removeUnplugged(now)
	scan := &scan{changed: changed, onLate: s.Changed}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, job := range s.jobs(now) {
		wg.Go(func() { s.readMedium(scan, job) })
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(s.answerTimeout()):
	}
	return scan.end()
}

func (s *MediaSet) answerTimeout() time.Duration {
	if s.wait > 0 {
		return s.wait
	}
	return answerTimeout
}

// scan collects the result of one Scan.
type scan struct {
	mu      sync.Mutex
	changed bool
	ended   bool
	onLate  func()
}

func (c *scan) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.changed
}

// recordChange records a change; after the end of the scan it calls onLate.
func (c *scan) recordChange() {
	c.mu.Lock()
	c.changed = true
	tell := c.ended && c.onLate != nil
	c.mu.Unlock()
	if tell {
		c.onLate()
	}
}

// removeUnplugged removes the media that are not plugged in any more.
func (s *MediaSet) removeUnplugged(now []media.Medium) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = map[string]media.Medium{}
	for _, m := range now {
		s.current[m.Path] = m
	}
	for path := range s.all {
		if _, here := s.current[path]; !here {
			changed = s.removeMedium(path) || changed
		}
	}
	return changed
}

// job is a medium to read; have is its earlier state.
type job struct {
	medium media.Medium
	have   *Plugged
}

// jobs are the media to read: new ones, those that changed, and those with a bundle, which
// are compared. A medium that is being read is not read twice.
func (s *MediaSet) jobs(now []media.Medium) (out []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == nil {
		s.busy = map[string]time.Time{}
	}
	for _, m := range now {
		have := s.all[m.Path]
		if _, busy := s.busy[m.Path]; busy || have != nil && have.Key == m.Key && have.opened == nil && (have.retry.IsZero() || time.Now().Before(have.retry)) {
			continue
		}
		s.busy[m.Path] = time.Now()
		out = append(out, job{m, have})
	}
	return out
}

// readMedium reads a medium and takes over the result.
func (s *MediaSet) readMedium(scan *scan, j job) {
	var fresh *Plugged
	if have := j.have; have == nil || have.Key != j.medium.Key || have.opened == nil || !s.hasSameBundle(have) {
		fresh = s.probe(j.medium)
	}
	s.mu.Lock()
	delete(s.busy, j.medium.Path)
	changed := false
	switch _, here := s.current[j.medium.Path]; {
	case fresh == nil:
	case !here: // it was pulled meanwhile
		fresh.close()
	default:
		changed = s.removeMedium(j.medium.Path) || fresh.opened != nil
		if s.all == nil {
			s.all = map[string]*Plugged{}
		}
		s.all[j.medium.Path] = fresh
	}
	s.mu.Unlock()
	if changed {
		scan.recordChange()
	}
}

// removeMedium closes and removes a medium; bundle reports whether it had a bundle.
func (s *MediaSet) removeMedium(path string) (bundle bool) {
	p := s.all[path]
	if p == nil {
		return false
	}
	p.close()
	delete(s.all, path)
	return p.opened != nil
}

// probe reads the label of what is on a medium.
func (s *MediaSet) probe(m media.Medium) *Plugged {
	p := &Plugged{Medium: m}
	ctx, cancel := context.WithTimeout(context.Background(), labelTime)
	defer cancel()
	o, err := openMedium(ctx, m, s.opener(), s.Label)
	switch {
	case err == nil:
		p.opened = o
	case !errors.Is(err, bundle.ErrNotBundle):
		p.err = err
		if !isContentError(err) {
			p.retry = time.Now().Add(retryAfter)
		}
	}
	return p
}

func (s *MediaSet) opener() func(media.Medium) (Handle, int64, error) {
	if s.open != nil {
		return s.open
	}
	return func(m media.Medium) (Handle, int64, error) {
		f, size, err := media.Open(m)
		return f, size, err
	}
}

// isContentError reports whether the medium was readable, and its content is invalid.
func isContentError(err error) bool {
	var c *bundle.CorruptError
	var n *bundle.TooNewError
	return errors.As(err, &n) || errors.As(err, &c) && c.Err == nil
}

// comparedBytes is how much of a header is read again at every scan.
const comparedBytes = 64 << 10

// hasSameBundle reports whether a medium still has the same bundle: not every kernel reports
// that a device was written.
func (s *MediaSet) hasSameBundle(p *Plugged) bool {
	f, _, err := s.opener()(p.Medium)
	if err != nil {
		return false
	}
	defer f.Close()
	got := make([]byte, len(p.opened.begin))
	_, err = f.ReadAt(got, 0)
	return err == nil && bytes.Equal(got, p.opened.begin)
}

// Availability is how much of a bundle this node has.
type Availability struct {
	// Missing bytes of what it needs, of Total; Total is 0 if the bundle's header is not
	// stored or nothing of it is needed.
	Missing, Total int64
	// All: it has every byte, needed here or not.
	All bool
}

// Describe returns all media for the node's status, the most important first: copied ones,
// allowed ones, those that wait for a person, the rest. here returns how much of a bundle is
// in the node's own store.
func (s *MediaSet) Describe(policy Policy, here func(digest string) Availability) []v1alpha1.Medium {
	s.mu.Lock()
	defer s.mu.Unlock()
	type ranked struct {
		v1alpha1.Medium
		rank int
	}
	var all []ranked
	for path, p := range s.all {
		since, busy := s.busy[path]
		switch {
		case busy && time.Since(since) >= s.answerTimeout(): // below
		case p.opened != nil:
			d := policy.Decide(p.Header())
			m := p.describe(d, here)
			all = append(all, ranked{m, rank(m, d.Allowed)})
		case p.err != nil && startsLikeBundle(p.err):
			m := Unreadable(p.Medium, p.err)
			all = append(all, ranked{m, rank(m, false)})
		}
	}
	for path, since := range s.busy {
		if m, here := s.current[path]; here && time.Since(since) >= s.answerTimeout() {
			u := Unreadable(m, fmt.Errorf("it has not answered for %s or longer: pull it, or exclude it with devices in the agent's configuration", s.answerTimeout()))
			all = append(all, ranked{u, rank(u, false)})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Device, b.Device))
	})
	out := make([]v1alpha1.Medium, len(all))
	for i, r := range all {
		out[i] = r.Medium
	}
	return out
}

// rank orders media in the status, which has a limited number of them.
func rank(m v1alpha1.Medium, allowed bool) int {
	switch m.State {
	case v1alpha1.MediumCopying, v1alpha1.MediumCopied:
		return 0
	case v1alpha1.MediumFound:
		if allowed {
			return 1
		}
		return 2
	}
	if allowed { // it failed
		return 1
	}
	return 3
}

// startsLikeBundle reports whether an unreadable medium starts like a bundle; any other
// unreadable disk does not concern refit.
func startsLikeBundle(err error) bool {
	var n *bundle.TooNewError
	var c *bundle.CorruptError
	return errors.As(err, &n) || errors.As(err, &c) && c.Offset > 0 || errors.Is(err, errLabel)
}

func (p *Plugged) describe(d bundle.Decision, here func(string) Availability) v1alpha1.Medium {
	f := Finding(p.Medium, p.Header(), d)
	if !d.Allowed {
		return f
	}
	if p.failed != nil {
		f.State, f.Message = v1alpha1.MediumUnreadable, p.failed.Error()
		return truncateMessage(f)
	}
	switch h := here(f.Digest); {
	case h.Total == 0:
		f.Message = fmt.Sprintf("allowed by %s; this node needs nothing of it yet", d.By)
	case h.Missing > 0:
		f.State, f.Message = v1alpha1.MediumCopying, "do not pull it yet"
	case h.All:
		f.State, f.Message = v1alpha1.MediumCopied, "all of it is on this node's disk; the medium may be pulled"
	default:
		f.State, f.Message = v1alpha1.MediumCopied, "this node has all it needs of it, and serves the rest to other nodes; the medium may be pulled when every node has what it needs"
	}
	return f
}
