package bundlestore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// PartOnMedium is a part of a bundle on a medium.
type PartOnMedium struct {
	Part bundle.Part
	// Name and Extents are as those of OnMedium.
	Name    string
	Extents []filesystem.Extent
}

// answeredPart is a part in the answer of the unprivileged reader.
type answeredPart struct {
	Name    string      `json:"name,omitempty"`
	Extents []byte      `json:"extents,omitempty"`
	Part    bundle.Part `json:"part"`
}

// onMedium validates a part that the reader found.
func (a answeredPart) onMedium(extents int) (PartOnMedium, error) {
	p, err := bundle.ParsePart(a.Part.Header())
	if err != nil {
		return PartOnMedium{}, err
	}
	out := PartOnMedium{Part: p, Name: printable(a.Name, maxNameOnMedium)}
	if out.Name == "" && a.Name != "" {
		out.Name = "?"
	}
	if out.Name != "" {
		out.Extents, err = decodeExtents(a.Extents, bundle.PartHeaderSize+p.Length, extents)
	}
	return out, err
}

// partsOnMedium validates the parts that the reader found, of at most extents extents.
func partsOnMedium(list []answeredPart, extents int) (out []PartOnMedium, err error) {
	for _, a := range list {
		p, err := a.onMedium(extents)
		if err != nil {
			return nil, err
		}
		extents -= len(p.Extents)
		out = append(out, p)
	}
	return out, nil
}

// on returns the bytes of the part on an open medium, from its header on.
func (p PartOnMedium) on(f Handle) io.ReaderAt {
	return OnMedium{Name: p.Name, Extents: p.Extents}.on(f)
}

// pluggedPart is a part on a medium that is plugged in.
type pluggedPart struct {
	PartOnMedium
	// path of the medium, and after # that of the file on it.
	path  string
	file  io.ReaderAt
	begin []byte // its header
}

// openPart opens a part that the reader of the medium found.
func openPart(f Handle, path string, on PartOnMedium) (*pluggedPart, error) {
	p := &pluggedPart{PartOnMedium: on, path: path, file: on.on(f), begin: on.Part.Header()}
	if !p.isOn(f) {
		return nil, fmt.Errorf("%s on %s has another header than its reader found", on.Part, path)
	}
	return p, nil
}

// isOn reports whether the part is still where it was.
func (p *pluggedPart) isOn(f Handle) bool {
	got := make([]byte, len(p.begin))
	_, err := p.on(f).ReadAt(got, 0)
	return err == nil && bytes.Equal(got, p.begin)
}

// partReader is a bundle in parts that are plugged in, on one medium or several.
type partReader struct {
	digest string
	parts  []*pluggedPart
	// label is what the bundle says of itself, nil if the part with its header is not plugged in.
	label *bundle.Header
	// edges are pieces of parts that this node keeps.
	edges func(digest string) []bundlereader.Piece

	mu    sync.Mutex
	file  *bundlereader.File
	known int // edges of file
}

// pieces returns the plugged-in parts of a bundle of size bytes, 0 for any size.
func (r *partReader) pieces(size int64) (out []bundlereader.Piece) {
	for _, p := range r.parts {
		if size == 0 || p.Part.Size == size {
			out = append(out, bundlereader.Piece{Offset: p.Part.Offset, Length: p.Part.Length, From: p.file, At: bundle.PartHeaderSize, Name: fmt.Sprintf("%s (%s)", p.Part, p.path)})
		}
	}
	return out
}

