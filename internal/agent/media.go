package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/host/media"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	load "github.com/refit-dev/refit/internal/pipeline/load/agent"
)

// scanEvery is how often media are looked at without any event: events can be
// lost, and a file or a device written in place makes none.
const scanEvery = 10 * time.Second

// medium is one that is plugged in.
type medium struct {
	media.Medium
	// opened is nil if no bundle is on it, or it cannot be read (err).
	opened *load.Opened
	err    error
	// failed is why its bundle could not be copied to the end.
	failed error
}

// mediaSet is what is plugged in.
type mediaSet struct {
	mu  sync.Mutex
	all map[string]*medium
}

// with finds a medium that has a bundle and can still be read.
func (s *mediaSet) with(digest string) *medium {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		if m.opened != nil && m.failed == nil && m.opened.File.Header().Digest == digest {
			return m
		}
	}
	return nil
}

func (s *mediaSet) fail(m *medium, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.failed = err
}

func (a *Agent) watchMedia(ctx context.Context) {
	if !a.conf.NoDevices {
		go func() {
			if err := media.Events(ctx, func() { kick(a.kickMedia) }); err != nil && ctx.Err() == nil {
				a.log.Warn("plugged-in devices are noticed by looking now and then only", "because", err)
			}
		}()
	}
	each(ctx, a.kickMedia, scanEvery, func(ctx context.Context) {
		a.scan()
		a.describeMedia()
		// A device appears in /dev a moment after the kernel's event.
		sleep(ctx, 100*time.Millisecond)
	})
	a.media.mu.Lock()
	defer a.media.mu.Unlock()
	for _, m := range a.media.all {
		m.close()
	}
}

func (m *medium) close() {
	if m.opened != nil {
		_ = m.opened.Close() // opened for reading only
		m.opened = nil
	}
}

// scan brings the set up to date and wakes the bundles loop if it changed.
func (a *Agent) scan() {
	places := media.Places{}
	if a.conf.NoDevices {
		places.Sys = "/nonexistent"
	}
	now, err := media.Scan(places, a.conf.Media)
	if err != nil {
		a.log.Warn("media cannot be listed", "because", err)
	}
	s := &a.media
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*medium{}
	}
	changed := false
	seen := map[string]bool{}
	for _, m := range now {
		seen[m.Path] = true
		have := s.all[m.Path]
		if have != nil && have.Key == m.Key && have.same() {
			continue
		}
		if have != nil {
			have.close()
		}
		fresh := probe(m)
		if have == nil || have.Key != fresh.Key || fresh.opened != nil || fresh.err != nil {
			changed = changed || fresh.opened != nil
			s.all[m.Path] = fresh
		}
	}
	for path, m := range s.all {
		if !seen[path] {
			changed = changed || m.opened != nil
			m.close()
			delete(s.all, path)
		}
	}
	if changed {
		kick(a.kickBundles)
	}
}

// probe reads the header of what is on a medium.
func probe(m media.Medium) *medium {
	out := &medium{Medium: m}
	o, err := load.OpenMedium(m)
	switch {
	case err == nil:
		out.opened = o
	case !errors.Is(err, bundle.ErrNotBundle):
		out.err = err
	}
	return out
}

// same reports whether a medium with a bundle still has that bundle; one
// without is probed again, it may have been written meanwhile.
func (m *medium) same() bool {
	if m.opened == nil {
		return m.Key != "" && !m.Device && m.err == nil // a file that changes has another key
	}
	f, _, err := media.Open(m.Medium)
	if err != nil {
		return false
	}
	defer f.Close()
	want := m.opened.File.Header().Raw
	want = want[:min(len(want), 64<<10)]
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil {
		return false
	}
	return bytes.Equal(got, want)
}

// describeMedia says in the status what is plugged in.
func (a *Agent) describeMedia() {
	out := map[string]v1alpha1.Medium{}
	a.media.mu.Lock()
	for path, m := range a.media.all {
		switch {
		case m.opened != nil:
			out[path] = a.describe(m)
		case m.err != nil && mayBeBundle(m.err):
			out[path] = load.Unreadable(m.Medium, m.err)
		}
	}
	a.media.mu.Unlock()
	a.update(func(s *state) { s.media = out })
}

// mayBeBundle: a disk that cannot be read at all is no business of ours, one
// that begins like a bundle is.
func mayBeBundle(err error) bool {
	var c *bundle.CorruptError
	var n *bundle.TooNewError
	return errors.As(err, &n) || errors.As(err, &c) && c.Offset > 0
}

func (a *Agent) describe(m *medium) v1alpha1.Medium {
	w := a.wanted()
	if w == nil {
		w = &want{}
	}
	h := m.opened.File.Header()
	d := w.policy().Decide(h)
	f := load.Finding(m.Medium, h, d)
	switch shelf := a.library.Shelf(h.Digest); {
	case !d.Allowed:
	case m.failed != nil:
		f.State, f.Message = v1alpha1.MediumUnreadable, cutText(m.failed.Error(), 1024)
	case shelf == nil:
		f.Message = fmt.Sprintf("allowed by %s", d.By)
	default:
		missing, total := a.missing(shelf, w)
		switch {
		case total == 0:
			f.Message = fmt.Sprintf("allowed by %s; nothing of it is to be held yet", d.By)
		case missing > 0:
			f.State = v1alpha1.MediumCopying
		default:
			f.State, f.Message = v1alpha1.MediumCopied, "this node has all it needs of it; the medium may be pulled"
		}
	}
	return f
}
