package bundlestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	// Contents finds bundles that are not approved and reads their labels; nil does it in this
	// process.
	Contents ContentsReader
	// Deltas reads deltas and makes blobs of them; nil does it in this process.
	Deltas DeltaReader
	// Changed is called when a bundle came or went after Scan returned. May be nil.
	Changed func()
	// Edges are pieces of a bundle in parts that this node keeps. May be nil.
	Edges func(digest string) []bundlereader.Piece
	// Known returns the header of a bundle that this node stores, nil for others. May be nil.
	Known func(digest string) *bundle.Header

	mu      sync.Mutex
	all     map[string]*inserted
	current map[string]media.Medium // what the last scan saw
	busy    map[string]time.Time    // media that are being read, since when
	joined  map[string]*Plugged     // bundles in parts, by digest
	splits  map[string]bundle.Part  // a part of each bundle in parts that was plugged in
	// open and wait are for tests; zero values are the real ones.
	open func(media.Medium) (Handle, int64, error)
	wait time.Duration
}

// With finds a plugged-in bundle that can be read and has not failed; nil if there is none. A whole
// one is preferred to parts.
func (s *MediaSet) With(digest string) *Plugged {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		for _, p := range m.bundles {
			if p.opened != nil && p.failed == nil && p.Header().Digest == digest {
				return p
			}
		}
	}
	if p := s.joinParts(digest); p != nil && p.failed == nil {
		return p
	}
	return nil
}

// Reader reads a bundle that is plugged in and allowed, nil if there is none. h is its header.
// It returns errors after the medium is pulled. The status of the medium names the first chunk that it
// could not read: other nodes ask for parts that this node does not read for itself.
func (s *MediaSet) Reader(h *bundle.Header) ChunkReader {
	p := s.With(h.Digest)
	if p == nil {
		return nil
	}
	f, err := p.Reader(h)
	if err != nil {
		s.Fail(p, err)
		return nil
	}
	return &sharedReader{File: f, set: s, of: p}
}

// sharedReader reads a bundle for other nodes.
type sharedReader struct {
	*bundlereader.File
	set *MediaSet
	of  *Plugged
}

// ReadChunk records what cannot be read. The rest is still read.
func (r *sharedReader) ReadChunk(n int, buf []byte) ([]byte, error) {
	b, err := r.File.ReadChunk(n, buf)
	if err != nil {
		r.set.mu.Lock()
		defer r.set.mu.Unlock()
		if r.of.damaged == nil {
			r.of.damaged = err
		}
	}
	return b, err
}

// Fail records that a bundle could not be copied completely; it is not used again until its
// medium is plugged in anew.
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
	s.all, s.current, s.joined = nil, nil, nil
}

// Scan takes over the media that are plugged in now. changed says that a bundle came or
// went. It waits a while for new media. A medium that hangs is waited for no longer, is
// named by Describe, and is taken over when it answers. Disks are read before their partitions:
// a partition that the disk's own reader has searched is not read again.
func (s *MediaSet) Scan(now []media.Medium) (changed bool) {
	changed = s.removeUnplugged(now)
	scan := &scan{changed: changed, onLate: s.Changed}
	s.readMedia(scan, slices.DeleteFunc(slices.Clone(now), isPartition))
	s.readMedia(scan, slices.DeleteFunc(slices.Clone(now), func(m media.Medium) bool { return !isPartition(m) || s.isSearched(m) }))
	return scan.end()
}

func isPartition(m media.Medium) bool { return m.Disk != "" }

// readMedia reads media at the same time, and waits for them for a while.
func (s *MediaSet) readMedia(scan *scan, list []media.Medium) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, job := range s.jobs(list) {
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
}

