package componentversion

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/refit-dev/refit/internal/distribution"
)

// SameKubernetes reports whether two versions are equal, build included; v1.2.3 equals 1.2.3.
// Two versions that do not parse are the same if their text is.
func SameKubernetes(a, b string) bool {
	if a == b {
		return true
	}
	if x, y, ok := plainPair(a, b); ok {
		return x == y
	}
	va, vb := ParseKubernetes(a), ParseKubernetes(b)
	return va != nil && va.Equal(vb) && va.Metadata() == vb.Metadata()
}

// LessKubernetes reports whether a is older than b; false if either does not parse. Of one
// release a build of a distribution is older than a later one of the same distribution. Other
// builds of one release have no order, also with a version without a build.
func LessKubernetes(a, b string) bool {
	if x, y, ok := plainPair(a, b); ok {
		return slices.Compare(x[:], y[:]) < 0
	}
	ba, bb := distribution.SplitVersion(a), distribution.SplitVersion(b)
	va, vb := ParseKubernetes(ba.Release), ParseKubernetes(bb.Release)
	if va == nil || vb == nil {
		return false
	}
	c := va.Compare(vb)
	return c < 0 || c == 0 && ba.Less(bb)
}

// LessBundle reports whether a version of a bundle is older than another one of the same
// bundle; false if either does not parse. Bundles of one name have builds of one kind, so
// 1.2.3+build2 is older than 1.2.3+build10.
func LessBundle(a, b string) bool {
	va, vb := ParseKubernetes(a), ParseKubernetes(b)
	if va == nil || vb == nil {
		return false
	}
	if c := va.Compare(vb); c != 0 {
		return c < 0
	}
	return lessBuild(va.Metadata(), vb.Metadata())
}

// ParseKubernetes parses a version; nil if it is not one.
func ParseKubernetes(v string) *semver.Version {
	p, err := semver.NewVersion(v)
	if err != nil {
		return nil
	}
	return p
}

// lessBuild compares what follows the plus sign as runs of digits and of other
// characters: build2 is older than build10. No build is older than any, a build older than
// one that goes on (build1, build1.1). Other names (build1, site1) have no order.
func lessBuild(a, b string) bool {
	for a != "" && b != "" {
		x, restA, numberA := run(a)
		y, restB, numberB := run(b)
		switch {
		case numberA != numberB, !numberA && x != y:
			return false
		case x != y:
			return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) < 0
		}
		a, b = restA, restB
	}
	return a == "" && b != ""
}

// run cuts the first run of digits, without leading zeros, or of other characters off.
func run(s string) (first, rest string, number bool) {
	number = digit(s[0])
	end := 1
	for end < len(s) && digit(s[end]) == number {
		end++
	}
	if first = s[:end]; number {
		first = strings.TrimLeft(first, "0")
	}
	return first, s[end:], number
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// plainPair parses two versions of the form v1.2.3 without semver, because a plan of
// thirty thousand nodes compares each of them with the target.
func plainPair(a, b string) (x, y [3]int, ok bool) {
	x, okA := PlainKubernetes(a)
	y, okB := PlainKubernetes(b)
	return x, y, okA && okB
}

// PlainKubernetes parses a version of the form v1.2.3 or 1.2.3; false for any other.
func PlainKubernetes(v string) (out [3]int, ok bool) {
	v = strings.TrimPrefix(v, "v")
	for part := range out {
		text, rest, dot := strings.Cut(v, ".")
		n, ok := digits(text)
		if !ok || dot != (part < 2) {
			return out, false
		}
		out[part], v = n, rest
	}
	return out, true
}

// digits parses a number without a leading zero.
func digits(s string) (n int, ok bool) {
	if s == "" || len(s) > 9 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := range len(s) {
		if !digit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}
