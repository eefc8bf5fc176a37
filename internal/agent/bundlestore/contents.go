package bundlestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/refit-dev/refit/internal/agent/host/confined"
	"github.com/refit-dev/refit/internal/filesystem"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// Handle is an open medium.
type Handle interface {
	io.ReaderAt
	io.Closer
}

// Contents is what is on a medium: bundles, and what was seen where there are none. The texts are
// the medium's own: without control characters, and of bounded length.
type Contents struct {
	Bundles []OnMedium
	// Parts are those of bundles in parts, Labels what these bundles say of themselves, where the
	// parts on the medium have the header.
	Parts  []PartOnMedium
	Labels []bundle.Label
	// FileSystems are those that were searched, Partitions the numbers of their partitions.
	FileSystems []string
	Partitions  []int
	// Files is how many files were checked, More that there are others.
	Files int
	More  bool
	// Problems are why something was not searched.
	Problems []string
	// Unreadable is the error of the device, empty if it could be read.
	Unreadable string
}

// OnMedium is a bundle on a medium.
type OnMedium struct {
	// Name is its path in the file system, after PARTITION: if there are partitions; empty for a
	// bundle that starts with the first byte of the medium.
	Name string
	// Size in bytes of the file; it is not known without a file system.
	Size int64
	// Extents are where the file is on the medium.
	Extents []filesystem.Extent
	// Label is the bundle's label if Err is nil; of a delta that of the bundle that it makes.
	Label bundle.Label
	// Base is the digest of the bundle that a delta needs, empty for a bundle.
	Base string
	// Err is why the bundle cannot be read.
	Err error
}

// ContentsReader finds the bundles on a medium and reads their labels.
type ContentsReader func(ctx context.Context, from Handle) (Contents, error)

const (
	// contentsTime bounds the reading of one medium: many files on a slow one.
	contentsTime = 30 * time.Second
	// searchTime is when the search ends by itself and reports what it has found.
	searchTime = 20 * time.Second
	// maxAnswer bounds what the process that reads a medium may answer.
	maxAnswer = 4 << 20
	// maxOnMedium is how many bundles of a medium count, and maxTexts how many texts of a kind.
	maxOnMedium = 20
	maxTexts    = 20
)

// errContents says that reading a medium failed; it says nothing about the medium's content.
var errContents = errors.New("the medium could not be read")

// ContentsCommand is the argument that makes the agent's program an unprivileged reader:
// it calls ReadContents and ends.
const ContentsCommand = "read-medium"

// answer is what the unprivileged reader writes.
type answer struct {
	Bundles     []answeredBundle `json:"bundles,omitempty"`
	Parts       []answeredPart   `json:"parts,omitempty"`
	Labels      []bundle.Label   `json:"labels,omitempty"`
	FileSystems []string         `json:"fileSystems,omitempty"`
	Partitions  []int            `json:"partitions,omitempty"`
	Files       int              `json:"files,omitempty"`
	More        bool             `json:"more,omitempty"`
	Problems    []string         `json:"problems,omitempty"`
	Unreadable  string           `json:"unreadable,omitempty"`
}

// answeredBundle has one of Label, TooNew, Corrupt and Unreadable.
type answeredBundle struct {
	Name    string               `json:"name,omitempty"`
	Size    int64                `json:"size,omitempty"`
	Extents []byte               `json:"extents,omitempty"`
	Label   *bundle.Label        `json:"label,omitempty"`
	Base    string               `json:"base,omitempty"`
	TooNew  *bundle.TooNewError  `json:"tooNew,omitempty"`
	Corrupt *bundle.CorruptError `json:"corrupt,omitempty"`
	// Unreadable is the read error that is the cause of Corrupt, or the whole reason.
	Unreadable string `json:"unreadable,omitempty"`
}

