package bundlewriter

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Options say what goes into a bundle.
type Options struct {
	// Name of the bundle; default "kubernetes" if it brings a kubelet, else "images".
	Name string
	// Version, a semantic version; default that of the kubelet it brings, else 0.0.0.
	Version string
	// MinRefit is the oldest refit that may load it; default 0.1.0.
	MinRefit string
	// Constraints on nodes.
	Constraints []bundle.Constraint
	// Key signs the bundle; nil leaves it unsigned.
	Key ed25519.PrivateKey
	// Sources as the command line names them, see ParseSource.
	Sources []string
	// Platforms to take of images that have several, for example linux/amd64;
	// each image must have each. Empty takes all that the sources have.
	Platforms []string
	// Groups put images into groups; the first rule that matches counts, then
	// the group the source says, then GroupOf.
	Groups []GroupRule
	// ChunkSize in bytes, default bundle.DefaultChunkSize.
	ChunkSize int64
	// CheckLayers unpacks every layer, so that one that does not unpack is refused here and
	// not on a node. Without it unpacked sizes come from what gzip and zstd say of
	// themselves, where they do.
	CheckLayers bool
	// Warn gets a warning for each input that is allowed but unwise offline; nil ignores
	// them.
	Warn func(string)
	// Accept is asked before a byte is copied, once it is known what the bundle
	// would hold (sizes unpacked are not); its error ends the run. May be nil.
	Accept func(*bundle.Metadata) error
	// Proofs carries signatures, SBOMs and provenance that are attached to the images.
	Proofs bool
	// Policy refuses images without a valid signature, by a *RefusedError; it implies Proofs. May be nil.
	Policy *imageproof.Policy
	// Now is the time at which certificates must be valid; default the clock's.
	Now time.Time

	// scratch is the directory for files of a moment: that of the output.
	scratch string
}

// GroupRule puts images whose name matches a pattern into a group.
type GroupRule struct {
	// Pattern for the full image name, as path.Match reads it; a * does not
	// cross a slash.
	Pattern string
	Group   string
}

// InputError is a mistake in the caller's input, not a failure of the environment.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }

func inputf(format string, args ...any) error { return &InputError{fmt.Errorf(format, args...)} }

// SpaceError says that the output does not fit.
type SpaceError struct {
	Path         string
	Needed, Free int64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s needs %d bytes, only %d are free there: free %d bytes or write to another disk", e.Path, e.Needed, e.Free, e.Needed-e.Free)
}

const defaultMinRefit = "0.1.0"

func (o *Options) fill() error {
	o.ChunkSize = cmp.Or(o.ChunkSize, bundle.DefaultChunkSize)
	o.MinRefit = cmp.Or(o.MinRefit, defaultMinRefit)
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return o.check()
}

func (o *Options) check() error {
	if len(o.Sources) == 0 {
		return inputf("no source given: what shall the bundle hold?")
	}
	if o.Name != "" && !bundle.ValidName(o.Name) {
		return inputf("bundle name %q: use lower-case letters, digits, dots, dashes and underscores, at most 63", o.Name)
	}
	if o.Version != "" && !bundle.ValidVersion(o.Version) {
		return inputf("bundle version %q is not a semantic version, for example 1.36.3", o.Version)
	}
	for _, g := range o.Groups {
		if _, err := path.Match(g.Pattern, ""); errors.Is(err, path.ErrBadPattern) || !bundle.ValidName(g.Group) {
			return inputf("group rule %s=%s: bad pattern or group name", g.Group, g.Pattern)
		}
	}
	return nil
}
