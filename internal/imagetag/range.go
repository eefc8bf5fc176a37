package imagetag

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Range is a set of application versions, as in >=2.6 <3 || ~4.1. It is asked
// about the application's part alone, so that 2.6.2-rev1-b1.1 is in ~2.6. The
// zero Range has every version.
type Range struct {
	text string
	any  [][]bound // one of these lists, all bounds of it
}

type bound struct {
	op      string
	version version
	parts   int // numbers that were given: ~2.6 has two, 2.x has one
}

var boundText = regexp.MustCompile(`^(=|!=|>=|<=|>|<|~|\^)?v?(\d+(?:\.\d+)*)?((?:\.?[xX*])*)(-[0-9A-Za-z.-]+)?$`)

// ParseRange reads a range: bounds parted by spaces or commas must all hold, ||
// parts alternatives. A bound is a version behind =, !=, >, >=, <, <=, ~ (same
// minor) or ^ (same major); an x or a missing number stands for any.
func ParseRange(text string) (Range, error) {
	r := Range{text: text}
	for alternative := range strings.SplitSeq(text, "||") {
		var all []bound
		words := strings.FieldsFunc(joinOperators(alternative), func(c rune) bool { return c == ' ' || c == ',' })
		for _, w := range words {
			b, err := parseBound(w)
			if err != nil {
				return Range{}, fmt.Errorf("version range %q: %w", text, err)
			}
			all = append(all, b)
		}
		if len(all) == 0 {
			return Range{}, fmt.Errorf("version range %q: an alternative is empty; * is every version", text)
		}
		r.any = append(r.any, all)
	}
	return r, nil
}

var operatorSpace = regexp.MustCompile(`([=<>~^!])\s+`)

// joinOperators makes ">= 2.6" one word.
func joinOperators(s string) string { return operatorSpace.ReplaceAllString(s, "$1") }

func parseBound(w string) (bound, error) {
	m := boundText.FindStringSubmatch(w)
	if m == nil || (m[2] == "" && m[3] == "") || (m[4] != "" && m[3] != "") {
		return bound{}, fmt.Errorf("%q is no bound: write a version behind =, !=, >, >=, <, <=, ~ or ^", w)
	}
	b := bound{op: m[1], version: version{kind: release}} // of * too, which has no numbers
	if m[2] != "" {
		v, ok := parseVersion(m[2] + m[4])
		if !ok {
			return bound{}, fmt.Errorf("%q is no version", m[2])
		}
		b.version, b.parts = v, len(v.numbers)
	}
	return b, nil
}

// String is the range as it was written.
func (r Range) String() string { return r.text }

// Has says whether an application's version is in the range. A pre-release is
// only in a range that names a pre-release; what is no version is in none.
func (r Range) Has(app string) bool {
	if r.any == nil {
		return true
	}
	v, ok := parseVersion(app)
	if !ok || v.kind == unclear {
		return false
	}
	return slices.ContainsFunc(r.any, func(all []bound) bool {
		return !slices.ContainsFunc(all, func(b bound) bool { return !b.has(v) })
	})
}

func (b bound) has(v version) bool {
	if v.kind == preRelease && b.version.kind != preRelease {
		return false
	}
	return operators[b.op](b, v, b.compare(v))
}

// operators say whether version v, which compares with the bound as c, is inside.
var operators = map[string]func(b bound, v version, c int) bool{
	"":   bound.names,
	"=":  bound.names,
	"!=": func(b bound, v version, c int) bool { return !b.names(v, c) },
	">":  func(b bound, v version, c int) bool { return c > 0 && (b.exact(v) || !b.shares(v, b.parts)) },
	">=": func(_ bound, _ version, c int) bool { return c >= 0 },
	"<":  func(_ bound, _ version, c int) bool { return c < 0 },
	"<=": func(b bound, v version, c int) bool { return c <= 0 || (b.shares(v, b.parts) && !b.exact(v)) },
	"~":  func(b bound, v version, c int) bool { return c >= 0 && b.shares(v, min(2, b.parts)) },
	"^":  func(b bound, v version, c int) bool { return c >= 0 && b.shares(v, b.caret()) },
}

// names: the version is the bound's, or one that the bound's numbers begin.
func (b bound) names(v version, c int) bool {
	return b.shares(v, b.parts) && (b.version.kind != preRelease || c == 0)
}

// exact: the bound has as many numbers as the version, so that it names one.
func (b bound) exact(v version) bool { return b.parts >= len(v.numbers) }

// caret is how many leading numbers stay the same: up to the first that is not 0.
func (b bound) caret() int {
	i := slices.IndexFunc(b.version.numbers, func(n uint64) bool { return n != 0 })
	if i < 0 {
		return b.parts
	}
	return i + 1
}

func (b bound) shares(v version, n int) bool {
	return len(v.numbers) >= n && slices.Equal(v.numbers[:n], b.version.numbers[:n])
}

// compare orders a version with the bound, whose missing numbers are 0.
func (b bound) compare(v version) int {
	n := max(len(v.numbers), b.parts)
	fill := func(v version) version {
		v.numbers = append(slices.Clone(v.numbers), make([]uint64, n-len(v.numbers))...)
		return v
	}
	c, _, _ := compareVersions(fill(v), fill(b.version))
	return c
}

// InRange says whether the application's part of a tag is in the range.
func (s Scheme) InRange(text string, r Range) (bool, error) {
	t, err := s.Parse(text)
	if err != nil {
		return false, err
	}
	return r.Has(t.App), nil
}