// LocalContents reads a medium in this process.
func LocalContents(ctx context.Context, from Handle) (Contents, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	s := bundlereader.Search(ctx, from, sizeOf(from))
	c := Contents{FileSystems: s.FileSystems, Partitions: s.Partitions, Files: s.Files, More: s.More, Problems: s.Problems}
	if s.Err != nil {
		c.Unreadable = s.Err.Error()
	}
	left := maxExtents
	for _, f := range s.Found {
		b := OnMedium{Err: f.Err}
		if b.Err == nil {
			b.Label, b.Err = f.Header.Label()
		}
		left -= c.addFile(f, b, left)
	}
	for _, f := range s.Deltas {
		left -= c.addFile(f, describeDelta(f), left)
	}
	c.addParts(s, left)
	return c, nil
}

// addFile adds a file of a medium with what is known of it, and returns how many extents it has, at
// most left.
func (c *Contents) addFile(f bundlereader.Found, b OnMedium, left int) (extents int) {
	b.Name, b.Size = text.CleanLine(f.Name()), f.Size()
	if b.Err == nil && b.Name != "" {
		b.Extents, b.Err = f.Extents(left)
	}
	if len(c.Bundles) < maxOnMedium {
		c.Bundles = append(c.Bundles, b)
	}
	return len(b.Extents)
}

// addParts adds the parts that a survey found, with at most left extents.
func (c *Contents) addParts(s bundlereader.Survey, left int) {
	for _, f := range s.Parts {
		p := PartOnMedium{Part: f.Part, Name: text.CleanLine(f.File.Name())}
		if p.Name != "" {
			var err error
			if p.Extents, err = f.File.Extents(left); err != nil {
				c.Problems = append(c.Problems, text.CleanLine(fmt.Sprintf("%s (%s): %v", f.Part, p.Name, err)))
				continue
			}
			left -= len(p.Extents)
		}
		c.Parts = append(c.Parts, p)
	}
	for _, h := range s.Headers {
		if l, err := h.Label(); err == nil {
			c.Labels = append(c.Labels, l)
		}
	}
}

// sizeOf returns the size of an open medium in bytes, 0 if it is not known.
func sizeOf(from Handle) int64 {
	var size int64
	switch m := from.(type) {
	case io.Seeker: // a block device says its size in no other way
		if end, err := m.Seek(0, io.SeekEnd); err == nil {
			size = end
		}
	case interface{ Size() int64 }:
		size = m.Size()
	}
	return size
}

