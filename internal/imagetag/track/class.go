package track

import (
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Classify returns the class of a change from one image to another, and why. A nil from means
// that no known image runs.
func Classify(t Track, from, to *Image) (Class, string) {
	if why := versionMismatch(t, to); why != "" {
		return TagVersionMismatch, why
	}
	switch {
	case from == nil:
		return Adopt, "nothing of this repository runs yet"
	case from.Is(to.Digest):
		return Adopt, "these bytes run already; they get a name that cannot move"
	}
	a, b := parseTag(t, to.Long), parseTag(t, from.Long)
	if !a.Point() || !b.Point() {
		return classifyPointers(t, from, to)
	}
	order, why := t.Scheme.CompareTags(a, b)
	if order == imagetag.Newer && a.App == b.App && a.Rev == b.Rev {
		return classifyRebuild(to, why)
	}
	if order == imagetag.Same {
		return Unordered, fmt.Sprintf("long tag %s was given to two images, %s and %s: the publisher overwrote it", to.Long, text.ShortDigest(from.Digest), text.ShortDigest(to.Digest))
	}
	return classOfOrder(order, a, b), why
}

func classifyRebuild(to *Image, why string) (Class, string) {
	if to.Security {
		if !to.Vouched {
			return Security, why + "; a label says that it fixes a known security fault, and neither an approved bundle nor a signature confirms it"
		}
		return Security, why + "; it fixes a known security fault, as an approved bundle or a signature says"
	}
	return Rebuild, why
}

// classOfOrder is the class of a step from line b to line a.
func classOfOrder(order imagetag.Order, a, b imagetag.Tag) Class {
	switch {
	case order == imagetag.Older:
		return Backwards
	case order == imagetag.Newer && a.App != b.App:
		return NewVersion
	case order == imagetag.Newer && a.Rev != b.Rev:
		return ImageFix
	}
	return Unordered
}

// classifyPointers compares images without two long tags: only their lines can be ordered.
func classifyPointers(t Track, from, to *Image) (Class, string) {
	if from.Tag == to.Tag || from.Tag == "" {
		return Unordered, fmt.Sprintf("%s names another image than before, and no long tag shows which of the two is newer", to.Tag)
	}
	a, b := parseTag(t, to.Tag), parseTag(t, from.Tag)
	if a.Text == "" || b.Text == "" || a.Tier != b.Tier {
		return Unordered, fmt.Sprintf("%s and %s cannot be compared, and no long tag names these images", to.Tag, from.Tag)
	}
	order, why := comparePointers(a, b)
	return classOfOrder(order, a, b), why
}

// parseTag is the zero Tag for text that the scheme does not read.
func parseTag(t Track, text string) imagetag.Tag {
	if text == "" {
		return imagetag.Tag{}
	}
	p, err := t.Scheme.Parse(text)
	if err != nil {
		return imagetag.Tag{}
	}
	return p
}

// versionMismatch says how the version in the tags differs from the one inside, "" if it
// does not, or is unknown. A tag may name a part of the version: 10.2 of
// 10.2.15.
func versionMismatch(t Track, i *Image) string {
	if i.App == "" {
		return ""
	}
	for _, text := range []string{i.Long, i.Tag} {
		p := parseTag(t, text)
		if p.Text == "" || p.Tier == imagetag.Floating {
			continue
		}
		said, inside := strings.TrimPrefix(p.App, "v"), strings.TrimPrefix(strings.ReplaceAll(i.App, "+", "_"), "v")
		if inside != said && !strings.HasPrefix(inside, said+".") && !strings.HasPrefix(inside, said+"-") {
			return fmt.Sprintf("tag %s says version %s, the image says that it is %s", text, p.App, i.App)
		}
	}
	return ""
}
