package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// onDir is an agent with its state in a directory.
func onDir(t *testing.T, state, run string) *Agent {
	t.Helper()
	a, err := New(agentconfig.Config{Node: "n1", StateDir: state, RunDir: run, Kubeconfig: filepath.Join(run, "none"), Address: "127.0.0.1:1", NoDevices: true},
		Parts{API: newFakeAPI(), Runtime: &fakeRuntime{}, Runner: func(Store) Runner { return noRun{} }, Facts: noFacts{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	return a
}

// stateFiles are what the agent keeps in its state directory.
var stateFiles = []string{"pins.json", "want.json", "key.pem", "drill.json", "sources.json", "authority.json", "preflight.json", "clean-end", "first-contact.json", "bundles", "blobs"}

// An agent starts with any file of its state damaged, and with all of them; its status
// says which.
func TestTheAgentStartsWithDamagedState(t *testing.T) {
	t.Parallel()
	for _, d := range disktest.Damages() {
		for _, files := range append([][]string{stateFiles}, slices.Collect(slices.Chunk(stateFiles, 1))...) {
			t.Run(d.Name+" "+strings.Join(files, " "), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				state, run := filepath.Join(dir, "state"), filepath.Join(dir, "run")
				onDir(t, state, run).unlock()
				for _, f := range files {
					if err := os.RemoveAll(filepath.Join(state, f)); err != nil {
						t.Fatal(err)
					}
					d.Apply(t, filepath.Join(state, f))
				}
				a := onDir(t, state, run)
				defer a.unlock()
				known := a.problems.List(time.Now())
				for _, f := range files {
					if !slices.Contains([]string{"pins.json", "want.json", "key.pem", "sources.json", "authority.json", "bundles", "blobs"}, f) {
						continue // what others read
					}
					if !slices.ContainsFunc(known, func(p statefile.Problem) bool { return p.Object == filepath.Join(state, f) }) {
						t.Errorf("nothing says that %s is damaged: %+v", f, known)
					}
				}
			})
		}
	}
}

// An agent starts on a disk that is full or read-only, from the first start on.
func TestTheAgentStartsWithoutAWritableDisk(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(f *disktest.FS){
		"full":      func(f *disktest.FS) { f.Fill() },
		"read-only": func(f *disktest.FS) { f.ReadOnly() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
				spoil(f)
				a := onDir(t, f.Path("state"), t.TempDir())
				defer a.unlock()
				known := a.problems.List(time.Now())
				if !slices.ContainsFunc(known, func(p statefile.Problem) bool { return p.Reason == statefile.ReasonNotWritable && p.Fix != "" }) {
					t.Errorf("%+v", known)
				}
				if a.id.PublicKey() == "" {
					t.Error("it has no key")
				}
			})
		})
	}
}

// One agent works on a node.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	defer onDir(t, filepath.Join(dir, "state"), dir).unlock()
	if _, err := lockAgent(agentconfig.Config{RunDir: dir}); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Error(err)
	}
}

// What is wrong is in the status with its fix, as condition Degraded, and is gone when it is
// repaired or switched back.
func TestProblemsAreInTheStatus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := onDir(t, filepath.Join(dir, "state"), dir)
	defer a.unlock()
	off := ""
	a.problemReport.off = func() string { return off }
	a.state.observed = &v1alpha1.Observed{BootID: "b1"}
	status := func() *v1alpha1.NodeUpdateStatus {
		a.problemReport.checkColdStart()
		a.state.problems = a.problems.List(time.Now())
		return a.status.status(time.Now())
	}
	if s := status(); len(s.Problems) > 0 || len(s.Conditions) != 4 {
		t.Errorf("%+v", s)
	}
	off = "/etc/refit/preflight.off exists"
	s := status()
	if len(s.Problems) != 1 || s.Problems[0].Reason != v1alpha1.ReasonColdStartCheckOff || s.Problems[0].Fix == "" || s.Conditions[4].Type != v1alpha1.ConditionDegraded {
		t.Errorf("%+v", s)
	}
	off = ""
	if s := status(); len(s.Problems) > 0 {
		t.Errorf("switched on again: %+v", s.Problems)
	}
	for want, boot := range []string{"another-boot", "b1"} {
		if err := os.WriteFile(a.conf.RunPath("preflight.released"), []byte(boot+" the check of the images crashed\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := status(); len(s.Problems) != want || want > 0 && s.Problems[0].Reason != v1alpha1.ReasonColdStartCheckFailed {
			t.Errorf("%s: %+v", boot, s.Problems)
		}
	}
	if err := os.Remove(a.conf.RunPath("preflight.released")); err != nil {
		t.Fatal(err)
	}
	if s := status(); len(s.Problems) > 0 {
		t.Errorf("checked meanwhile: %+v", s.Problems)
	}
	if err := os.WriteFile(a.conf.RunPath("preflight.json"), []byte(`{"bootID":"b1","ok":true,"released":"a disk hangs"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := status(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, "a disk hangs") {
		t.Errorf("%+v", s.Problems)
	}
	for i := range 2 * maxProblems {
		a.reportProblem(statefile.Problem{Reason: statefile.ReasonDamaged, Object: fmt.Sprint(i), Message: strings.Repeat("x", 2000)})
	}
	if s := status(); len(s.Problems) != maxProblems || len(s.Problems[1].Message) > problemBytes {
		t.Errorf("%d problems", len(s.Problems))
	}
}
