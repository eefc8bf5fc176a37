package bundle

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotBundle says that the bytes are not a refit bundle at all: an empty
// stick, a file system, another kind of archive. It is no sign of damage.
var ErrNotBundle = errors.New("not a refit bundle")

// CorruptError says that a bundle's bytes are not what its digest implies, and
// where.
type CorruptError struct {
	// Part of the archive: a tar header, a padding, index.json, a blob ...
	Part string
	// Image names what uses the blob, an image or a payload; empty if the part
	// is none's or everybody's.
	Image string
	// Digest of the blob, empty if the part is no blob.
	Digest string
	// Offset in bytes from the start of the bundle of the first byte that is
	// known to be in the bad range, Length the bytes of that range (0: unknown).
	Offset, Length int64
	// Place names the part with the range, of a bundle in parts; else it is empty.
	Place string
	// Found says what is wrong.
	Found string
	// Err is the read error that is the cause, if there is one.
	Err error
}

func (e *CorruptError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bundle is damaged at offset %d", e.Offset)
	if e.Length > 0 {
		fmt.Fprintf(&b, " (range of %d bytes)", e.Length)
	}
	if e.Place != "" {
		fmt.Fprintf(&b, ", in %s, copy it again", e.Place)
	}
	fmt.Fprintf(&b, ": %s", e.Part)
	if e.Digest != "" {
		fmt.Fprintf(&b, " %s", e.Digest)
	}
	if e.Image != "" {
		fmt.Fprintf(&b, " of %s", e.Image)
	}
	fmt.Fprintf(&b, ": %s", e.Found)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

func (e *CorruptError) Unwrap() error { return e.Err }

// TooNewError says that the bundle's format is newer than this refit reads.
type TooNewError struct {
	// FormatVersion and MinRefit as the bundle says; Digest names it.
	Digest        string
	FormatVersion int
	MinRefit      string
}

func (e *TooNewError) Error() string {
	return fmt.Sprintf("bundle %s has format version %d, this refit reads %d: update refit to %s or later",
		e.Digest, e.FormatVersion, FormatVersion, e.MinRefit)
}

// OtherBundleError says that a header is that of another bundle than the one that
// was asked for. Nothing of it was decoded.
type OtherBundleError struct{ Found, Want string }

func (e *OtherBundleError) Error() string {
	return fmt.Sprintf("header of bundle %s, expected %s", e.Found, e.Want)
}
