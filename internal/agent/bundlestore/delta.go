package bundlestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/confined"
	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// describeDelta says what a delta on a medium says of itself. It runs without privileges.
func describeDelta(f bundlereader.Found) OnMedium {
	var b OnMedium
	base, target, err := bundledelta.Summary(f.Reader(), f.Size())
	if err == nil {
		b.Base = base
		b.Label, err = target.Label()
	}
	var damaged *bundledelta.DamagedError
	if errors.As(err, &damaged) {
		err = &bundle.CorruptError{Part: "delta", Found: damaged.Error()}
	}
	b.Err = err
	return b
}

// PluggedDelta is a delta bundle on a medium that is plugged in.
type PluggedDelta struct {
	// Path of the medium, and after # that of the file on it.
	Path   string
	place  OnMedium
	medium Handle
	header *bundle.Header // what the label says of the bundle that the delta makes
	begin  []byte         // the first bytes, which have the digests of all others

	reading sync.Mutex
	parsed  *bundledelta.Delta // reading guards it

	mu sync.Mutex
	// failed is why the delta is not used any more, missing that content of the base is not at hand.
	failed  error
	missing bool
}

// deltaBegin is how many bytes of a delta have the digests of the others.
const deltaBegin = 1024

// openDelta opens a delta that the reader of the medium found.
func openDelta(f Handle, path string, b OnMedium) (*PluggedDelta, error) {
	d := &PluggedDelta{Path: path, place: b, medium: f, begin: make([]byte, deltaBegin)}
	var err error
	if d.header, err = b.Label.Header(); err != nil {
		return nil, err
	}
	_, err = b.on(f).ReadAt(d.begin, 0)
	return d, err
}

// isOn reports whether the delta is still where it was.
func (d *PluggedDelta) isOn(f Handle) bool {
	got := make([]byte, len(d.begin))
	_, err := d.place.on(f).ReadAt(got, 0)
	return err == nil && bytes.Equal(got, d.begin)
}

// Header is the content of the label of the bundle that the delta makes: enough to decide whether
// it is allowed.
func (d *PluggedDelta) Header() *bundle.Header { return d.header }

// Base is the digest of the bundle that the delta needs.
func (d *PluggedDelta) Base() string { return d.place.Base }

// Fail records that the delta cannot be used; it is not used again until its medium is plugged in
// anew.
func (d *PluggedDelta) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
}

// SetMissing records whether content of the base is missing. It returns whether that became so.
func (d *PluggedDelta) SetMissing(missing bool) (came bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	came = missing && !d.missing
	d.missing = missing
	return came
}

// Missing reports whether content of the base is missing.
func (d *PluggedDelta) Missing() bool {
	_, missing := d.state()
	return missing
}

// state returns why the delta is not used any more, and whether content of its base is missing.
func (d *PluggedDelta) state() (failed error, missing bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed, d.missing
}

const (
	// headTime bounds the unpacking of the head of a delta.
	headTime = time.Minute
	// maxPlan bounds what a head has next to the header of the bundle, in bytes: some hundred for each
	// blob.
	maxPlan = 8 << 20
)

// readHead returns the head of the delta, unpacked by a process without privileges and not verified.
func (d *PluggedDelta) readHead(ctx context.Context, read DeltaReader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, headTime)
	defer cancel()
	out := &boundedBuffer{most: int(d.header.HeaderSize()) + maxPlan}
	if err := read(ctx, DeltaJob{Delta: placeOf(d.place), medium: d.medium}, bytes.NewReader(nil), out); err != nil {
		return nil, fmt.Errorf("delta on %s: %w", d.Path, err)
	}
	return out.kept.Bytes(), nil
}

// boundedBuffer keeps what is written, up to a limit. The buffer is not embedded: its ReadFrom would
// be used instead of Write, and knows no limit.
type boundedBuffer struct {
	kept bytes.Buffer
	most int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > b.most {
		return 0, fmt.Errorf("more than %d bytes", b.most)
	}
	return b.kept.Write(p)
}

// RawDeltaHeader returns the bytes of the header of the bundle that a delta makes, and parses
// nothing of them.
func (s *MediaSet) RawDeltaHeader(ctx context.Context, d *PluggedDelta) ([]byte, error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	if d.parsed != nil {
		return d.parsed.Target().Raw, nil
	}
	head, err := d.readHead(ctx, s.deltaReader())
	if err != nil {
		return nil, err
	}
	return bundledelta.HeaderInHead(head)
}

// open parses the head of the delta. The digest of its label was approved or signed by then, and is
// compared before anything is decoded.
func (d *PluggedDelta) open(ctx context.Context, read DeltaReader) (*bundledelta.Delta, error) {
	d.reading.Lock()
	defer d.reading.Unlock()
	if d.parsed != nil {
		return d.parsed, nil
	}
	head, err := d.readHead(ctx, read)
	if err != nil {
		return nil, err
	}
	if d.parsed, err = bundledelta.ParseHead(d.header.Digest, head); err != nil {
		d.parsed = nil
		return nil, fmt.Errorf("delta on %s: %w", d.Path, err)
	}
	return d.parsed, nil
}

