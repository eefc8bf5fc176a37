package track

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Named is an image of a list under one of its names.
type Named struct {
	Name, Digest string
}

// Changed is one image that a list has and another has not, or has otherwise.
type Changed struct {
	Repository string `json:"repository"`
	// From and To are long tags, else any; "" where there is none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// FromDigest and ToDigest.
	FromDigest string `json:"fromDigest,omitempty"`
	ToDigest   string `json:"toDigest,omitempty"`
	// Class of the change, or New or Gone.
	Class Class  `json:"class"`
	Why   string `json:"why"`
}

// Classes that only a comparison of lists has.
const (
	New  Class = "New"
	Gone Class = "Gone"
)

// Summary is what leads from one list of images to another, by class.
type Summary struct {
	Changed []Changed `json:"changed"`
	Same    int       `json:"same"`
}

// listedImage is an image of one list.
type listedImage struct {
	repository string
	Image
	tags []imagetag.Tag
}

// Compare says what leads from list a to list b. Tags are read under one
// scheme; security reports whether an image's label declares a security fix, and may be nil.
func Compare(s imagetag.Scheme, a, b []Named, security func(digest string) bool) Summary {
	t := Track{Scheme: s}
	old, now := joinNames(s, a), joinNames(s, b)
	out := Summary{Changed: []Changed{}}
	used := map[*listedImage]bool{}
	var fresh []*listedImage
	for _, n := range now {
		if o := withDigest(old, n); o != nil {
			used[o] = true
			out.Same++
			continue
		}
		fresh = append(fresh, n)
	}
	for _, n := range fresh {
		n.Security = security != nil && security(n.Digest)
		c := Changed{Repository: n.repository, To: n.title(), ToDigest: n.Digest, Class: New, Why: "it was not there before"}
		if from := predecessor(t, old, n, used); from != nil {
			used[from] = true
			c.From, c.FromDigest = from.title(), from.Digest
			c.Class, c.Why = Classify(t, &from.Image, &n.Image)
		}
		out.Changed = append(out.Changed, c)
	}
	for _, o := range old {
		if !used[o] {
			out.Changed = append(out.Changed, Changed{Repository: o.repository, From: o.title(), FromDigest: o.Digest, Class: Gone, Why: "it is not there any more"})
		}
	}
	slices.SortStableFunc(out.Changed, func(x, y Changed) int {
		return strings.Compare(x.Repository+" "+x.To+" "+x.From, y.Repository+" "+y.To+" "+y.From)
	})
	return out
}

// joinNames joins the names of each image of each repository.
func joinNames(s imagetag.Scheme, list []Named) []*listedImage {
	byKey := map[string]*listedImage{}
	var out []*listedImage
	for _, n := range list {
		ref, err := imagetag.ParseRef(n.Name)
		if err != nil {
			continue
		}
		k := byKey[ref.Repository+" "+n.Digest]
		if k == nil {
			k = &listedImage{repository: ref.Repository, Image: Image{Digest: n.Digest}}
			byKey[ref.Repository+" "+n.Digest] = k
			out = append(out, k)
		}
		p, err := s.Parse(ref.Tag)
		switch {
		case err != nil || ref.Tag == "":
			k.Tag = or(k.Tag, ref.Tag)
		case p.Point():
			k.Long = p.Text
			k.tags = append(k.tags, p)
		default:
			k.Tag = p.Text
			k.tags = append(k.tags, p)
		}
	}
	return out
}

func (k *listedImage) title() string { return or(k.Long, or(k.Tag, text.ShortDigest(k.Digest))) }

func (k *listedImage) variant() string {
	if len(k.tags) == 0 {
		return ""
	}
	return k.tags[0].Variant
}

func withDigest(list []*listedImage, n *listedImage) *listedImage {
	for _, k := range list {
		if k.repository == n.repository && k.Digest == n.Digest {
			return k
		}
	}
	return nil
}

// predecessor is what an image takes the place of: the one that had one of its
// names, else the one of its repository and variant that nothing else replaces.
func predecessor(t Track, old []*listedImage, n *listedImage, used map[*listedImage]bool) *listedImage {
	var best *listedImage
	for _, o := range old {
		switch {
		case o.repository != n.repository || used[o] || o.variant() != n.variant():
		case o.shares(n):
			return o
		case best == nil:
			best = o
		default:
			if c, _ := Classify(t, &best.Image, &o.Image); c == NewVersion || c == ImageFix || c == Rebuild {
				best = o
			}
		}
	}
	return best
}

// shares reports whether two images had one of their tags each in its turn.
func (k *listedImage) shares(n *listedImage) bool {
	return slices.ContainsFunc(k.tags, func(x imagetag.Tag) bool {
		return slices.ContainsFunc(n.tags, func(y imagetag.Tag) bool { return x.Text == y.Text })
	})
}

// Sentence for people: 12 rebuilds, 3 of them security, 2 image fixes, 1 new
// version, 40 same.
func (s Summary) Sentence() string {
	n := map[Class]int{}
	for _, c := range s.Changed {
		n[c.Class]++
	}
	var out []string
	add := func(count int, one, many, more string) {
		switch {
		case count == 1:
			out = append(out, "1 "+one+more)
		case count > 1:
			out = append(out, fmt.Sprintf("%d %s%s", count, many, more))
		}
	}
	of := ""
	if n[Security] > 0 {
		of = fmt.Sprintf(", %d of them security", n[Security])
	}
	add(n[Rebuild]+n[Security], "rebuild", "rebuilds", of)
	add(n[ImageFix], "image fix", "image fixes", "")
	add(n[NewVersion], "new version", "new versions", "")
	add(n[Backwards], "older than before", "older than before", "")
	add(n[Unordered], "other of unknown order", "others of unknown order", "")
	add(n[TagVersionMismatch], "with a version mismatch", "with a version mismatch", "")
	add(n[New], "new image", "new images", "")
	add(n[Gone], "gone", "gone", "")
	add(s.Same, "same", "same", "")
	if len(out) == 0 {
		return "no images"
	}
	return strings.Join(out, ", ")
}