// open returns the bundle with a header that is known; nil: the header is read from the parts. Its
// digest was approved or signed by then.
func (r *partReader) open(h *bundle.Header) (*bundlereader.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h == nil && r.file != nil {
		h = r.file.Header()
	}
	if h == nil {
		f, err := bundlereader.OpenOf(r.digest, bundlereader.Join(r.label.FileSize(), r.pieces(r.label.FileSize())), r.label.FileSize())
		if err != nil {
			return nil, err
		}
		h = f.Header()
	}
	var edges []bundlereader.Piece
	if r.edges != nil {
		edges = r.edges(r.digest)
	}
	if r.file != nil && r.known == len(edges) {
		return r.file, nil
	}
	pieces := r.pieces(h.FileSize())
	if len(pieces) == 0 {
		return nil, fmt.Errorf("%s is of a bundle of %d bytes, bundle %s has %d: copy it again", r.parts[0].Part, r.parts[0].Part.Size, h.Digest, h.FileSize())
	}
	r.file, r.known = bundlereader.Join(h.FileSize(), append(pieces, edges...)).Open(h), len(edges)
	return r.file, nil
}

// rawHeader reads the bytes of the header, as many as the label says.
func (r *partReader) rawHeader() ([]byte, error) {
	raw := make([]byte, r.label.HeaderSize())
	_, err := bundlereader.Join(r.label.FileSize(), r.pieces(r.label.FileSize())).ReadAt(raw, 0)
	return raw, err
}

// maxSplits is of how many bundles in parts a MediaSet remembers how they were split.
const maxSplits = 64

// joinParts returns the bundle in the parts that are plugged in, nil if there are none. The
// caller holds the lock.
func (s *MediaSet) joinParts(digest string) *Plugged {
	var parts []*pluggedPart
	var label *bundle.Header
	for _, path := range slices.Sorted(maps.Keys(s.all)) {
		m := s.all[path]
		for _, p := range m.parts {
			if p.Part.Bundle == digest {
				parts = append(parts, p)
			}
		}
		if i := slices.IndexFunc(m.labels, func(h *bundle.Header) bool { return h.Digest == digest }); i >= 0 && label == nil {
			label = m.labels[i]
		}
	}
	if len(parts) == 0 {
		delete(s.joined, digest)
		return nil
	}
	if p := s.joined[digest]; p != nil && slices.Equal(p.inParts.parts, parts) {
		return p
	}
	if s.joined == nil || len(s.splits) >= maxSplits {
		s.joined, s.splits = map[string]*Plugged{}, map[string]bundle.Part{}
	}
	p := &Plugged{Path: parts[0].path, inParts: &partReader{digest: digest, parts: parts, label: label, edges: s.Edges}}
	s.joined[digest], s.splits[digest] = p, parts[0].Part
	return p
}

// MissingParts returns the numbers of the parts with bytes of chunks of a bundle that are not
// plugged in, of how many; none if no part of the bundle was plugged in.
func (s *MediaSet) MissingParts(h *bundle.Header, chunks []int) (numbers []int, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missingParts(h, chunks)
}

