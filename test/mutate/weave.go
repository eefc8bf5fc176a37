package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// mark begins each mutant in the woven source, so that a line of a compiler
// error names its mutant.
const mark = "//mutant "

// selector is added to the package: which mutant runs.
const selector = `package %s

import (
	"os"
	"strconv"
)

var mutantSelected = func() int { n, _ := strconv.Atoi(os.Getenv("REFIT_MUTANT")); return n }()
`

// weave returns the file with all mutants in it, each selected by its number.
// Those in broken are left out.
func weave(src []byte, units []*unit, broken map[int]bool) []byte {
	var b bytes.Buffer
	between(&b, src, 0, len(src), units, broken)
	return b.Bytes()
}

func between(b *bytes.Buffer, src []byte, from, to int, units []*unit, broken map[int]bool) {
	for _, u := range units {
		b.Write(src[from:u.start])
		one(b, src, u, broken)
		from = u.end
	}
	b.Write(src[from:to])
}

func one(b *bytes.Buffer, src []byte, u *unit, broken map[int]bool) {
	original := func() { between(b, src, u.start, u.end, u.inner, broken) }
	var live []*mutant
	for _, m := range u.mutants {
		if !broken[m.ID] {
			live = append(live, m)
		}
	}
	switch {
	case len(live) == 0:
		original()
	case u.condition:
		b.WriteString("func() bool {\n")
		for _, m := range live {
			fmt.Fprintf(b, "if mutantSelected == %d { return (\n%s%d\n%s)\n//end\n}\n", m.ID, mark, m.ID, m.apply(src, u))
		}
		b.WriteString("return (")
		original()
		b.WriteString(")}()")
	case u.define:
		original()
		for _, m := range live {
			fmt.Fprintf(b, "\nif mutantSelected == %d {\n%s%d\n%s\n//end\n}", m.ID, mark, m.ID, m.text)
		}
	default:
		for _, m := range live {
			fmt.Fprintf(b, "if mutantSelected == %d {\n%s%d\n%s\n//end\n} else ", m.ID, mark, m.ID, m.apply(src, u))
		}
		b.WriteString("{ ")
		original()
		b.WriteString(" }")
	}
}

// apply returns the unit with the mutant in it.
func (m *mutant) apply(src []byte, u *unit) string {
	if m.whole {
		return m.text
	}
	return string(src[u.start:m.start]) + m.text + string(src[m.end:u.end])
}

// owner returns the mutant that a line of woven source belongs to, or 0.
func owner(woven []byte, line int) int {
	id := 0
	for i, text := range strings.Split(string(woven), "\n") {
		if number, ok := strings.CutPrefix(text, mark); ok {
			id, _ = strconv.Atoi(number)
		}
		if i+1 == line {
			return id
		}
		if text == "//end" {
			id = 0
		}
	}
	return 0
}