// isSearched reports whether a partition was searched through its disk, or will be. It removes
// what was known of such a partition.
func (s *MediaSet) isSearched(m media.Medium) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, here := s.current[m.Disk]; !here {
		return false
	}
	if _, busy := s.busy[m.Disk]; busy {
		return true
	}
	disk := s.all[m.Disk]
	if disk == nil || !slices.Contains(disk.contents.Partitions, m.Partition) {
		return false
	}
	s.removeMedium(m.Path)
	return true
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
	have   *inserted
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
		if _, busy := s.busy[m.Path]; busy || have != nil && have.Key == m.Key && !have.isReadable() && (have.retry.IsZero() || time.Now().Before(have.retry)) {
			continue
		}
		s.busy[m.Path] = time.Now()
		out = append(out, job{m, have})
	}
	return out
}

// readMedium reads a medium and takes over the result.
func (s *MediaSet) readMedium(scan *scan, j job) {
	var fresh *inserted
	if have := j.have; have == nil || have.Key != j.medium.Key || !have.isReadable() || !s.hasSameBundles(have) {
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
		changed = s.removeMedium(j.medium.Path) || fresh.isReadable()
		if s.all == nil {
			s.all = map[string]*inserted{}
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
	return p.isReadable()
}

// probe reads what is on a medium.
func (s *MediaSet) probe(m media.Medium) *inserted {
	ctx, cancel := context.WithTimeout(context.Background(), contentsTime)
	defer cancel()
	read := s.Contents
	if read == nil {
		read = LocalContents
	}
	return insert(ctx, m, s.opener(), read)
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

// hasSameBundles reports whether a medium still has the same bundles: not every kernel reports
// that a device was written.
func (s *MediaSet) hasSameBundles(m *inserted) bool {
	f, _, err := s.opener()(m.Medium)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(m.bundles, func(p *Plugged) bool { return p.opened != nil && !p.opened.isOn(f) }) &&
		!slices.ContainsFunc(m.deltas, func(d *PluggedDelta) bool { return !d.isOn(f) }) &&
		!slices.ContainsFunc(m.parts, func(p *pluggedPart) bool { return !p.isOn(f) })
}

// Availability is how much of a bundle this node has.
type Availability struct {
	// Missing bytes of what it needs, of Total; Total is 0 if the bundle's header is not
	// stored or nothing of it is needed.
	Missing, Total int64
	// All: it has every byte, needed here or not.
	All bool
	// Header of the bundle, nil if it is not stored, and the chunks that this node needs and does
	// not have.
	Header *bundle.Header
	Wanted []int
}

// Describe returns all media for the node's status, the most important first: copied ones,
// allowed ones, those that wait for a person, the rest. here returns how much of a bundle is
// in the node's own store.
func (s *MediaSet) Describe(policy Policy, here func(digest string) Availability) []v1alpha1.Medium {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*ranked
	for path, m := range s.all {
		if since, busy := s.busy[path]; busy && time.Since(since) >= s.answerTimeout() {
			continue // below
		}
		all = append(all, m.describe(policy, here)...)
		all = append(all, s.describeDeltas(m, policy, here)...)
		all = append(all, s.describeParts(m, policy, here)...)
		_, withDisk := s.current[m.Disk]
		if text := m.describeMissing(); text != "" && !withDisk {
			all = append(all, &ranked{Unreadable(path, errors.New(text)), rankMissing})
		}
	}
	for path, since := range s.busy {
		if _, here := s.current[path]; here && time.Since(since) >= s.answerTimeout() {
			u := Unreadable(path, fmt.Errorf("reading it takes longer than %s: wait; if this stays, pull it, or exclude it with devices in the agent's configuration", s.answerTimeout()))
			all = append(all, &ranked{u, rank(u, false)})
		}
	}
	slices.SortFunc(all, func(a, b *ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Device, b.Device))
	})
	out := make([]v1alpha1.Medium, len(all))
	for i, r := range all {
		out[i] = r.Medium
	}
	return out
}

// ranked is a line of the status. Lines are sorted as pointers: a sort of these values is 18 kB of
// the agent's program.
type ranked struct {
	v1alpha1.Medium
	rank int
}

// rankMissing is the rank of media without a bundle, the last one.
const rankMissing = 4

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
