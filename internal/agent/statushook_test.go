package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/statusreport"
)

// hookProgram writes a script for statusHook.
func hookProgram(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "light")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// runHook runs the hook's loop over states that the test sets: the agent of n is stopped.
func runHook(t *testing.T, n *testNode, program string, retry time.Duration) (show func(phase string)) {
	t.Helper()
	n.stop()
	sh := n.agent.shared
	sh.conf.StatusHook = program
	show = func(phase string) {
		sh.local.Store(&statusreport.Local{Node: n.name, WrittenAt: time.Now(), Status: &v1alpha1.NodeUpdateStatus{Phase: phase}})
		wake(sh.wakeHook)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&statusHook{shared: sh, hook: statusreport.Hook{Path: program}, retry: retry}).Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return show
}

// A state that changes several times while the program runs makes one more run, with the last
// state; a state that does not change makes none.
func TestStatusHookRunsAgainWithTheLastState(t *testing.T) {
	dir := t.TempDir()
	out, wait := filepath.Join(dir, "out"), filepath.Join(dir, "wait")
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	show := runHook(t, newTestNode(t, "n1", 18015), hookProgram(t, "mkdir "+dir+"/lock || echo parallel >> "+out+"\n"+
		`echo "$REFIT_COLOUR" >> `+out+"\nwhile [ -e "+wait+" ]; do sleep 0.05; done\nrmdir "+dir+"/lock"), time.Hour)
	lines := func() string {
		b, _ := os.ReadFile(out)
		return string(b)
	}
	show("Ready")
	eventually(t, func() string { return hasText(lines(), "\n") })
	first := lines()
	for _, phase := range []string{"Failed", "Ready", "Updating", "Failed"} {
		show(phase)
	}
	time.Sleep(200 * time.Millisecond)
	if got := lines(); got != first {
		t.Errorf("a second program ran next to the first: %q", got)
	}
	if err := os.Remove(wait); err != nil {
		t.Fatal(err)
	}
	want := first + "red\n"
	eventually(t, func() string { return hasText(lines(), want) })
	show("Failed")
	time.Sleep(200 * time.Millisecond)
	if got := lines(); got != want || first == "red\n" {
		t.Errorf("%q, want %q", got, want)
	}
}

// A program that its group may write is a problem of the node.
func TestStatusHookIsRefusedWithAReason(t *testing.T) {
	n := newTestNode(t, "n1", 18016)
	n.stop()
	n.conf.StatusHook = hookProgram(t, "exit 0")
	if err := os.Chmod(n.conf.StatusHook, 0o775); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.reported("the refused program", func(s *v1alpha1.NodeUpdateStatus) bool {
		return len(s.Problems) == 1 && s.Problems[0].Reason == agentconfig.ReasonInvalid && s.Problems[0].Object == hookObject &&
			strings.Contains(s.Problems[0].Message, "others than root may write") && s.Problems[0].Fix != ""
	})
}

// Failures in a row are reported once; the program is tried again without a change, and its success
// ends the problem.
func TestStatusHookIsTriedAgain(t *testing.T) {
	n := newTestNode(t, "n1", 18017)
	out := filepath.Join(t.TempDir(), "out")
	var logged bytes.Buffer
	n.stop()
	n.agent.log = slog.New(slog.NewTextHandler(&logged, nil))
	show := runHook(t, n, hookProgram(t, "echo x >> "+out+`; [ "$(wc -l < `+out+`)" -ge 3 ]`), 20*time.Millisecond)
	show("Failed")
	eventually(t, func() string {
		b, _ := os.ReadFile(out)
		return hasText(string(b), "x\nx\nx\n")
	})
	eventually(t, func() string {
		for _, p := range n.agent.problems.List(time.Now()) {
			if p.Object == hookObject && !p.Repaired {
				return p.Message
			}
		}
		return ""
	})
	if got := strings.Count(logged.String(), "exit status 1"); got != 1 {
		t.Errorf("two failures were logged %d times:\n%s", got, &logged)
	}
}
