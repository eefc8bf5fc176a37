package statusreport

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes a script that the agent may run, and returns its path.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "light")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mode(t, path, 0o755)
	return path
}

func mode(t *testing.T, path string, m os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, m); err != nil {
		t.Fatal(err)
	}
}

// The program gets the state in its environment, and nothing else of the agent's.
func TestHookGetsTheState(t *testing.T) {
	t.Setenv("KUBECONFIG", "/etc/secret")
	out := filepath.Join(t.TempDir(), "got")
	path := program(t, `{ echo "$REFIT_NODE|$REFIT_COLOUR|$REFIT_SENTENCE|$REFIT_PROGRESS|$REFIT_PERCENT|$REFIT_MAY_PULL_MEDIUM|$KUBECONFIG|$#"; pwd; } > `+out)
	n := NodeStatus{Node: "n1", Colour: "blue", Sentence: "Leave it on; $(reboot)\n.", Progress: "Steps", Percent: 40, MayPullMedium: MediumYes}
	if err := (Hook{Path: path}).Run(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(b), "n1|blue|Leave it on; $(reboot)") || !strings.HasSuffix(string(b), "|Steps|40|yes||0\n/\n") || strings.Count(string(b), "\n") != 2 {
		t.Errorf("%q %v", b, err)
	}
}

// A program that hangs is killed together with its children; its output is bounded.
func TestHookFails(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	start := time.Now()
	err := Hook{Path: program(t, "(sleep 1; touch "+mark+") & sleep 60"), Limit: 200 * time.Millisecond}.Run(t.Context(), NodeStatus{})
	if err == nil || !strings.Contains(err.Error(), "was killed after 200ms") || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	err = Hook{Path: program(t, "echo no light; head -c 1000000 /dev/zero | tr '\\0' x; exit 3")}.Run(t.Context(), NodeStatus{})
	if err == nil || !strings.Contains(err.Error(), "exit status 3: no light") || len(err.Error()) > 2*hookOutput {
		t.Errorf("%.300v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Hook{Path: program(t, "exit 0")}).Run(ctx, NodeStatus{}); err == nil {
		t.Error("a program was run after the end of the agent")
	}
	time.Sleep(time.Until(start.Add(1500 * time.Millisecond)))
	if _, err := os.Stat(mark); err == nil {
		t.Error("a child of the killed program continued")
	}
}

// A program that others than root can replace is not run.
func TestHookRefusesAProgram(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, path string) string
		want   string
	}{
		"its group may write it":   {func(t *testing.T, p string) string { mode(t, p, 0o775); return p }, "others than root may write"},
		"everyone may write it":    {func(t *testing.T, p string) string { mode(t, p, 0o757); return p }, "others than root may write"},
		"its directory is open":    {func(t *testing.T, p string) string { mode(t, filepath.Dir(p), 0o777); return p }, "others than root may write"},
		"a relative path":          {func(_ *testing.T, _ string) string { return "light" }, "not absolute"},
		"no file":                  {func(_ *testing.T, p string) string { return p + "x" }, "no such file"},
		"a directory":              {func(_ *testing.T, p string) string { return filepath.Dir(p) }, "not a regular file"},
		"a link to an open file":   {func(t *testing.T, p string) string { mode(t, p, 0o775); return link(t, p) }, "others than root may write"},
		"a link to itself":         {func(t *testing.T, p string) string { l := p + "l"; return linkTo(t, l, l) }, "too many symbolic links"},
		"a file of another user":   {foreign, "does not belong to root"},
		"a program that cannot be": {func(t *testing.T, p string) string { mode(t, p, 0o600); return p }, "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "mark")
			path := c.change(t, program(t, "touch "+mark))
			err := Hook{Path: path}.Run(t.Context(), NodeStatus{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
			if _, err := os.Stat(mark); err == nil {
				t.Error("it was run")
			}
		})
	}
	if err := (Hook{Path: link(t, program(t, "exit 0"))}).Run(t.Context(), NodeStatus{}); err != nil {
		t.Errorf("a link of root to a program of root: %v", err)
	}
}

func link(t *testing.T, target string) string {
	return linkTo(t, filepath.Join(t.TempDir(), "link"), target)
}

func linkTo(t *testing.T, path, target string) string {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func foreign(t *testing.T, path string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	return path
}
