package track

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imagetag"
)

// Unfollowed says of a track that follows no tag of a repository's list why that is so. unfit: its
// scheme reads none of the tags.
func Unfollowed(t Track, listed []string) (why string, unfit bool) {
	unread, tiers, versions := passedOver(t, listed)
	switch {
	case len(listed) == 0:
		return "it has no tags", false
	case len(unread) == len(listed):
		why = fmt.Sprintf("scheme %s reads none of its %d tags, for example %s", t.Scheme.Name(), len(listed), examples(unread))
		if g, _ := imagetag.Guess(listed); g.Name() != "" && g.Name() != t.Scheme.Name() {
			why += "; they look like scheme " + g.Name()
		}
		return why, true
	case len(versions) == 0:
		return fmt.Sprintf("scheme %s reads %d of its %d tags, and none is of the tier that is followed, for example %s", t.Scheme.Name(), len(tiers), len(listed), examples(tiers)), false
	}
	return fmt.Sprintf("%d of its %d tags are of the tier that is followed, and none is in the range %s, for example %s", len(versions), len(listed), t.Versions, examples(versions)), false
}

// passedOver are the tags that the scheme does not read, that are of another tier, and whose
// version is out of range.
func passedOver(t Track, listed []string) (unread, tiers, versions []string) {
	for _, text := range listed {
		switch p, err := t.Scheme.Parse(text); {
		case err != nil || p.Tier == imagetag.Floating && !beginsWithDigit(p.App):
			unread = append(unread, text)
		case p.Tier != t.Tier:
			tiers = append(tiers, text)
		case !inRange(t.Versions, p.App):
			versions = append(versions, text)
		}
	}
	return unread, tiers, versions
}

func examples(tags []string) string {
	tags = slices.Sorted(slices.Values(tags))
	return strings.Join(tags[:min(len(tags), 3)], ", ")
}
