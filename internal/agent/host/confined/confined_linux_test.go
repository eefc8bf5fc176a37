package confined

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces and another user")
	}
}

// hostile builds the program that tries what it must not.
func hostile(t *testing.T) string {
	t.Helper()
	needRoot(t)
	program := filepath.Join(t.TempDir(), "hostile")
	c := exec.Command("go", "build", "-o", program, "./testdata/hostile")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// An untrusted program reaches nothing and sees only its arguments and files.
func TestAHostileProgramReachesNothing(t *testing.T) {
	program := hostile(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, err := Output(t.Context(), Command{Program: program, Args: []string{open, l.Addr().String()}, Files: map[string][]byte{"given": []byte("words")}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if want := "uid 65534 65534 65534\ngroups []\ngiven words\npid 1\n"; string(out) != want {
		t.Errorf("it could do\n%swant\n%s", out, want)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || bytes.Contains(mounts, []byte(dir)) {
		t.Errorf("a mount is left: %v", err)
	}
}

// A program that is no static ELF gets the host's interpreter and libraries.
func TestAScriptRuns(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	text := "#!/bin/sh\necho $1; cat /given; for d in / /usr /usr/bin /bin /lib; do touch $d/pwned 2>/dev/null && echo wrote $d; done; grep -c . /etc/passwd 2>/dev/null; exit 0\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := Output(t.Context(), Command{Program: script, Args: []string{"hello"}, Files: map[string][]byte{"given": []byte("words\n")}, Dir: dir})
	if err != nil || string(out) != "hello\nwords\n" {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestBounds(t *testing.T) {
	program := hostile(t)
	dir := t.TempDir()
	if _, err := Output(t.Context(), Command{Program: program, Args: []string{"flood"}, Dir: dir}); err == nil {
		t.Error("a flood of output was taken")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := Output(ctx, Command{Program: program, Args: []string{"stay"}, Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that stays: %v", err)
	}
	if _, err := Output(t.Context(), Command{Program: "/bin/sh", Args: []string{"-c", "echo why >&2; exit 3"}, Dir: dir}); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a program that fails: %v", err)
	}
	if _, err := Output(t.Context(), Command{Program: filepath.Join(dir, "none"), Dir: dir}); err == nil {
		t.Error("a program that is not there was run")
	}
}
