package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// subject is one package under test.
type subject struct {
	dir     string // relative to the module
	name    string
	root    string // of the module
	work    string // scratch folder
	flags   []string
	sources map[string][]byte
	units   map[string][]*unit
	mutants []*mutant
	broken  map[int]bool // does not compile
	binary  string
}

func load(root, dir, work string) (*subject, error) {
	list := exec.Command("go", "list", "-json=Name,GoFiles,TestImports,XTestImports", "./"+dir)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", dir, err)
	}
	var p struct {
		Name                               string
		GoFiles, TestImports, XTestImports []string
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return nil, err
	}
	s := &subject{dir: dir, name: p.Name, root: root, work: work, sources: map[string][]byte{}, units: map[string][]*unit{}, broken: map[int]bool{}}
	if slices.Contains(append(p.TestImports, p.XTestImports...), "pgregory.net/rapid") {
		s.flags = []string{"-rapid.nofailfile", "-rapid.checks=30"} // a failure writes nothing into the tree
	}
	for _, file := range p.GoFiles {
		if err := s.parse(file); err != nil {
			return nil, err
		}
	}
	return s, os.MkdirAll(work, 0o700)
}

func (s *subject) parse(file string) error {
	src, err := os.ReadFile(filepath.Join(s.root, s.dir, file))
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, 0)
	if err != nil {
		return err
	}
	f := &finder{fset: fset, src: src, add: func(m *mutant) {
		m.Package, m.File, m.ID = s.dir, file, len(s.mutants)+1
		s.mutants = append(s.mutants, m)
	}}
	s.sources[file] = src
	s.units[file] = f.file(tree)
	return nil
}

var compileError = regexp.MustCompile(`(?m)^\S*?([^/\s]+\.go):(\d+):\d+: (.*)$`)

// build compiles the test binary with all mutants that compile.
func (s *subject) build() error {
	s.binary = filepath.Join(s.work, "all.test")
	for range 20 {
		woven := map[string][]byte{}
		for file, src := range s.sources {
			woven[file] = weave(src, s.units[file], s.broken)
		}
		out, err := s.compile(s.binary, woven)
		if err == nil {
			return nil
		}
		before := len(s.broken)
		for _, e := range compileError.FindAllSubmatch(out, -1) {
			line, _ := strconv.Atoi(string(e[2]))
			if id := owner(woven[string(e[1])], line); id != 0 {
				s.broken[id] = true
			}
		}
		if len(s.broken) == before {
			return fmt.Errorf("build of %s with its mutants: %w\n%s", s.dir, err, bytes.TrimSpace(out))
		}
	}
	return fmt.Errorf("build of %s with its mutants: no end of errors", s.dir)
}

// buildAlone compiles a test binary with one mutant; false: it does not compile.
func (s *subject) buildAlone(m *mutant) (string, bool) {
	src := s.sources[m.File]
	text := slices.Concat(src[:m.start], []byte(m.text), src[m.end:])
	binary := filepath.Join(s.work, strconv.Itoa(m.ID)+".test")
	_, err := s.compile(binary, map[string][]byte{m.File: text})
	return binary, err == nil
}

// compile builds the tests with an overlay, so that no file of the tree changes.
func (s *subject) compile(binary string, files map[string][]byte) ([]byte, error) {
	at := binary + ".src"
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(at)
	files = cloned(files)
	files["zz_mutant_selected.go"] = fmt.Appendf(nil, selector, s.name)
	replace := map[string]string{}
	for file, text := range files {
		path := filepath.Join(at, file)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(s.root, s.dir, file)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(at, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", list, "-o", binary, "./"+s.dir)
	cmd.Dir = s.root
	return cmd.CombinedOutput()
}

func cloned(files map[string][]byte) map[string][]byte {
	all := map[string][]byte{}
	for k, v := range files {
		all[k] = v
	}
	return all
}
