package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// A scenario that finds a running lab of its name leaves that lab as it is, also at its
// end: a demo does not remove a user's lab.
func TestAnotherLabIsLeft(t *testing.T) {
	if err := lab.Preflight(); err != nil {
		t.Skip(err)
	}
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	dir := filepath.Join(state, "refit-lab", "theirs")
	must(t, os.MkdirAll(dir, 0o755))
	theirs := exec.Command("sleep", "600")
	must(t, theirs.Start())
	t.Cleanup(func() { _, _ = theirs.Process.Kill(), theirs.Wait() })
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", theirs.Process.Pid))
	must(t, err)
	started := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19] // field 22 of proc_pid_stat(5)
	text, err := json.Marshal(supervisor.Process{PID: theirs.Process.Pid, Start: started})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, supervisor.PIDName), text, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "complete"), nil, 0o600))

	s := &Scenario{Options: Options{Name: "theirs", Nodes: 2, From: "v1.35.4", Out: t.Output()}, work: t.TempDir(), phases: map[string]float64{}}
	if err := s.Up(t.Context()); !errors.As(err, new(lab.ErrUp)) {
		t.Fatalf("a lab that is up: %v", err)
	}
	must(t, s.Close(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
		t.Errorf("the user's own lab is gone: %v", err)
	}
	if p, err := supervisor.LoadProcess(dir); err != nil || !p.Alive() {
		t.Errorf("its process has ended: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
