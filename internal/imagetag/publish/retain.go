package publish

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Keep says what must stay in a repository.
type Keep struct {
	// First releases, as tags or digests: they stay for the product's life, so that
	// old install media work.
	First []string `json:"first,omitempty"`
	// Listed by bundles: digests, with who lists them.
	Listed []Listing `json:"listed,omitempty"`
	// Until a time, by tag or digest.
	Until map[string]time.Time `json:"until,omitempty"`
	// Builds is how many of the newest builds of each version stay, however old.
	Builds int `json:"builds"`
	// For is how long a long tag stays after a newer one has replaced it. Nothing
	// is deleted if it is not stated.
	For time.Duration `json:"for"`
}

// Listing has digests that a bundle needs.
type Listing struct {
	By      string   `json:"by"` // for people: bundle edge-1.4
	Digests []string `json:"digests"`
}

// Retention is the plan of what may be deleted. Nothing is deleted by making it,
// and it is never carried out together with a publish: pointers would move under it.
type Retention struct {
	Repository string           `json:"repository"`
	Scheme     string           `json:"scheme"`
	Delete     []RetainedDigest `json:"delete"`
	Keep       []RetainedDigest `json:"keep"`
	Warnings   []string         `json:"warnings,omitempty"`
}

// RetainedDigest of one digest, with all tags that name it: deleting the one deletes the others.
type RetainedDigest struct {
	Digest string   `json:"digest"`
	Tags   []string `json:"tags"`
	Why    []string `json:"why"`
}

// Retain decides what may be deleted from a repository at a time. What it does
// not know, it keeps.
func Retain(pub Published, keep Keep, now time.Time) (Retention, error) {
	s, err := imagetag.ByName(pub.Scheme)
	if err != nil {
		return Retention{}, err
	}
	r := &retainer{pub: pub, keep: keep, now: now, scheme: s, why: map[string][]string{}}
	r.sortTags()
	r.protectNamed()
	r.protectListed()
	r.protectNewest()
	return r.splitDigests(), nil
}

type retainer struct {
	pub    Published
	keep   Keep
	now    time.Time
	scheme imagetag.Scheme
	lines  [][]point // points of one version and variant, the oldest first
	out    Retention
	why    map[string][]string // digest: reasons to keep it
}

func (r *retainer) keepDigest(digest, format string, a ...any) {
	if why := fmt.Sprintf(format, a...); !slices.Contains(r.why[digest], why) {
		r.why[digest] = append(r.why[digest], why)
	}
}