// Delta finds a plugged-in delta that makes a bundle and has not failed; nil if there is none.
func (s *MediaSet) Delta(digest string) *PluggedDelta {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		for _, d := range m.deltas {
			if failed, _ := d.state(); failed == nil && d.header.Digest == digest {
				return d
			}
		}
	}
	return nil
}

// deltaReader returns what reads deltas.
func (s *MediaSet) deltaReader() DeltaReader {
	if s.Deltas != nil {
		return s.Deltas
	}
	return LocalDelta
}

// describeDeltas returns the deltas on a medium for the node's status. The caller holds the lock.
func (s *MediaSet) describeDeltas(in *inserted, policy Policy, here func(string) Availability) (out []*ranked) {
	for _, d := range in.deltas {
		decision := policy.Decide(d.header)
		m := d.describe(decision, here, s.describeBase(d.Base()))
		out = append(out, &ranked{truncateMessage(m), rank(m, decision.Allowed)})
	}
	return out
}

// describeBase names the base of a delta, and where it is.
func (s *MediaSet) describeBase(digest string) string {
	if s.Known != nil {
		if h := s.Known(digest); h != nil {
			return NameBundle(h) + ", which this node has loaded"
		}
	}
	if h := s.labelOf(digest); h != nil {
		return NameBundle(h) + ", which is on a medium in this node"
	}
	return fmt.Sprintf("bundle %s, which is not on this node: plug in its medium too", digest)
}

// NameBase names the base of a delta for people: with name and version if they are known here.
func (s *MediaSet) NameBase(d *PluggedDelta) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Known != nil {
		if h := s.Known(d.Base()); h != nil {
			return NameBundle(h)
		}
	}
	if h := s.labelOf(d.Base()); h != nil {
		return NameBundle(h)
	}
	return "bundle " + d.Base()
}

// labelOf returns what a plugged-in bundle says of itself, nil if it is not plugged in.
func (s *MediaSet) labelOf(digest string) *bundle.Header {
	for _, m := range s.all {
		for _, p := range m.bundles {
			if p.opened != nil && p.Header().Digest == digest {
				return p.Header()
			}
		}
		for _, h := range m.labels {
			if h.Digest == digest {
				return h
			}
		}
	}
	return nil
}

// NameBundle names a bundle for people.
func NameBundle(h *bundle.Header) string {
	return fmt.Sprintf("bundle %s %s (%s)", h.Metadata.Name, h.Metadata.Version, h.Digest)
}

// describe returns the delta for the node's status.
func (d *PluggedDelta) describe(decision bundle.Decision, here func(string) Availability, base string) v1alpha1.Medium {
	m := Finding(d.Path, d.header, decision)
	needs := "it is a delta and needs the base " + base
	failed, missing := d.state()
	if !decision.Allowed {
		m.Message += "; " + needs
		return m
	}
	if failed != nil {
		m.State, m.Message = v1alpha1.MediumUnreadable, failed.Error()
		return m
	}
	switch h := here(m.Digest); {
	case h.Total == 0:
		m.Message = fmt.Sprintf("allowed by %s; this node needs nothing of it yet; %s", decision.By, needs)
	case h.Missing > 0 && missing:
		m.Message = fmt.Sprintf("allowed by %s; content of its base is missing; %s", decision.By, needs)
	case h.Missing > 0:
		m.State, m.Message = v1alpha1.MediumCopying, "do not pull it yet; "+needs
	case h.All:
		m.State, m.Message = v1alpha1.MediumCopied, "all of the bundle is restored on this node's disk; the medium may be pulled"
	default:
		m.State, m.Message = v1alpha1.MediumCopied, "this node has restored all it needs; the medium may be pulled when every node has what it needs"
	}
	return m
}

// DeltaJob is what a process without privileges does with a delta: it makes one blob, or unpacks the
// head.
type DeltaJob struct {
	// Step makes a blob; nil unpacks the head.
	Step *bundledelta.Step `json:"step,omitempty"`
	// Delta is where the delta is on its medium.
	Delta filePlace `json:"delta"`
	// Base is a base that this process reads itself; nil: it reads blobs of the base from its input.
	Base *baseJob `json:"base,omitempty"`

	medium, baseMedium Handle
	spool              *os.File // nil if the step needs none
}

// baseJob is a base on a medium whose header is not approved, so that only a process without
// privileges parses it.
type baseJob struct {
	Digest string    `json:"digest"`
	At     filePlace `json:"at"`
	// Blob is the digest of the blob to make.
	Blob string `json:"blob"`
}

// filePlace is a file on a medium; without extents the medium begins with it.
type filePlace struct {
	Size    int64  `json:"size,omitempty"`
	Extents []byte `json:"extents,omitempty"`
}

