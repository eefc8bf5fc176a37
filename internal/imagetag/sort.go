package imagetag

import (
	"cmp"
	"slices"
	"strings"
)

// Sorted is a list of tags with their order, where they have one.
type Sorted struct {
	Lines    []Line    `json:"lines"`              // points, one line for each order
	Pointers []string  `json:"pointers,omitempty"` // tags that may move
	Refused  []Refused `json:"refused,omitempty"`  // no tags of the scheme
}

// Line is a set of points that compare with each other, the oldest first. Tags
// that are Same stand next to each other.
type Line struct {
	Variant string   `json:"variant,omitempty"`
	Tags    []string `json:"tags"`
}

// Refused is a tag that the scheme cannot read.
type Refused struct {
	Tag string `json:"tag"`
	Why string `json:"why"`
}

// Sort puts tags of one repository and project in order. Points that have no
// order with each other stand in different lines.
func (s Scheme) Sort(tags []string) Sorted {
	var out Sorted
	var points []Tag
	for _, text := range tags {
		t, err := s.Parse(text)
		switch {
		case err != nil:
			out.Refused = append(out.Refused, Refused{Tag: text, Why: err.Error()})
		case !t.Point():
			out.Pointers = append(out.Pointers, text)
		default:
			points = append(points, t)
		}
	}
	slices.Sort(out.Pointers)
	for _, line := range s.lines(points) {
		l := Line{Variant: line[0].Variant}
		for _, t := range line {
			l.Tags = append(l.Tags, t.Text)
		}
		out.Lines = append(out.Lines, l)
	}
	return out
}

// lines puts each point into the first line in which it compares with all.
func (s Scheme) lines(points []Tag) [][]Tag {
	slices.SortFunc(points, s.place)
	var lines [][]Tag
	for _, t := range points {
		i := slices.IndexFunc(lines, func(l []Tag) bool { return s.fits(l, t) })
		if i < 0 {
			lines = append(lines, []Tag{t})
			continue
		}
		lines[i] = append(lines[i], t)
	}
	return lines
}

// fits says whether a point compares with all of a line. The line is sorted, so
// those of the point's own version, at the end, and one other decide.
func (s Scheme) fits(line []Tag, t Tag) bool {
	for i := len(line) - 1; i >= 0; i-- {
		if o, _ := s.CompareTags(line[i], t); o == Incomparable {
			return false
		}
		if a, b := numbersOf(s, line[i]), numbersOf(s, t); slices.Compare(a, b) != 0 {
			return true
		}
	}
	return true
}

func numbersOf(s Scheme, t Tag) []uint64 {
	v, _ := s.version(t)
	return v.numbers
}

// place is a total order that agrees with CompareTags where that has an answer.
func (s Scheme) place(a, b Tag) int {
	va, oka := s.version(a)
	vb, okb := s.version(b)
	if c := cmp.Or(strings.Compare(a.Variant, b.Variant), cmp.Compare(boolRank(oka), boolRank(okb)), cmp.Compare(len(va.numbers), len(vb.numbers)), slices.Compare(va.numbers, vb.numbers)); c != 0 {
		return c
	}
	if o, _ := s.CompareTags(a, b); o == Older {
		return -1
	} else if o == Newer {
		return 1
	}
	return cmp.Or(cmp.Compare(boolRank(va.kind == unclear), boolRank(vb.kind == unclear)), strings.Compare(va.meta, vb.meta), strings.Compare(a.App, b.App), strings.Compare(a.Text, b.Text))
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}