// sortTags puts points into lines; everything that is no point keeps its image.
func (r *retainer) sortTags() {
	lines := map[string][]point{}
	for _, text := range slices.Sorted(maps.Keys(r.pub.Tags)) {
		digest := r.pub.Tags[text]
		t, err := r.scheme.Parse(text)
		switch {
		case err != nil:
			r.keepDigest(digest, "%s is not of scheme %s, so its users are unknown", text, r.scheme.Name())
		case !t.Point():
			r.keepDigest(digest, "pointer %s names it", text)
		default:
			key := t.Variant + "/" + t.App
			lines[key] = append(lines[key], point{t, digest})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		line := lines[key]
		slices.SortStableFunc(line, func(a, b point) int {
			switch o, _ := r.scheme.CompareTags(a.tag, b.tag); o {
			case imagetag.Older:
				return -1
			case imagetag.Newer:
				return 1
			}
			return 0
		})
		r.lines = append(r.lines, line)
	}
}

// protectNamed protects what a person has named: first releases, and until a time.
func (r *retainer) protectNamed() {
	for _, name := range r.keep.First {
		r.protectByName(name, "first release %s: for the product's life", name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.keep.Until)) {
		if until := r.keep.Until[name]; r.now.Before(until) {
			r.protectByName(name, "%s is kept until %s", name, until.UTC().Format(time.RFC3339))
		}
	}
}

func (r *retainer) protectByName(name, format string, a ...any) {
	digest := name
	if d, ok := r.pub.Tags[name]; ok {
		digest = d
	}
	for _, d := range r.pub.Tags {
		if d == digest {
			r.keepDigest(digest, format, a...)
			return
		}
	}
	r.out.Warnings = append(r.out.Warnings, fmt.Sprintf("%s is to be kept, and %s has no such tag or digest", name, r.pub.Repository))
}

// protectListed protects what bundles list, by the index or by one of its manifests.
func (r *retainer) protectListed() {
	for _, l := range r.keep.Listed {
		for _, d := range slices.Sorted(maps.Values(r.pub.Tags)) {
			if slices.Contains(l.Digests, d) || slices.ContainsFunc(r.pub.Images[d].Children, func(c string) bool { return slices.Contains(l.Digests, c) }) {
				r.keepDigest(d, "%s lists it", l.By)
			}
		}
	}
}

// protectNewest protects the last builds of each version, what a pointer would be taken
// back to, and what was replaced too short a time ago.
func (r *retainer) protectNewest() {
	for _, line := range r.lines {
		for i, o := range line {
			left := len(line) - 1 - i
			if left < r.keep.Builds {
				r.keepDigest(o.digest, "%s is one of the last %d builds of version %s", o.tag.Text, r.keep.Builds, o.tag.App)
			}
			if left == 0 {
				r.keepDigest(o.digest, "%s is the newest of version %s", o.tag.Text, o.tag.App)
				continue
			}
			r.protectRollback(line, i)
			r.protectYoung(o, line[i+1])
		}
	}
}

// protectRollback: the point below one that a pointer names.
func (r *retainer) protectRollback(line []point, i int) {
	for text, d := range r.pub.Tags {
		if t, err := r.scheme.Parse(text); err == nil && !t.Point() && d == line[i+1].digest {
			r.keepDigest(line[i].digest, "%s is what a rollback from %s takes", line[i].tag.Text, line[i+1].tag.Text)
			return
		}
	}
}

// epoch: creation times before it are those of reproducible builds that say nothing.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *retainer) protectYoung(o, next point) {
	since := r.pub.Images[next.digest].Created
	switch {
	case r.keep.For <= 0:
		r.keepDigest(o.digest, "no period is set for replaced builds")
	case since.Before(epoch):
		r.keepDigest(o.digest, "%s was replaced by %s at an unknown time", o.tag.Text, next.tag.Text)
	case r.now.Before(since.Add(r.keep.For)):
		r.keepDigest(o.digest, "%s was replaced by %s on %s, and is kept for %d days after that", o.tag.Text, next.tag.Text, since.UTC().Format(time.DateOnly), int(r.keep.For.Hours()/24))
	}
}

// splitDigests parts the digests. A manifest of an index that stays has to stay too.
func (r *retainer) splitDigests() Retention {
	tags := map[string][]string{}
	for _, text := range slices.Sorted(maps.Keys(r.pub.Tags)) {
		tags[r.pub.Tags[text]] = append(tags[r.pub.Tags[text]], text)
	}
	digests := slices.Sorted(maps.Keys(tags))
	for _, d := range digests {
		for _, c := range r.pub.Images[d].Children {
			if len(r.why[d]) > 0 && tags[c] != nil {
				r.keepDigest(c, "index %s, which stays, has it", text.ShortDigest(d))
			}
		}
	}
	r.out.Repository, r.out.Scheme = r.pub.Repository, r.scheme.Name()
	for _, d := range digests {
		if why := r.why[d]; len(why) > 0 {
			r.out.Keep = append(r.out.Keep, RetainedDigest{d, tags[d], why})
			continue
		}
		r.out.Delete = append(r.out.Delete, RetainedDigest{d, tags[d], []string{fmt.Sprintf("replaced more than %d days ago; no pointer, bundle or first release needs it", int(r.keep.For.Hours()/24))}})
	}
	slices.Sort(r.out.Warnings)
	return r.out
}