func placeOf(b OnMedium) filePlace {
	if b.Name == "" {
		return filePlace{}
	}
	return filePlace{b.Size, encodeExtents(b.Extents)}
}

// on returns the bytes of the file on an open medium.
func (p filePlace) on(f io.ReaderAt) (io.ReaderAt, error) {
	if p.Extents == nil {
		return f, nil
	}
	var list []filesystem.Extent
	list, err := decodeExtents(p.Extents, p.Size, maxExtents)
	return newExtentReader(f, list), err
}

// DeltaReader does a job. It reads the blobs of the base from in, each after its size in 8 bytes,
// and writes what the job makes to out. An error of out ends it.
type DeltaReader func(ctx context.Context, job DeltaJob, in io.Reader, out io.Writer) error

// LocalDelta does a job in this process.
func LocalDelta(ctx context.Context, job DeltaJob, in io.Reader, out io.Writer) error {
	delta, err := job.Delta.on(job.medium)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 64<<10)
	switch {
	case job.Step == nil:
		err = bundledelta.UnpackHead(w, delta)
	case job.Base != nil:
		err = job.runWithBase(ctx, delta, w)
	default:
		base := &framedBlobs{in: in}
		err = job.Step.Run(ctx, delta, base.next, job.spool, w)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// runWithBase runs the step with the base on its medium.
func (job DeltaJob) runWithBase(ctx context.Context, delta io.ReaderAt, w io.Writer) error {
	at, err := job.Base.At.on(job.baseMedium)
	if err != nil {
		return err
	}
	base, err := bundlereader.OpenOf(job.Base.Digest, at, bundlereader.UnknownSize)
	if err != nil {
		return fmt.Errorf("%w: %w", errBase, err)
	}
	return job.Step.RunWithBase(ctx, delta, base, func(r io.Reader) io.Reader { return baseReader{r} }, job.Base.Blob, job.spool, w)
}

// baseReader marks the errors of reading the base.
type baseReader struct{ r io.Reader }

func (b baseReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errBase, err)
	}
	return n, err
}

// framedBlobs reads blobs one after the other, each after its size.
type framedBlobs struct {
	in   io.Reader
	blob io.LimitedReader
}

func (f *framedBlobs) next(int) (io.Reader, error) {
	if _, err := io.Copy(io.Discard, &f.blob); err != nil {
		return nil, err
	}
	var size [8]byte
	if _, err := io.ReadFull(f.in, size[:]); err != nil {
		return nil, err
	}
	f.blob = io.LimitedReader{R: f.in, N: int64(binary.BigEndian.Uint64(size[:]))}
	return &f.blob, nil
}

// DeltaCommand is the argument that makes the agent's program do a job without privileges: it calls
// ReadDelta and ends.
const DeltaCommand = "read-delta"

// UnprivilegedDelta does a job in a process without privileges. It is bounded in memory, its spool
// in size, and the caller bounds its output and its time.
func UnprivilegedDelta(ctx context.Context, job DeltaJob, in io.Reader, out io.Writer) error {
	line, err := json.Marshal(job)
	if err != nil {
		return err
	}
	media := []Handle{job.medium}
	if job.Base != nil {
		media = append(media, job.baseMedium)
	}
	var files []*os.File
	for _, m := range media {
		f, ok := m.(*os.File)
		if !ok {
			return fmt.Errorf("%w: it is not in a file", errContents)
		}
		files = append(files, f)
	}
	if job.spool != nil {
		files = append(files, job.spool)
	}
	return confined.StreamUnprivileged(ctx, files, io.MultiReader(bytes.NewReader(append(line, '\n')), in), out, DeltaCommand)
}

// ReadDelta is the process without privileges: it reads a job, drops its privileges, limits its
// memory, and does the job.
func ReadDelta(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, 64<<10)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var job DeltaJob
	if err := json.Unmarshal(line, &job); err != nil {
		return err
	}
	count, spool := 1, int64(0)
	if job.Base != nil {
		count++
	}
	if job.Step != nil && job.Step.UsesSpool() {
		count, spool = count+1, job.Step.SpoolSize()
	}
	files, err := confined.EnterUnprivilegedStream(count, spool)
	if err != nil {
		return err
	}
	job.medium = files[0]
	if job.Base != nil {
		job.baseMedium = files[1]
	}
	if job.Step != nil && job.Step.UsesSpool() {
		job.spool = files[len(files)-1]
	}
	return LocalDelta(ctx, job, in, stdout)
}

// DeltaBundles returns the bundles of plugged-in deltas that make one of some bundles: what they make,
// and what they need.
func (s *MediaSet) DeltaBundles(digests []string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		for _, d := range m.deltas {
			if failed, _ := d.state(); failed == nil && slices.Contains(digests, d.header.Digest) {
				out = append(out, d.Base(), d.header.Digest)
			}
		}
	}
	return out
}
