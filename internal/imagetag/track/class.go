package track

import (
	"fmt"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Classify says what taking to would be for who runs from (nil: nothing that is
// known), and why.
func Classify(t Track, from, to *Image) (Class, string) {
	if why := lies(t, to); why != "" {
		return TagVersionMismatch, why
	}
	switch {
	case from == nil:
		return Adopt, "nothing of this repository runs yet"
	case from.Is(to.Digest):
		return Adopt, "these bytes run already; they get a name that cannot move"
	}
	a, b := parsed(t, to.Long), parsed(t, from.Long)
	if !a.Point() || !b.Point() {
		return byPointers(t, from, to)
	}
	order, why := t.Scheme.CompareTags(a, b)
	if order == imagetag.Newer && a.App == b.App && a.Rev == b.Rev {
		return rebuilt(to, why)
	}
	if order == imagetag.Same {
		return Unordered, fmt.Sprintf("long tag %s was given to two images, %s and %s: the publisher overwrote it", to.Long, text.ShortDigest(from.Digest), text.ShortDigest(to.Digest))
	}
	return byOrder(order, a, b), why
}

func rebuilt(to *Image, why string) (Class, string) {
	if to.Security {
		if !to.Vouched {
			return Security, why + "; a label says that it fixes a known security fault, and no approved bundle confirms it"
		}
		return Security, why + "; it fixes a known security fault, as an approved bundle says"
	}
	return Rebuild, why
}

// byOrder is the class of a step from line b to line a.
func byOrder(order imagetag.Order, a, b imagetag.Tag) Class {
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

// byPointers is what can be said without both long tags: only whether the line
// is another.
func byPointers(t Track, from, to *Image) (Class, string) {
	if from.Tag == to.Tag || from.Tag == "" {
		return Unordered, fmt.Sprintf("%s names another image than before, and no long tag tells which of the two is newer", to.Tag)
	}
	a, b := parsed(t, to.Tag), parsed(t, from.Tag)
	if a.Text == "" || b.Text == "" || a.Tier != b.Tier {
		return Unordered, fmt.Sprintf("%s and %s cannot be compared, and no long tag names these images", to.Tag, from.Tag)
	}
	order, why := comparePointers(a, b)
	return byOrder(order, a, b), why
}

// parsed is the zero Tag for text that the scheme does not read.
func parsed(t Track, text string) imagetag.Tag {
	if text == "" {
		return imagetag.Tag{}
	}
	p, err := t.Scheme.Parse(text)
	if err != nil {
		return imagetag.Tag{}
	}
	return p
}

// lies says how the version in the tags differs from the one inside, "" if it
// does not, or nobody can tell. A tag may name a part of the version: 10.2 of
// 10.2.15.
func lies(t Track, i *Image) string {
	if i.App == "" {
		return ""
	}
	for _, text := range []string{i.Long, i.Tag} {
		p := parsed(t, text)
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
