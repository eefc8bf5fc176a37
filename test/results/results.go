// Package results keeps what a test measured, in a committed file, and compares goldens.
//
// Promise: a results file is written only by a test that passed, and names by itself
// the commit that was measured and the time. A test that failed writes what it saw
// to bin/results-failed instead; a test that was skipped writes nothing. The
// commit is read when the test starts; "-dirty" is appended if a tracked file differs
// from it, results files apart.
//
// Inputs: the test, the file, the value to keep (a struct or a map, as JSON).
// Outputs: the file. Callers: test/e2e, bench.
package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Keep writes value() to file when the test ends, if it passed. Register it before
// the clean-up that may still fail the test: clean-ups run in reverse order.
func Keep(t testing.TB, file string, value func() any) {
	t.Helper()
	head := header{Date: time.Now().UTC().Format(time.RFC3339), Commit: Commit(t)}
	t.Cleanup(func() {
		if t.Skipped() {
			return
		}
		text, err := head.with(value())
		if err != nil {
			t.Errorf("results for %s: %v", file, err)
			return
		}
		to := file
		if t.Failed() {
			to = filepath.Join(root(t), "bin", "results-failed", filepath.Base(file))
			t.Logf("the test failed: %s stays as it is, what was seen is in %s", file, to)
		}
		if err := write(to, text); err != nil {
			t.Errorf("results: %v", err)
		}
	})
}

// measured is the commit that this process measures: a commit made while the tests run
// is not what they ran.
var measured struct {
	sync.Once
	commit string
	err    error
}

// Commit of the checkout when it was first asked for, with "-dirty" if tracked files
// differed from it.
func Commit(t testing.TB) string {
	t.Helper()
	dir := root(t)
	measured.Do(func() { measured.commit, measured.err = checkout(dir) })
	if measured.err != nil {
		t.Fatalf("which commit is measured: %v", measured.err)
	}
	return measured.commit
}

func checkout(dir string) (string, error) {
	commit, err := git(dir, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git(dir, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return "", err
	}
	if differs(changed) {
		commit += "-dirty"
	}
	return commit, nil
}

// differs reports whether `git status --porcelain` names a file that is no result.
func differs(status string) bool {
	for line := range strings.Lines(status) {
		if name := strings.TrimSpace(line); name != "" && !strings.Contains(name, "/results/") {
			return true
		}
	}
	return false
}

func git(dir string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// root of the module: the folder of go.mod above the test's working directory.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

type header struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
}

// with puts the header before the members of value, which is a JSON object.
func (h header) with(value any) ([]byte, error) {
	first, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if len(rest) < 2 || rest[0] != '{' {
		return nil, fmt.Errorf("a result is a JSON object, not %.20s", rest)
	}
	if string(rest) != "{}" {
		first = append(append(first[:len(first)-1], ','), rest[1:]...)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, first, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// write replaces the file whole, so that a test that is killed leaves no half of one.
func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	part := file + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, file)
}
