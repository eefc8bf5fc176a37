package imagetag

import "fmt"

// guessed are the schemes whose long tags cannot be mistaken for another's, the
// most telling first.
var guessed = []string{"rev", "distro-r", "date"}

// Guess returns the scheme that a repository's tags seem to follow, with the reason. Use it
// for reports and hints only. It returns the zero Scheme where two schemes would read the same tags
// differently: 2.6.1-1.100 is revision 1 build 100 in one and build 1.100 in
// another.
func Guess(tags []string) (Scheme, string) {
	for _, name := range guessed {
		s, _ := ByName(name)
		if n := s.points(tags); n > 0 && n*2 >= s.versioned(tags)-s.pointers(tags) {
			return s, fmt.Sprintf("a guess: %d of %d tags are long tags of scheme %s; declare it before anything is done by it", n, len(tags), name)
		}
	}
	if s, _ := ByName("dotted"); s.points(tags) > 0 {
		return Scheme{}, fmt.Sprintf("no guess: %d of %d tags could be of scheme dotted, dashed, release or semver, and each reads them differently; declare one", s.points(tags), len(tags))
	}
	if s, _ := ByName("semver"); s.points(tags) > 0 && s.points(tags) == s.versioned(tags)-s.pointers(tags) {
		return s, fmt.Sprintf("a guess: %d of %d tags are semantic versions; declare it before anything is done by it", s.points(tags), len(tags))
	}
	return Scheme{}, fmt.Sprintf("no guess: the %d tags follow no known form, so whether any of them names one build is not known; declare a scheme", len(tags))
}

func (s Scheme) points(tags []string) int {
	return s.count(tags, func(t Tag) bool { return t.Point() })
}

// pointers that a version begins, such as 2.6.2: they say nothing for or against
// a scheme.
func (s Scheme) pointers(tags []string) int {
	return s.count(tags, func(t Tag) bool { _, ok := parseVersion(t.Text); return ok && !t.Point() })
}

// versioned are tags that begin with a version, whether the scheme reads them or not.
func (s Scheme) versioned(tags []string) int {
	n := 0
	for _, t := range tags {
		if _, ok := parseVersion(t); ok {
			n++
		}
	}
	return n
}

func (s Scheme) count(tags []string, is func(Tag) bool) int {
	n := 0
	for _, text := range tags {
		if t, err := s.Parse(text); err == nil && is(t) {
			n++
		}
	}
	return n
}
