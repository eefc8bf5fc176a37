package bundlereader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// DeltaMagic begins the file of a delta bundle; the number of its format follows.
const DeltaMagic = "refit-bundle-delta, format "

// deltaBegin is how many bytes of a delta name its base and its target.
const deltaBegin = 1024

// BeginsDelta reports whether r begins as a delta does.
func BeginsDelta(r io.ReaderAt) bool {
	b := make([]byte, len(DeltaMagic))
	n, _ := r.ReadAt(b, 0)
	return string(b[:n]) == DeltaMagic
}

// orDelta returns err; that r is no bundle at all, with what it is if it is a delta.
func orDelta(r io.ReaderAt, err error) error {
	if errors.Is(err, bundle.ErrNotBundle) {
		if delta := deltaError(r); delta != nil {
			return delta
		}
	}
	return err
}

// DeltaError is bundle.ErrNotBundle for a delta: it says what to do.
type DeltaError struct {
	// Base and Target are digests, both empty if the delta is damaged.
	Base, Target string
}

func (e *DeltaError) Error() string {
	base, target := "its base", "the full bundle"
	if e.Base != "" {
		base, target = "the bundle "+e.Base, "the bundle "+e.Target
	}
	return fmt.Sprintf("%v: it is a delta, which makes %s of %s: run refit bundle restore --base OLD DELTA --output NEW and use NEW", bundle.ErrNotBundle, target, base)
}

// Unwrap says that it is no bundle.
func (e *DeltaError) Unwrap() error { return bundle.ErrNotBundle }

// deltaError is a DeltaError, nil if r is no delta.
func deltaError(r io.ReaderAt) error {
	if !BeginsDelta(r) {
		return nil
	}
	b := make([]byte, deltaBegin)
	n, _ := r.ReadAt(b, 0)
	lines := strings.SplitN(string(b[:n]), "\n", 3)
	var names struct{ Base, Target string }
	if len(lines) > 1 && json.Unmarshal([]byte(lines[1]), &names) == nil && bundle.ValidDigest(names.Base) && bundle.ValidDigest(names.Target) {
		return &DeltaError{Base: names.Base, Target: names.Target}
	}
	return &DeltaError{}
}
