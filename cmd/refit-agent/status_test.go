package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
	"github.com/refit-dev/refit/internal/fsutil"
)

// machine is a node's files, and the released program.
type machine struct {
	t            *testing.T
	program, dir string
}

func (m machine) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir}, elem...)...)
}

// newMachine has the files of a node, without an agent.
func newMachine(t *testing.T, program string) machine {
	t.Helper()
	m := machine{t, program, t.TempDir()}
	m.put(m.path("agent.yaml"), "node: n1\nstateDir: "+m.path("state")+"\nrunDir: "+m.path("run")+"\n")
	return m
}

func (m machine) put(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// agent takes the lock of a running agent.
func (m machine) agent() {
	m.t.Helper()
	if err := os.MkdirAll(m.path("run"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	unlock, err := fsutil.Lock(m.path("run", "agent.lock"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(unlock)
}

func (m machine) status(uid uint32, args ...string) (out string, code int) {
	m.t.Helper()
	cmd := exec.Command(m.program, append([]string{"status", "--config", m.path("agent.yaml")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

func (m machine) expect(name string, wantCode int, want ...string) {
	m.t.Helper()
	out, code := m.status(0)
	for _, w := range want {
		if !strings.Contains(out, w) {
			m.t.Errorf("%s: %q is missing in\n%s", name, w, out)
		}
	}
	if code != wantCode {
		m.t.Errorf("%s: exit code %d, want %d\n%s", name, code, wantCode, out)
	}
}

// TestStatusOfTheReleasedAgent runs the program on nodes whose agent works, was never started,
// has died, and left damaged files.
func TestStatusOfTheReleasedAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: refit-agent status reads files of root")
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // user nobody runs it too
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "refit-agent")
	if err := os.WriteFile(program, buildAgent(t), 0o755); err != nil {
		t.Fatal(err)
	}
	copying := &statusreport.Local{Node: "n1", WrittenAt: time.Now(), APIReachedAt: time.Now().Add(-8*time.Minute - 10*time.Second), APIError: "connection \x1b[31mrefused",
		Status: &v1alpha1.NodeUpdateStatus{Phase: "Copying", Pins: &v1alpha1.PinStatus{BytesTotal: 100, BytesDone: 41}, Media: []v1alpha1.Medium{{Device: "/dev/sdb", State: v1alpha1.MediumCopying}}}}

	t.Run("an agent that was never started", func(t *testing.T) {
		if sinceBoot() < bootTime {
			t.Skip("this machine started a moment ago, and its agent may still start")
		}
		m := newMachine(t, program)
		m.expect("", exitFailed, "red: refit does not work on this machine: call the administrator.\n", "Node:        n1\n", "does not run. Fix: run systemctl restart refit-agent")
		if es, err := os.ReadDir(m.dir); err != nil || len(es) != 1 {
			t.Errorf("the command wrote something: %v %v", es, err)
		}
	})
	t.Run("an agent that copies without the API server", func(t *testing.T) {
		m := newMachine(t, program)
		m.agent()
		if err := copying.Write(m.path("run")); err != nil {
			t.Fatal(err)
		}
		m.expect("", exitInProgress, "blue: This machine is preparing the update: please wait.\nCopied: 41%\nThe USB stick may be pulled: no\n", ", 8m ago; the machine continues without it", `connection \u001b[31mrefused`)
		out, code := m.status(0, "-o", "json")
		var n statusreport.NodeStatus
		if err := json.Unmarshal([]byte(out), &n); err != nil || code != exitInProgress || n.Kind != "NodeStatus" || n.Colour != "blue" || n.Percent != 41 || n.Agent != statusreport.AgentRunning || n.Status == nil {
			t.Errorf("%d %v %s", code, err, out)
		}
	})
	t.Run("an agent that died", func(t *testing.T) {
		m := newMachine(t, program)
		m.put(m.path("run", "agent.lock"), "")
		if err := copying.Write(m.path("run")); err != nil {
			t.Fatal(err)
		}
		m.expect("", exitFailed, "red: refit does not work", "the rest is its status of")
	})
	t.Run("damaged files", func(t *testing.T) {
		m := newMachine(t, program)
		m.agent()
		bad := map[string]string{m.path("run", statusreport.LocalFile): strings.Repeat("\x00", 64), m.path("state", "want.json"): `{"generation":`}
		for path, text := range bad {
			m.put(path, text)
		}
		e := &engine.Engine{Dir: m.path("state"), Log: slog.New(slog.DiscardHandler)}
		run := v1alpha1.NodeRun{Name: "to-1.36.3", UID: "uid", PlanDigest: "sha256:p", Attempt: 1, Steps: []v1alpha1.UpdateStep{{ID: "kubelet", Updater: "kubelet", Verb: "node"}}}
		if err := e.Adopt(run, v1alpha1.NodeRunStatus{State: v1alpha1.RunFailed, Step: "kubelet", Reason: v1alpha1.ReasonStepFailed, Message: "kubelet did not start"}); err != nil {
			t.Fatal(err)
		}
		m.expect("", exitFailed, "red: The update of this machine has stopped", "Step:        kubelet, 0 of 1 done, update to-1.36.3", "StepFailed: kubelet did not start", "StateFileDamaged: local status ", "StateFileDamaged: desired state ")
		for path, text := range bad {
			if b, err := os.ReadFile(path); err != nil || string(b) != text {
				t.Errorf("%s was changed: %v", path, err)
			}
		}
	})
	t.Run("a damaged configuration", func(t *testing.T) {
		m := newMachine(t, program)
		m.put(m.path("run", "agent.lock"), "")
		m.put(m.path("agent.yaml"), "runDir: "+m.path("run")+"\nstateDir: "+m.path("state")+"\nquota: 7\n")
		m.expect("", exitFailed, "AgentConfigInvalid: ", "fix: Correct the file")
	})
	t.Run("refused", func(t *testing.T) {
		m := newMachine(t, program)
		if out, code := m.status(65534); code != exitInternal || !strings.Contains(out, "needs root: run this with sudo") {
			t.Errorf("%d %s", code, out)
		}
		if out, code := m.status(0, "-o", "yaml"); code != exitUsage || !strings.Contains(out, "use text or json") {
			t.Errorf("%d %s", code, out)
		}
	})
}

// An agent may start late after a boot; its lock shows that it runs.
func TestAgentProcess(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "agent.lock")
	expect := func(name, want string, sinceBoot time.Duration) {
		t.Helper()
		if got := agentProcess(lock, sinceBoot); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	expect("a boot", statusreport.AgentStarting, bootTime-1)
	expect("long after a boot", statusreport.AgentStopped, bootTime)
	unlock, err := fsutil.Lock(lock)
	if err != nil {
		t.Fatal(err)
	}
	expect("an agent", statusreport.AgentRunning, time.Second)
	unlock()
	expect("an agent that died in this boot", statusreport.AgentStopped, time.Second)
	if unlock, err = fsutil.Lock(lock); err != nil {
		t.Fatal("the check keeps the lock:", err)
	}
	unlock()
}

// The colours have the exit codes of refit status.
func TestExitCodeOfAnAnswer(t *testing.T) {
	for colour, want := range map[string]int{"green": 0, "blue": exitInProgress, "yellow": exitBlocked, "red": exitFailed} {
		if got := colourCodes[colour]; got != want {
			t.Errorf("%s: %d, want %d", colour, got, want)
		}
	}
	if got := exitCode(answerError{exitBlocked}); got != exitBlocked {
		t.Errorf("%d", got)
	}
	var b bytes.Buffer
	if err := writeStatus(&b, "text", statusreport.MakeNodeStatus(&statusreport.Local{}, statusreport.AgentRunning, time.Now())); err != nil || b.Len() == 0 {
		t.Error(err)
	}
}
