package systemd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/peerapi"
)

// fakeJournal puts a journalctl into PATH that runs a script, and returns the file with its
// arguments.
func fakeJournal(t *testing.T, script string) (args string) {
	t.Helper()
	dir := t.TempDir()
	args = filepath.Join(dir, "args")
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte("#!/bin/sh\necho \"$@\" >"+args+"\n"+script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return args
}

// The arguments are fixed but for numbers, and secrets do not leave.
func TestJournal(t *testing.T) {
	args := fakeJournal(t, "echo 'a line token=s3cret'; echo last")
	var out bytes.Buffer
	q := peerapi.LogQuery{Lines: 5, Since: 90 * time.Second}
	if err := Journal(t.Context(), q, &out); err != nil || out.String() != "a line token=[hidden]\nlast\n" {
		t.Errorf("%v %q", err, out.String())
	}
	got, err := os.ReadFile(args)
	if want := "--no-pager --quiet --output=short-iso --unit=refit-agent --unit=refit-preflight --lines=5 --since=-90s\n"; err != nil || string(got) != want {
		t.Errorf("%v %q", err, got)
	}
	q.Follow, q.Since = true, 0
	out.Reset()
	if err := Journal(t.Context(), q, &out); err != nil || out.String() != "a line token=[hidden]\nlast\n" {
		t.Errorf("%v %q", err, out.String())
	}
	if got, err := os.ReadFile(args); err != nil || !strings.HasSuffix(string(got), "--lines=5 --follow\n") {
		t.Errorf("%v %q", err, got)
	}
	fakeJournal(t, "exit 3")
	if err := Journal(t.Context(), q, &out); err == nil {
		t.Errorf("a journalctl that fails: %v", err)
	}
}

// The journalctl of this machine knows the arguments.
func TestRealJournalctl(t *testing.T) {
	var out bytes.Buffer
	err := Journal(t.Context(), peerapi.LogQuery{Lines: 3, Since: time.Hour}, &out)
	if err != nil && !strings.Contains(err.Error(), "executable file not found") {
		t.Error(err)
	}
}
