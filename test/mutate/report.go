package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// row is the count of one package.
type row struct {
	dir                         string
	all                         int // mutants that can be tested
	killed, timedOut, survivors int
	equivalent                  int
}

func (r *row) count(verdict string) {
	switch verdict {
	case killed:
		r.killed++
	case timedOut:
		r.timedOut++
	case survived:
		r.survivors++
	}
}

func (r row) tested() int { return r.killed + r.timedOut + r.survivors }

func (r row) score() float64 {
	if r.tested() == 0 {
		return 100
	}
	return 100 * float64(r.killed+r.timedOut) / float64(r.tested())
}

func (r row) String() string {
	return fmt.Sprintf("%-28s %7d %7d %7d %9d %11d %9d %6.1f%%", r.dir, r.all, r.tested(), r.killed, r.timedOut, r.equivalent, r.survivors, r.score())
}

type report struct {
	options   *options
	commit    string
	rows      []row
	survivors []*mutant
}

func (r *report) total() row {
	sum := row{dir: "all"}
	for _, x := range r.rows {
		sum.all += x.all
		sum.killed += x.killed
		sum.timedOut += x.timedOut
		sum.survivors += x.survivors
		sum.equivalent += x.equivalent
	}
	return sum
}

func (r *report) score() float64 { return r.total().score() }

func (r *report) String() string {
	var b strings.Builder
	what := fmt.Sprintf("a sample of %d, seed %d", r.options.sample, r.options.seed)
	switch {
	case r.options.functions != nil:
		what = "every mutant of the functions in predicates.txt"
	case r.options.sample == 0:
		what = "every mutant"
	}
	fmt.Fprintf(&b, "commit: %s\nmutants: %s\n\n", r.commit, what)
	fmt.Fprintf(&b, "%-28s %7s %7s %7s %9s %11s %9s %7s\n", "package", "mutants", "tested", "killed", "timed out", "equivalent", "survived", "score")
	for _, x := range r.rows {
		fmt.Fprintln(&b, x)
	}
	fmt.Fprintln(&b, r.total())
	if len(r.survivors) > 0 {
		fmt.Fprintf(&b, "\nsurvivors:\n")
	}
	for _, m := range r.survivors {
		fmt.Fprintln(&b, m)
	}
	return b.String()
}

// String names the place as an editor opens it, and the change.
func (m *mutant) String() string {
	return fmt.Sprintf("%s/%s:%d: %s: %s  =>  %s", m.Package, m.File, m.Line, m.Function, m.Old, m.New)
}

// key names the mutant in equivalent.txt, without its line.
func (m *mutant) key() string {
	return fmt.Sprintf("%s/%s: %s: %s  =>  %s", m.Package, m.File, m.Function, m.Old, m.New)
}

// equivalents returns the reason of each listed mutant. A line that names no
// mutant any more is an error: the code changed, so must the list.
func equivalents(lines []string, subjects []*subject) (map[string]string, error) {
	known := map[string]bool{}
	for _, s := range subjects {
		for _, m := range s.mutants {
			known[m.key()] = true
		}
	}
	reasons := map[string]string{}
	for _, line := range lines {
		key, reason, ok := strings.Cut(line, "  # ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("equivalent.txt: no reason after \"  # \": %s", line)
		}
		if !known[key] && among(subjects, key) {
			return nil, fmt.Errorf("equivalent.txt: no such mutant, remove the line: %s", key)
		}
		reasons[key] = reason
	}
	return reasons, nil
}

func among(subjects []*subject, key string) bool {
	file, _, _ := strings.Cut(key, ": ")
	for _, s := range subjects {
		if dir, _, _ := strings.Cut(strings.TrimPrefix(file, s.dir+"/"), "/"); strings.HasPrefix(file, s.dir+"/") && strings.HasSuffix(dir, ".go") {
			return true
		}
	}
	return false
}

// readList returns the lines that are neither empty nor comments.
func readList(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// commit names the tree that was measured, and what of it is not committed.
func commit(root string) string {
	head := exec.Command("git", "rev-parse", "HEAD")
	head.Dir = root
	out, err := head.Output()
	if err != nil {
		return "unknown"
	}
	status := exec.Command("git", "status", "--porcelain", "--", "*.go", "go.mod")
	status.Dir = root
	changed, err := status.Output()
	if err != nil || len(changed) == 0 {
		return strings.TrimSpace(string(out))
	}

	return fmt.Sprintf("%s, with changes that are not committed", strings.TrimSpace(string(out)))
}
