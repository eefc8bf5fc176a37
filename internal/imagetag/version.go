package imagetag

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// version is the application's part of a tag, taken apart. The order of two
// versions is a strict partial order: numbers first, then the kind of the rest.
type version struct {
	numbers []uint64
	kind    kind
	rest    string // pre-release after the hyphen, or what is attached to the last number
	meta    string // after the underscore of a semantic version: no order
}

// kind of what follows the numbers.
type kind int

const (
	preRelease kind = iota // 2.7.0-rc.1: below the release
	release                // 2.7.0
	attached               // 1.1.1w: above the release, as package managers have it
	unclear                // 1.0.0rc1: before or after the release? comparable only with its like
)

var (
	versionText = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(.*)$`)
	unclearText = regexp.MustCompile(`^[._]?(?i:alpha|beta|rc|pre|dev|snapshot|a\d|b\d|m\d)`)
	segment     = regexp.MustCompile(`\d+|[A-Za-z]+`)
)

// parseVersion reads an application's version; ok is false for one that begins
// with no number, or has a number beyond 64 bits.
func parseVersion(app string) (v version, ok bool) {
	m := versionText.FindStringSubmatch(app)
	if m == nil {
		return v, false
	}
	numbers, err := numberList(m[1], false)
	if err != nil {
		return v, false
	}
	v = version{numbers: numbers, kind: release, rest: m[2]}
	switch {
	case v.rest == "":
	case v.rest[0] == '-' && len(v.rest) > 1:
		v.kind, v.rest = preRelease, v.rest[1:]
	case unclearText.MatchString(v.rest):
		v.kind = unclear
	default:
		v.kind = attached
	}
	return v, true
}

// numberList reads 5.1 as 5, 1. strict refuses leading zeros, which would give
// two tags one meaning.
func numberList(s string, strict bool) ([]uint64, error) {
	var list []uint64
	for part := range strings.SplitSeq(s, ".") {
		if strict && len(part) > 1 && part[0] == '0' {
			return nil, fmt.Errorf("number %s has a leading zero", part)
		}
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("number %s does not fit into 64 bits", part)
		}
		list = append(list, n)
	}
	return list, nil
}

// compareVersions orders two application versions; ok is false, with the reason,
// if there is no order between them.
func compareVersions(a, b version) (order int, why string, ok bool) {
	if len(a.numbers) != len(b.numbers) {
		return 0, fmt.Sprintf("%d and %d numbers: the shorter may stand for many of the longer", len(a.numbers), len(b.numbers)), false
	}
	if c := slices.Compare(a.numbers, b.numbers); c != 0 {
		return c, "", true
	}
	if a.kind != b.kind {
		if a.kind == unclear || b.kind == unclear {
			return 0, "it is unclear whether " + unclearOf(a, b) + " comes before or after the release", false
		}
		return cmp.Compare(a.kind, b.kind), "", true
	}
	c := compareRest(a, b)
	if c == 0 && a.meta != b.meta {
		return 0, "they differ only in what follows the underscore, which has no order", false
	}
	return c, "", true
}

func unclearOf(a, b version) string {
	if a.kind == unclear {
		return strconv.Quote(a.rest)
	}
	return strconv.Quote(b.rest)
}

func compareRest(a, b version) int {
	if a.kind == preRelease {
		return comparePre(a.rest, b.rest)
	}
	if c := slices.CompareFunc(segment.FindAllString(a.rest, -1), segment.FindAllString(b.rest, -1), compareWords); c != 0 {
		return c
	}
	return strings.Compare(a.rest, b.rest)
}

// comparePre orders pre-releases as semantic versioning does: identifier by
// identifier, numbers below words, the shorter list below.
func comparePre(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), compareWords)
}

// compareWords orders two segments: numbers as integers and below words, words
// by their bytes.
func compareWords(a, b string) int {
	an, bn := isNumber(a), isNumber(b)
	switch {
	case an && bn:
		return compareDigits(a, b)
	case an:
		return -1
	case bn:
		return 1
	}
	return strings.Compare(a, b)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// compareDigits orders digit strings of any length by their value.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}