func (s *MediaSet) missingParts(h *bundle.Header, chunks []int) (numbers []int, count int) {
	p := s.joinParts(h.Digest)
	split, seen := s.splits[h.Digest]
	if !seen || split.Size != h.FileSize() {
		return nil, 0
	}
	var pieces []bundlereader.Piece
	if p != nil && p.failed == nil {
		pieces = p.inParts.pieces(h.FileSize())
	}
	if s.Edges != nil {
		pieces = append(pieces, s.Edges(h.Digest)...)
	}
	here := bundlereader.Join(h.FileSize(), pieces)
	missing := map[int]bool{}
	for _, n := range chunks {
		at, size := bundlereader.ChunkRange(h, n)
		for k := split.Containing(at); k <= split.Containing(at+size-1); k++ {
			from, length := split.Range(k)
			begin, end := max(at, from), min(at+size, from+length)
			if !missing[k] && !here.Covers(begin, end-begin) {
				missing[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(missing)), split.Count
}

// describeParts returns the parts on a medium for the node's status, one line for each bundle. The
// caller holds the lock.
func (s *MediaSet) describeParts(in *inserted, policy Policy, here func(string) Availability) (out []*ranked) {
	var done []string
	for _, p := range in.parts {
		if digest := p.Part.Bundle; !slices.Contains(done, digest) {
			done = append(done, digest)
			m, allowed := s.describePartsOf(in, s.joinParts(digest), policy, here)
			out = append(out, &ranked{m, rank(m, allowed)})
		}
	}
	return out
}

func (s *MediaSet) describePartsOf(in *inserted, p *Plugged, policy Policy, here func(string) Availability) (v1alpha1.Medium, bool) {
	r := p.inParts
	var mine []*pluggedPart
	var numbers []int
	for _, part := range in.parts {
		if part.Part.Bundle == r.digest {
			mine, numbers = append(mine, part), append(numbers, part.Part.Number)
		}
	}
	path := in.Path
	if len(mine) == 1 {
		path = mine[0].path
	}
	names := bundle.PartNumbers(numbers, mine[0].Part.Count)
	have := here(r.digest)
	h := cmp.Or(r.label, have.Header, &bundle.Header{Digest: r.digest, Metadata: &bundle.Metadata{}})
	d := policy.Decide(h)
	f := Finding(path, h, d)
	f.State, f.Message = s.describeState(f, p, mine, d, have, names)
	if d.Allowed && have.Header != nil {
		if missing, count := s.missingParts(have.Header, have.Wanted); len(missing) > 0 {
			f.Message += ". Missing: " + bundle.PartNumbers(missing, count) + ". Insert the medium that has " + oneOr(missing, "it", "them")
		}
	}
	if len(in.contents.Problems) > 0 {
		f.Message += "; " + strings.Join(in.contents.Problems, "; ")
	}
	return truncateMessage(f), d.Allowed
}

// describeState returns the state of the parts of a bundle that are mine, with a message. f is what the
// decision d says of the bundle.
func (s *MediaSet) describeState(f v1alpha1.Medium, p *Plugged, mine []*pluggedPart, d bundle.Decision, have Availability, names string) (state, message string) {
	r, err := p.inParts, cmp.Or(p.failed, p.damaged)
	switch {
	case !d.Allowed && f.Name == "":
		return f.State, names + " of bundle " + r.digest + "; the part with its name and signatures is on no medium in this node"
	case !d.Allowed:
		return f.State, names + ": " + f.Message
	case err != nil:
		return v1alpha1.MediumUnreadable, names + ": " + err.Error()
	case have.Header == nil && r.label == nil:
		return f.State, names + "; plug in the medium with part 1 first, or at the same time: it has the bundle's header"
	case have.Total == 0:
		return f.State, fmt.Sprintf("%s, allowed by %s; this node needs nothing of it yet", names, d.By)
	case s.mustStay(p, mine, have):
		return v1alpha1.MediumCopying, names + "; do not pull it yet"
	}
	return v1alpha1.MediumCopied, "this node has all it needs of " + names + "; the medium may be pulled when every node has what it needs"
}

func oneOr(list []int, one, many string) string {
	if len(list) == 1 {
		return one
	}
	return many
}

// mustStay reports whether parts have bytes of chunks that this node wants and did not copy yet.
func (s *MediaSet) mustStay(p *Plugged, mine []*pluggedPart, have Availability) bool {
	if have.Header == nil {
		return true
	}
	f, err := p.inParts.open(have.Header)
	if err != nil {
		return false
	}
	var edges []bundlereader.Piece
	if s.Edges != nil {
		edges = s.Edges(p.inParts.digest)
	}
	kept := bundlereader.Join(have.Header.FileSize(), edges)
	return slices.ContainsFunc(have.Wanted, func(n int) bool {
		at, size := bundlereader.ChunkRange(have.Header, n)
		return slices.ContainsFunc(mine, func(part *pluggedPart) bool {
			begin, end := max(at, part.Part.Offset), min(at+size, part.Part.Offset+part.Part.Length)
			return begin < end && (f.Covers(n) || !kept.Covers(begin, end-begin))
		})
	})
}

// errHeaderElsewhere says that the header of a bundle in parts is not on the media in this node.
var errHeaderElsewhere = errors.New("the part with the bundle's header is on no medium in this node")
