package imagetag

import (
	"cmp"
	"fmt"
)

// Minor is a minor version of an application: the first two numbers of its version.
type Minor struct{ Major, Minor uint64 }

// MinorOf is the minor version of a tag's application. ok is false for dates, names, and versions
// of one number: they have none.
func (s Scheme) MinorOf(t Tag) (m Minor, ok bool) {
	v, read := s.version(t)
	if !read || s.kindOf() == "date" || len(v.numbers) < 2 {
		return m, false
	}
	return Minor{v.numbers[0], v.numbers[1]}, true
}

// IsPreRelease reports whether a tag's application is, or may be, a pre-release: 2.7.0-rc.1.
func (s Scheme) IsPreRelease(t Tag) bool {
	v, read := s.version(t)
	return read && (v.kind == preRelease || v.kind == unclear)
}

// Compare orders two minor versions.
func (m Minor) Compare(o Minor) int {
	return cmp.Or(cmp.Compare(m.Major, o.Major), cmp.Compare(m.Minor, o.Minor))
}

func (m Minor) String() string { return fmt.Sprintf("%d.%d", m.Major, m.Minor) }

// ParseMinor reads what String writes.
func ParseMinor(text string) (m Minor, ok bool) {
	v, read := parseVersion(text)
	if !read || len(v.numbers) != 2 || v.kind != release {
		return m, false
	}
	return Minor{v.numbers[0], v.numbers[1]}, true
}
