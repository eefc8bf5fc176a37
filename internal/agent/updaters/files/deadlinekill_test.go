package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// nodeDir tells this test binary to be an agent's process over the files in a directory.
const nodeDir = "REFIT_TEST_NODE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(nodeDir); dir != "" {
		failpoint.KillFrom(filepath.Join(dir, "kill"))
		runInProcess(dir)
		return
	}
	os.Exit(m.Run())
}

// runInProcess runs the run in a directory to its end, and writes the status there. The network
// of the node is what its file says.
func runInProcess(dir string) {
	var run v1alpha1.NodeRun
	var configs map[string]string
	for name, into := range map[string]any{"run": &run, "configs": &configs} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			panic(err)
		}
	}
	n := &simNode{root: filepath.Join(dir, "root"), configs: configs, units: map[string]*systemd.Unit{}}
	clock := time.Now()
	now := func() time.Time { clock = clock.Add(time.Second); return clock }
	u := New(n, n.root, filepath.Join(dir, "files.json"))
	u.now = now
	e := &engine.Engine{Dir: filepath.Join(dir, "state"), Updaters: []updaters.Updater{u}, Log: slog.New(slog.DiscardHandler), Now: now,
		Sleep: func(context.Context, time.Duration) {},
		Health: func(context.Context) engine.Health {
			if b, err := os.ReadFile(filepath.Join(n.root, networkFile)); err != nil || string(b) != "works" {
				return engine.Health{API: "network is unreachable"}
			}
			return engine.Health{Heartbeat: clock.String()}
		}}
	e.Run(context.Background(), func() *v1alpha1.NodeRun { return &run }, func(s *v1alpha1.NodeRunStatus) {
		b, err := json.Marshal(s)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "status"), b, 0o600)
		}
		if err != nil {
			panic(err)
		}
	})
}

// A process that is killed for good at any line that it passes, and starts again, restores the
// network file too.
func TestAKilledProcessUndoesABrokenNetworkFile(t *testing.T) {
	for _, point := range []string{"", failpoint.JournalRun, failpoint.UndoArmed, failpoint.StepBefore, failpoint.FilesKept, failpoint.FilesWritten,
		failpoint.StepAfter, failpoint.JournalStep, failpoint.UndoExpired, failpoint.StepBefore + ":2", failpoint.StepAfter + ":2", failpoint.JournalStep + ":2", failpoint.JournalFinish} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			n := &simNode{root: filepath.Join(dir, "root"), configs: map[string]string{}}
			put(t, n, networkFile, "works", 0o644)
			step := task(t, n, model.NodeConfig{Files: []model.ConfigFile{file("/"+networkFile, "broken", model.DisruptionNone)}}).Step
			step.Params[model.ParamUndoDeadline] = "60"
			for name, v := range map[string]any{"configs": n.configs, "run": v1alpha1.NodeRun{Name: "up", UID: "uid", PlanDigest: "sha256:p", Attempt: 1, Steps: []v1alpha1.UpdateStep{step}}} {
				b, err := json.Marshal(v)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "kill"), []byte(point), 0o600); err != nil {
				t.Fatal(err)
			}
			if killed := process(t, dir); killed != (point != "") {
				t.Fatalf("killed at %q: %v", point, killed)
			}
			process(t, dir)
			b, err := os.ReadFile(filepath.Join(dir, "status"))
			var last v1alpha1.NodeRunStatus
			if err == nil {
				err = json.Unmarshal(b, &last)
			}
			if err != nil || last.State != v1alpha1.RunFailed || last.Reason != v1alpha1.ReasonUndoneByDeadline {
				t.Fatalf("%v, ended with %+v", err, last)
			}
			if got := n.text(t, networkFile); got != "works" {
				t.Fatalf("the file is %q", got)
			}
		})
	}
}

// process runs this test binary as an agent's process, and reports whether it was killed.
func process(t *testing.T, dir string) (killed bool) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), nodeDir+"="+dir)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err == nil {
		return false
	}
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
			return true
		}
	}
	t.Fatal(fmt.Errorf("%w\n%s", err, out))
	return false
}
