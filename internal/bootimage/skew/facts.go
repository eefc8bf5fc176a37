package skew

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Names of facts that machines report.
const (
	FactCPU    = "cpu"
	FactShim   = "shim"
	FactGrub   = "grub"
	FactLoader = "loaderBuilt"
)

// MachineFact is the lowest value of a fact among machines.
type MachineFact struct {
	Name, Least string
	// Example names a machine with that value; NotReporting counts machines without one.
	Example      string
	NotReporting int
}

// checkFacts: every machine must report at least the wanted value. A machine that reports
// none does not pass.
func (j *checker) checkFacts(r Rule) {
	for _, name := range slices.Sorted(maps.Keys(r.MinimumFacts)) {
		want := r.MinimumFacts[name]
		have, who, silent := j.lowestFact(name)
		if have == "" {
			j.addFinding(r.Name, Unknown, "%s of at least %s is wanted%s, and that of its machines is not known", name, want, reasonSuffix(r))
			continue
		}
		c, same, err := CompareFact(name, have, want)
		switch {
		case err != nil:
			j.addFinding(r.Name, Unknown, "%v", err)
		case !same: // another architecture: the rule is not about it
		case c < 0:
			j.addFinding(r.Name, Breaks, "%s has %s %s, at least %s is wanted%s", who, name, have, want, reasonSuffix(r))
		case silent > 0:
			j.addFinding(r.Name, Unknown, "%s of at least %s is wanted%s, and %d of its nodes do not say theirs", name, want, reasonSuffix(r), silent)
		}
	}
}

// lowestFact is the lowest value that nodes report, or the declared value for future machines.
func (j *checker) lowestFact(name string) (value, who string, silent int) {
	for _, m := range j.in.Source.Machines {
		if m.Name == name && (m.Least != "" || m.NotReporting > 0) {
			return m.Least, m.Example, m.NotReporting
		}
	}
	return j.in.Source.Facts[name], "the declaration", 0
}

// CompareFact compares two values of a fact. same is false if they are of
// different kinds, as processors of two architectures are.
func CompareFact(name, a, b string) (order int, same bool, err error) {
	if name != FactCPU {
		order, err = compareNumbers(name, a, b)
		return order, true, err
	}
	family, level := baseline(a)
	wanted, least := baseline(b)
	if family != wanted {
		return 0, false, nil
	}
	return cmp.Compare(level, least), true, nil
}

// compareNumbers compares versions and dates: numbers between dots or dashes.
func compareNumbers(name, a, b string) (int, error) {
	x, errA := numbers(a)
	y, errB := numbers(b)
	if errA != nil || errB != nil {
		return 0, fmt.Errorf("%s: %q and %q cannot be compared: numbers between dots are wanted", name, a, b)
	}
	for len(x) < len(y) {
		x = append(x, 0)
	}
	for len(y) < len(x) {
		y = append(y, 0)
	}
	return slices.Compare(x, y), nil
}

func numbers(text string) (out []int, err error) {
	for _, p := range strings.FieldsFunc(text, func(r rune) bool { return r == '.' || r == '-' }) {
		n, err := strconv.Atoi(p)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, strconv.ErrSyntax
	}
	return out, nil
}

// baseline of a processor: x86-64-v3 is level 3 of x86-64.
func baseline(text string) (family string, level int) {
	if i := strings.LastIndex(text, "-v"); i > 0 {
		if n, err := strconv.Atoi(text[i+2:]); err == nil {
			return text[:i], n
		}
	}
	return text, 0
}
