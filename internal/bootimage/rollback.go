package bootimage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/componentversion"
)

// Rollback is a person's decision that new machines start from an earlier image again.
type Rollback struct {
	// To is the earlier image, Rejected the one that was in use.
	To, Rejected Image
	// By is the person, Reason may be empty.
	By, Reason string
}

// Holds reports whether the rollback counts against an image of a stream: it does until the
// image is newer than the rejected one. An image that cannot be compared is not newer.
func (r *Rollback) Holds(wanted Image) bool {
	c, ok := compareImages(wanted, r.Rejected)
	return !ok || c <= 0
}

func (r *Rollback) String() string {
	text := fmt.Sprintf("%s rejected %s", r.By, describeImage(r.Rejected))
	if r.By == "" {
		text = "an administrator rejected " + describeImage(r.Rejected)
	}
	if r.Reason != "" {
		text += " (" + r.Reason + ")"
	}
	return text
}

// Written is one write in the history of a source.
type Written struct {
	From, To Image
	// Rollback is true if it was one.
	Rollback bool
}

var (
	errNoPrevious = errors.New("refit has not written the image that it uses, so there is no previous one")
	errInUse      = errors.New("it uses that image already")
)

// PlanRollback returns the rollback from the current image to the previous one, or to the image
// of the history with the name to. A rollback that is active goes on to reject its image if that
// is the newer one.
func PlanRollback(history []Written, current Image, active *Rollback, to string) (Rollback, error) {
	target, ok := previousImage(history, current.Text)
	if to != "" {
		target, ok = imageOfHistory(history, to)
	}
	switch {
	case to != "" && !ok:
		return Rollback{}, fmt.Errorf("its history has no image %q", to)
	case !ok:
		return Rollback{}, errNoPrevious
	case target.Text == current.Text:
		return Rollback{}, errInUse
	}
	r := Rollback{To: target, Rejected: current}
	if active != nil && active.Holds(current) {
		r.Rejected = active.Rejected
	}
	return r, nil
}

// previousImage returns the image that the last write of the current one replaced. Rollbacks
// are left out, since they replaced a newer image.
func previousImage(history []Written, current string) (Image, bool) {
	for _, w := range slices.Backward(history) {
		if w.To.Text == current && !w.Rollback && w.From.Text != "" && w.From.Text != current {
			return w.From, true
		}
	}
	return Image{}, false
}

func imageOfHistory(history []Written, name string) (Image, bool) {
	for _, w := range slices.Backward(history) {
		for _, i := range []Image{w.From, w.To} {
			if i.Text == name {
				return i, true
			}
		}
	}
	return Image{}, false
}

// Refusal is an image that refit never writes, by its platform's name or by its OS version.
type Refusal struct{ Image, OS, Reason string }

// Refused returns why an image is refused, empty if it is not.
func Refused(list []Refusal, i Image) string {
	for _, r := range list {
		if r.Image != "" && r.Image == i.Text || r.OS != "" && sameOS(r.OS, i.OS) {
			return r.Reason
		}
	}
	return ""
}

// sameOS compares two spellings of an OS version.
func sameOS(a, b string) bool {
	if a == b {
		return true
	}
	c, ok := compareVersions(a, b)
	return ok && c == 0
}

// compareImages compares the OS versions of two images, or their releases if the OS versions
// cannot be compared.
func compareImages(a, b Image) (c int, ok bool) {
	if c, ok = compareVersions(a.OS, b.OS); ok {
		return c, true
	}
	return compareVersions(a.Release, b.Release)
}

func compareVersions(a, b string) (c int, ok bool) {
	x, errX := componentversion.ParseOS(a)
	y, errY := componentversion.ParseOS(b)
	if errX != nil || errY != nil {
		return 0, false
	}
	c, err := x.Compare(y)
	return c, err == nil
}
