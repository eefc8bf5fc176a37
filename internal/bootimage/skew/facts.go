package skew

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Names of facts that machines say of themselves.
const (
	FactCPU    = "cpu"
	FactShim   = "shim"
	FactGrub   = "grub"
	FactLoader = "loaderBuilt"
)

// MachineFact is the least value of a fact among machines.
type MachineFact struct {
	Name, Least string
	// Example is a machine with it, in words; Silent is how many do not say it.
	Example string
	Silent  int
}

// facts: every machine must have at least the wanted value; one that does not say
// it counts as one that has it not.
func (j *judge) facts(r Rule) {
	for _, name := range slices.Sorted(maps.Keys(r.MinimumFacts)) {
		want := r.MinimumFacts[name]
		have, who, silent := j.fact(name)
		if have == "" {
			j.say(r.Name, Unknown, "%s of at least %s is wanted%s, and that of its machines is not known", name, want, because(r))
			continue
		}
		c, same, err := CompareFact(name, have, want)
		switch {
		case err != nil:
			j.say(r.Name, Unknown, "%v", err)
		case !same: // another architecture: the rule is not about it
		case c < 0:
			j.say(r.Name, Breaks, "%s has %s %s, at least %s is wanted%s", who, name, have, want, because(r))
		case silent > 0:
			j.say(r.Name, Unknown, "%s of at least %s is wanted%s, and %d of its nodes do not say theirs", name, want, because(r), silent)
		}
	}
}

// fact as the nodes say it, or as it was declared for the machines to come.
func (j *judge) fact(name string) (value, who string, silent int) {
	for _, m := range j.in.Source.Machines {
		if m.Name == name && (m.Least != "" || m.Silent > 0) {
			return m.Least, m.Example, m.Silent
		}
	}
	return j.in.Source.Facts[name], "what is declared", 0
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
