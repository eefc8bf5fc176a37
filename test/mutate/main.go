package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// pure are the packages that decide and have no client, disk or clock.
var pure = []string{
	"internal/pipeline/drain", "internal/pipeline/bundle", "internal/pipeline/gate", "internal/pipeline/pin",
	"internal/pipeline/updateplan", "internal/pipeline/rollout", "internal/bootimage", "internal/imagetag/restartforecast", "internal/bootimage/skew",
	"internal/imagetag/track", "internal/imagetag",
}

type options struct {
	root, folder string
	packages     []string
	functions    map[string]bool // only these, all mutants; empty: all functions
	sample       int             // 0: all
	seed         uint64
	parallel     int
	minimum      float64
	result       string
	verbose      bool
}

func main() {
	o := options{root: "."}
	packages := flag.String("packages", "", "packages to change, separated by commas (default: all pure packages)")
	predicates := flag.Bool("predicates", false, "change every function of predicates.txt exhaustively, and accept no survivor")
	flag.IntVar(&o.sample, "sample", 600, "number of mutants to draw over all packages; 0 takes all")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.IntVar(&o.parallel, "parallel", 2, "mutants to test at once")
	flag.Float64Var(&o.minimum, "minimum", 85, "lowest accepted score in percent")
	flag.StringVar(&o.result, "result", "", "file to write the result to; a run below the minimum leaves it as it is")
	flag.BoolVar(&o.verbose, "v", false, "print each mutant with its verdict")
	flag.Parse()
	o.folder = filepath.Join("test", "mutate")
	o.packages = pure
	if *predicates {
		o.sample, o.minimum = 0, 100
	}
	if err := o.read(*packages, *predicates); err != nil {
		fail(err)
	}
	report, err := o.measure()
	if err != nil {
		fail(err)
	}
	text := report.String()
	fmt.Print(text)
	if report.score() < o.minimum {
		fail(fmt.Errorf("score %.1f%% is below %.1f%%: write a test for the survivors, or list those that change nothing in test/mutate/equivalent.txt with the reason", report.score(), o.minimum))
	}
	if o.result != "" {
		if err := os.WriteFile(o.result, []byte(text), 0o644); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutate:", err)
	os.Exit(1)
}

// read takes the list of packages, or that of the predicates.
func (o *options) read(packages string, predicates bool) error {
	if packages != "" {
		o.packages = strings.Split(packages, ",")
	}
	if !predicates {
		return nil
	}
	lines, err := readList(filepath.Join(o.root, o.folder, "predicates.txt"))
	if err != nil {
		return err
	}
	o.functions = map[string]bool{}
	in := map[string]bool{}
	for _, line := range lines {
		dir, names, _ := strings.Cut(line, " ")
		in[dir] = true
		for _, name := range strings.Fields(names) {
			o.functions[dir+" "+name] = true
		}
	}
	if packages == "" {
		o.packages = nil
		for _, dir := range pure {
			if in[dir] {
				o.packages = append(o.packages, dir)
			}
		}
	}
	return nil
}

// measure builds all packages, draws the sample and tests it.
func (o *options) measure() (*report, error) {
	work, err := os.MkdirTemp("", "refit-mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	equivalent, err := readList(filepath.Join(root, o.folder, "equivalent.txt"))
	if err != nil {
		return nil, err
	}
	var subjects []*subject
	for _, dir := range o.packages {
		s, err := load(root, dir, filepath.Join(work, strings.ReplaceAll(dir, "/", "-")))
		if err != nil {
			return nil, err
		}
		if err := s.build(); err != nil {
			return nil, err
		}
		subjects = append(subjects, s)
	}
	chosen, err := o.choose(subjects)
	if err != nil {
		return nil, err
	}
	r := &report{options: o, commit: commit(root)}
	same, err := equivalents(equivalent, subjects)
	if err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if err := o.one(s, chosen[s], same, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// choose draws from the mutants that compile, so far as that is known.
func (o *options) choose(subjects []*subject) (map[*subject][]*mutant, error) {
	type candidate struct {
		s *subject
		m *mutant
	}
	var all []candidate
	found := map[string]bool{}
	for _, s := range subjects {
		for _, m := range s.mutants {
			name := s.dir + " " + m.Function
			found[name] = true
			if !s.broken[m.ID] && (o.functions == nil || o.functions[name]) {
				all = append(all, candidate{s, m})
			}
		}
	}
	if err := o.known(found); err != nil {
		return nil, err
	}
	if o.sample > 0 && o.sample < len(all) {
		rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:o.sample]
	}
	chosen := map[*subject][]*mutant{}
	for _, c := range all {
		chosen[c.s] = append(chosen[c.s], c.m)
	}
	return chosen, nil
}

// known refuses a predicate that is gone: its place in the list must follow it.
func (o *options) known(found map[string]bool) error {
	for name := range o.functions {
		if !found[name] && hasPackage(o.packages, name) {
			return fmt.Errorf("predicates.txt: %s does not exist or has nothing to change", name)
		}
	}
	return nil
}

func hasPackage(packages []string, function string) bool {
	for _, p := range packages {
		if strings.HasPrefix(function, p+" ") {
			return true
		}
	}
	return false
}

func (o *options) one(s *subject, mutants []*mutant, same map[string]string, r *report) error {
	limit, err := s.baseline()
	if err != nil {
		return err
	}
	var test []*mutant
	row := row{dir: s.dir, all: len(s.mutants) - len(s.broken)}
	for _, m := range mutants {
		if same[m.key()] != "" {
			row.equivalent++
			continue
		}
		test = append(test, m)
	}
	for i, verdict := range s.run(test, o.parallel, limit) {
		row.count(verdict)
		if verdict == survived {
			r.survivors = append(r.survivors, test[i])
		}
		if o.verbose {
			fmt.Fprintf(os.Stderr, "%s: %s\n", verdict, test[i])
		}
	}
	r.rows = append(r.rows, row)
	fmt.Fprintln(os.Stderr, row)
	return nil
}
