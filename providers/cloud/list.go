package cloud

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// Report is an answer with its origin.
type Report struct {
	Site Site
	// Image of the stream.
	Image  bootstream.Image
	Answer Answer
	// At is when the cloud answered, zero if it never did.
	At time.Time
	// Err is why it did not answer this time, or why an upload failed.
	Err error
}

// List returns the stream as the sites have it. An image without a region is there once for each
// region of a site. An image of a platform without a site is unchanged.
func List(s *bootstream.Stream, reports []Report, now time.Time) *bootstream.Stream {
	out := *s
	out.Images = nil
	bySite := map[bootstream.Key][]Report{}
	for _, r := range reports {
		bySite[r.Image.Key] = append(bySite[r.Image.Key], r)
	}
	for _, i := range s.Images {
		if len(bySite[i.Key]) == 0 {
			out.Images = append(out.Images, i)
		}
		for _, r := range bySite[i.Key] {
			out.Images = append(out.Images, r.ownRelease(s, r.image(now)))
		}
	}
	return &out
}

// ownRelease takes the stream's release from an image of an older version. Where the list's release
// would count for it instead, the image is unavailable: it would look newer than it is.
func (r Report) ownRelease(s *bootstream.Stream, i bootstream.Image) bootstream.Image {
	if i.Version == r.Image.Version {
		return i
	}
	i.Release = ""
	if release := s.ReleaseOf(i); release != "" && release == s.Release && i.Unavailable == "" {
		i.Unavailable = fmt.Sprintf("%s has version %s instead, of an unknown release", r.Site.Name, i.Version)
	}
	return i
}

// image returns the image with what its cloud reports.
func (r Report) image(now time.Time) bootstream.Image {
	i := r.Image
	i.Key.Region = r.Site.Region
	i.Attributes = maps.Clone(i.Attributes)
	_, isFile := i.DiskFile()
	i.Unavailable = r.unavailable(isFile)
	i.Notice = r.notice(isFile, now)
	if i.Unavailable == "" && r.Answer.Exists {
		maps.Copy(i.Attributes, r.Answer.Names)
		i.Version = cmp.Or(r.Answer.Version, i.Version)
	}
	return i
}

// unavailable returns why machines cannot start from an image. A file that is not uploaded is
// not unavailable: refit reports the upload that it needs.
func (r Report) unavailable(isFile bool) string {
	a := r.Answer
	switch {
	case r.At.IsZero() && !isFile:
		return fmt.Sprintf("%s was not reached: %s", r.Site.Name, errorText(r.Err))
	case a.Problem != "":
		return r.Site.Name + ": " + a.Problem
	case a.Exists && !sameArchitecture(a.Architecture, r.Image.Key.Architecture):
		return fmt.Sprintf("%s: its architecture is %s", r.Site.Name, a.Architecture)
	case !a.Exists && !isFile:
		return r.Site.Name + " does not have it" + newestThere(a)
	}
	return ""
}

func newestThere(a Answer) string {
	if a.Newest == "" {
		return ""
	}
	return "; the newest image there is " + a.Newest
}

// sameArchitecture reports whether an image can have the wanted architecture: not every cloud
// reports one.
func sameArchitecture(spelled, want string) bool {
	if spelled == "" {
		return true
	}
	a, ok := bootstream.Architecture(spelled)
	return ok && a == want
}

// notice returns what a person should know of an image.
func (r Report) notice(isFile bool, now time.Time) string {
	var out []string
	a := r.Answer
	if !a.Exists && isFile && a.Problem == "" {
		out = append(out, "it is not uploaded to "+r.Site.Name)
	}
	out = append(out, deprecation(a.Deprecated, now))
	if a.Exists && a.Newest != "" {
		out = append(out, "a newer image is there: "+a.Newest)
	}
	if a.Exists && a.Version != "" && a.Version != r.Image.Version {
		out = append(out, fmt.Sprintf("%s has version %s instead of %s", r.Site.Name, a.Version, r.Image.Version))
	}
	if a.Unverified {
		out = append(out, "refit did not upload it, so its contents were not compared")
	}
	out = append(out, r.failure(isFile))
	return strings.Join(slices.DeleteFunc(out, func(s string) bool { return s == "" }), "; ")
}

func deprecation(at, now time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case at.After(now):
		return "it is deprecated from " + day(at)
	}
	return "it is deprecated since " + day(at)
}

// failure returns why an answer is old, or why an upload failed.
func (r Report) failure(isFile bool) string {
	switch {
	case r.Err != nil && !r.At.IsZero():
		return fmt.Sprintf("as of %s: %s", r.At.UTC().Format(time.RFC3339), errorText(r.Err))
	case r.Err != nil && isFile:
		return errorText(r.Err)
	}
	return ""
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// maxError is the length of an error in the list, in bytes.
const maxError = 300

func errorText(err error) string {
	if err == nil {
		return "no answer yet"
	}
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > maxError {
		s = strings.ToValidUTF8(s[:maxError], "") + "..."
	}
	return s
}

// States of an image in a cloud, for people.
const (
	Present     = "present"
	Missing     = "missing"
	Unavailable = "unavailable"
)

// State returns the state of an image and a remark.
func (r Report) State(now time.Time) (state, remark string) {
	i := r.image(now)
	switch {
	case i.Unavailable != "":
		return Unavailable, i.Unavailable
	case !r.Answer.Exists:
		return Missing, i.Notice
	}
	return Present, i.Notice
}

// Name of the image in its cloud: its configured name, else the cloud's identifier.
func (r Report) Name() string {
	if w, ok := r.Site.wants(r.Image); ok && w.Name != "" {
		return w.Name
	}
	for _, k := range []string{"image", "selfLink", "name"} {
		if v := r.Image.Attributes[k]; v != "" {
			return v
		}
	}
	return r.Image.Key.String()
}
