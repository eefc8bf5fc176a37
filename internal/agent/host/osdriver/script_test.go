package osdriver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Answer is what a program says and ends with.
type Answer struct {
	Out  string
	Code int
}

// Script answers a command line by the longest key that it begins with. A program that
// no key names is not on the host.
type Script struct {
	Answers map[string]Answer
	// Do runs before an answer is looked up, and may change the answers.
	Do func(line string, s *Script)
	// Ran are the lines that were run.
	Ran []string
}

// Run answers.
func (s *Script) Run(ctx context.Context, _ io.Reader, argv ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	line := strings.Join(argv, " ")
	s.Ran = append(s.Ran, line)
	if s.Do != nil {
		s.Do(line, s)
	}
	best, known := "", false
	for key := range s.Answers {
		if strings.HasPrefix(line, key) && len(key) >= len(best) {
			best, known = key, true
		}
	}
	a := s.Answers[best]
	switch {
	case !known:
		return nil, fmt.Errorf("%s: %w", argv[0], exec.ErrNotFound)
	case a.Code != 0:
		return []byte(a.Out), &ToolError{Argv: argv, Code: a.Code, Said: a.Out}
	}
	return []byte(a.Out), nil
}

// Changes are the lines that were run, without those that only ask.
func (s *Script) Changes() []string {
	var out []string
	for _, l := range s.Ran {
		asks := false
		for _, word := range []string{"status", "--help", "--version", "config-diff", "show", "journalctl", "rev-parse"} {
			asks = asks || strings.Contains(l, word)
		}
		if !asks {
			out = append(out, l)
		}
	}
	return out
}

// Host is a host with these files; /proc/cmdline is among them.
func (s *Script) Host(t testing.TB, files map[string]string) Host {
	t.Helper()
	root := t.TempDir()
	if _, ok := files["proc/cmdline"]; !ok {
		files = with(files, "proc/cmdline", "root=/dev/x ostree=/ostree/boot.1/os/abc/0\n")
	}
	for path, text := range files {
		p := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(to, p)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Host{Runner: s, Root: root}
}

func with(files map[string]string, path, text string) map[string]string {
	out := map[string]string{path: text}
	for k, v := range files {
		out[k] = v
	}
	return out
}
