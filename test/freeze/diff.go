package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// renames are words of the older tree, each no part of a longer one, and what they are called now.
type renames []rename

type rename struct {
	old *regexp.Regexp
	now string
}

// readRenames reads lines "OLD -> NEW"; empty lines and those that begin with # are comments.
func readRenames(file string) (renames, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out renames
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		old, now, ok := strings.Cut(line, " -> ")
		if !ok {
			return nil, fmt.Errorf("%s:%d: want OLD -> NEW", file, i+1)
		}
		out = append(out, rename{regexp.MustCompile(`\b` + regexp.QuoteMeta(old) + `\b`), now})
	}
	return out, nil
}

func (rs renames) apply(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		for _, r := range rs {
			l = r.old.ReplaceAllLiteralString(l, r.now)
		}
		out[i] = l
	}
	return out
}

// differences are the lines of one side only, sorted without their sign.
func differences(before, after []string) []string {
	in := func(lines []string) map[string]bool {
		out := map[string]bool{}
		for _, l := range lines {
			out[l] = true
		}
		return out
	}
	old, now := in(before), in(after)
	var out []string
	for l := range old {
		if !now[l] {
			out = append(out, "- "+l)
		}
	}
	for l := range now {
		if !old[l] {
			out = append(out, "+ "+l)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		if c := strings.Compare(a[2:], b[2:]); c != 0 {
			return c
		}
		return strings.Compare(b[:1], a[:1]) // - before +
	})
	return out
}
