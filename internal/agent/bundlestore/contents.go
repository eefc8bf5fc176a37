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
	// Label is the bundle's label if Err is nil.
	Label bundle.Label
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
		b := OnMedium{Name: text.CleanLine(f.Name()), Size: f.Size(), Err: f.Err}
		if b.Err == nil {
			b.Label, b.Err = f.Header.Label()
		}
		if b.Err == nil && b.Name != "" {
			b.Extents, b.Err = f.Extents(left)
			left -= len(b.Extents)
		}
		c.Bundles = append(c.Bundles, b)
	}
	return c, nil
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
	return a
}

func answerForBundle(b OnMedium) answeredBundle {
	a := answeredBundle{Name: b.Name, Size: b.Size}
	switch {
	case b.Err == nil:
		a.Label, a.Extents = &b.Label, encodeExtents(b.Extents)
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
	if len(a.Bundles) > maxOnMedium || len(a.Partitions) > 256 || a.Files < 0 {
		return Contents{}, fmt.Errorf("%w: answer of its reader: %d bundles, %d partitions, %d files", errContents, len(a.Bundles), len(a.Partitions), a.Files)
	}
	c.Partitions = a.Partitions
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
	case a.Label != nil && b.Name == "":
		b.Label, b.Size = *a.Label, bundlereader.UnknownSize
	case a.Label != nil:
		var err error
		b.Label = *a.Label
		b.Extents, err = decodeExtents(a.Extents, a.Size, extents)
		return b, err
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