// ReadContents is the unprivileged reader: it drops its privileges and limits its memory, reads
// its input and writes the answer.
func ReadContents(ctx context.Context, w io.Writer) error {
	in, err := confined.EnterUnprivileged()
	if err != nil {
		return err
	}
	c, err := LocalContents(ctx, in)
	if err != nil {
		return err
	}
	b, err := json.Marshal(answerFor(c))
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func answerFor(c Contents) answer {
	a := answer{FileSystems: c.FileSystems, Partitions: c.Partitions, Files: c.Files, More: c.More, Problems: c.Problems, Unreadable: c.Unreadable}
	for _, b := range c.Bundles {
		a.Bundles = append(a.Bundles, answerForBundle(b))
	}
	for _, p := range c.Parts {
		a.Parts = append(a.Parts, answeredPart{p.Name, encodeExtents(p.Extents), p.Part})
	}
	a.Labels = c.Labels
	return a
}

func answerForBundle(b OnMedium) answeredBundle {
	a := answeredBundle{Name: b.Name, Size: b.Size}
	switch {
	case b.Err == nil:
		a.Label, a.Base, a.Extents = &b.Label, b.Base, encodeExtents(b.Extents)
	case errors.As(b.Err, &a.TooNew):
	case errors.As(b.Err, &a.Corrupt):
		c := *a.Corrupt
		if a.Corrupt = &c; c.Err != nil {
			a.Unreadable, c.Err = c.Err.Error(), nil
		}
	default:
		a.Unreadable = b.Err.Error()
	}
	return a
}

// UnprivilegedContents reads a medium in a process without privileges: file systems, headers. For
// any content of the medium, this process only decodes an answer of at most 4 MiB, and validates
// every field in it.
func UnprivilegedContents(ctx context.Context, from Handle) (Contents, error) {
	f, ok := from.(*os.File)
	if !ok {
		return Contents{}, fmt.Errorf("%w: it is not in a file", errContents)
	}
	b, err := confined.RunUnprivileged(ctx, f, maxAnswer, ContentsCommand)
	if err != nil {
		return Contents{}, fmt.Errorf("%w: %w", errContents, err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return Contents{}, fmt.Errorf("%w: answer of its reader: %w", errContents, err)
	}
	return a.contents()
}

// contents validates what the reader answered: the medium may have taken it over.
func (a answer) contents() (Contents, error) {
	c := Contents{FileSystems: printableTexts(a.FileSystems), Files: a.Files, More: a.More, Problems: printableTexts(a.Problems), Unreadable: printable(a.Unreadable, 200)}
	if len(a.Bundles) > maxOnMedium || len(a.Labels) > maxOnMedium || len(a.Parts) > bundle.MaxParts || len(a.Partitions) > 256 || a.Files < 0 {
		return Contents{}, fmt.Errorf("%w: answer of its reader: %d bundles, %d parts, %d partitions, %d files", errContents, len(a.Bundles), len(a.Parts), len(a.Partitions), a.Files)
	}
	c.Partitions, c.Labels = a.Partitions, a.Labels
	left := maxExtents
	for _, b := range a.Bundles {
		found, err := b.onMedium(left)
		if err != nil {
			return Contents{}, fmt.Errorf("%w: answer of its reader: %w", errContents, err)
		}
		if left -= len(found.Extents); found.Name == "" && len(a.Bundles) > 1 {
			return Contents{}, fmt.Errorf("%w: answer of its reader: several bundles without a name", errContents)
		}
		c.Bundles = append(c.Bundles, found)
	}
	var err error
	if c.Parts, err = partsOnMedium(a.Parts, left); err != nil {
		return Contents{}, fmt.Errorf("%w: answer of its reader: %w", errContents, err)
	}
	return c, nil
}

// maxNameOnMedium bounds the path of a bundle in its file system, in bytes.
const maxNameOnMedium = 180

func (a answeredBundle) onMedium(extents int) (OnMedium, error) {
	b := OnMedium{Name: printable(a.Name, maxNameOnMedium), Size: a.Size}
	if b.Name == "" && a.Name != "" {
		b.Name = "?"
	}
	switch {
	case a.Label != nil:
		return a.withLabel(b, extents)
	case a.TooNew != nil && bundle.ValidDigest(a.TooNew.Digest):
		a.TooNew.MinRefit = printable(a.TooNew.MinRefit, 80)
		b.Err = a.TooNew
	case a.Corrupt != nil:
		c := &bundle.CorruptError{Part: printable(a.Corrupt.Part, 120), Digest: printable(a.Corrupt.Digest, 80), Offset: a.Corrupt.Offset, Length: a.Corrupt.Length, Found: printable(a.Corrupt.Found, 600)}
		if a.Unreadable != "" {
			c.Err = errors.New(printable(a.Unreadable, 200))
		}
		b.Err = c
	default:
		b.Err = fmt.Errorf("%w: %s", errContents, printable(a.Unreadable, 200))
	}
	return b, nil
}

// withLabel adds the label of a bundle or a delta, and where it is.
func (a answeredBundle) withLabel(b OnMedium, extents int) (OnMedium, error) {
	if a.Base != "" && !bundle.ValidDigest(a.Base) {
		return OnMedium{}, errors.New("the base of a delta is no digest")
	}
	b.Label, b.Base = *a.Label, a.Base
	if b.Name == "" {
		b.Size = bundlereader.UnknownSize
		return b, nil
	}
	var err error
	b.Extents, err = decodeExtents(a.Extents, a.Size, extents)
	return b, err
}

func printableTexts(list []string) (out []string) {
	for _, s := range list[:min(len(list), maxTexts)] {
		out = append(out, printable(s, 300))
	}
	return out
}

// printable returns at most most bytes of a text, without control characters.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
	return text.Truncate(s, most)
}
