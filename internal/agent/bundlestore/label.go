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
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/text"
)

// Handle is an open medium.
type Handle interface {
	io.ReaderAt
	io.Closer
}

// LabelReader reads the label of the bundle on a medium.
type LabelReader func(ctx context.Context, from Handle) (bundle.Label, error)

const (
	// labelTime bounds the reading of one label: a header of 64 MiB from a slow medium.
	labelTime = 30 * time.Second
	// maxAnswer bounds what the process that reads it may answer.
	maxAnswer = 64 << 10
)

// errLabel says that reading the label failed; it says nothing about the medium's content.
var errLabel = errors.New("the header of the bundle could not be read")

// LabelCommand is the argument that makes the agent's program an unprivileged reader:
// it calls ReadLabel and ends.
const LabelCommand = "read-label"

// answer is what the unprivileged reader writes: one of the members.
type answer struct {
	Label     *bundle.Label        `json:"label,omitempty"`
	NotBundle bool                 `json:"notBundle,omitempty"`
	TooNew    *bundle.TooNewError  `json:"tooNew,omitempty"`
	Corrupt   *bundle.CorruptError `json:"corrupt,omitempty"`
	// Unreadable is the read error that is the cause of Corrupt, or the whole reason.
	Unreadable string `json:"unreadable,omitempty"`
}

// LocalLabel reads a label in this process.
func LocalLabel(_ context.Context, from Handle) (bundle.Label, error) {
	h, err := bundlereader.Summary(from)
	if err != nil {
		return bundle.Label{}, err
	}
	return h.Label()
}

// ReadLabel is the unprivileged reader: it drops its privileges and limits its memory, reads
// its input and writes the answer.
func ReadLabel(ctx context.Context, w io.Writer) error {
	in, err := confined.EnterUnprivileged()
	if err != nil {
		return err
	}
	l, err := LocalLabel(ctx, in)
	b, err := json.Marshal(answerFor(l, err))
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func answerFor(l bundle.Label, err error) (a answer) {
	switch {
	case err == nil:
		a.Label = &l
	case errors.Is(err, bundle.ErrNotBundle):
		a.NotBundle = true
	case errors.As(err, &a.TooNew):
	case errors.As(err, &a.Corrupt):
		c := *a.Corrupt
		if a.Corrupt = &c; c.Err != nil {
			a.Unreadable, c.Err = c.Err.Error(), nil
		}
	default:
		a.Unreadable = err.Error()
	}
	return a
}

// UnprivilegedLabel reads the label in a process without privileges. For any content of the
// medium, this process only decodes an answer of at most 64 KiB, and validates every field
// in it.
func UnprivilegedLabel(ctx context.Context, from Handle) (bundle.Label, error) {
	f, ok := from.(*os.File)
	if !ok {
		return bundle.Label{}, fmt.Errorf("%w: it is not in a file", errLabel)
	}
	b, err := confined.RunUnprivileged(ctx, f, maxAnswer, LabelCommand)
	if err != nil {
		return bundle.Label{}, fmt.Errorf("%w: %w", errLabel, err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return bundle.Label{}, fmt.Errorf("%w: answer of its reader: %w", errLabel, err)
	}
	return a.result()
}

// result is the label or the error that the reader found.
func (a answer) result() (bundle.Label, error) {
	switch {
	case a.Label != nil:
		return *a.Label, nil
	case a.NotBundle:
		return bundle.Label{}, bundle.ErrNotBundle
	case a.TooNew != nil && bundle.ValidDigest(a.TooNew.Digest):
		a.TooNew.MinRefit = printable(a.TooNew.MinRefit, 80)
		return bundle.Label{}, a.TooNew
	case a.Corrupt != nil:
		c := &bundle.CorruptError{Part: printable(a.Corrupt.Part, 120), Digest: printable(a.Corrupt.Digest, 80), Offset: a.Corrupt.Offset, Length: a.Corrupt.Length, Found: printable(a.Corrupt.Found, 600)}
		if a.Unreadable != "" {
			c.Err = errors.New(printable(a.Unreadable, 200))
		}
		return bundle.Label{}, c
	}
	return bundle.Label{}, fmt.Errorf("%w: %s", errLabel, printable(a.Unreadable, 200))
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
