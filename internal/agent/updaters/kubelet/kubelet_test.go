package kubelet

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// simNode is a node whose kubelet is a file with its version in it.
type simNode struct {
	path     string
	running  string // content of the file when the process was started, "" if it does not run
	age      int    // ticks since the start
	stopping int    // ticks until the restart that was ordered starts it
	sick     bool
	// sickVersion is the one that is sick; v1.36.3 if empty.
	sickVersion string
	dies        bool // at once after its start
	killed      bool // the agent is killed while it waits for a restart
	restarts    int
	hang        chan struct{}
}

func (n *simNode) Kubelet(ctx context.Context) (string, error) {
	if n.hang != nil {
		close(n.hang)
		n.hang = nil
		<-ctx.Done()
		return "", ctx.Err()
	}
	return n.path, nil
}
func (n *simNode) Kubectl() string            { return "" }
func (n *simNode) Log(context.Context) string { return "kubelet: bad flag" }
func (n *simNode) file() string               { b, _ := os.ReadFile(n.path); return string(b) }

type killed struct{}

// RestartKubelet is systemd's job: it continues even if the caller dies.
func (n *simNode) RestartKubelet(ctx context.Context) error {
	n.restarts++
	n.running, n.stopping = "", 25 // a kubelet that is slow to stop
	if n.killed {
		n.killed = false
		panic(killed{})
	}
	for n.stopping > 0 && ctx.Err() == nil {
		n.tick()
	}
	return ctx.Err()
}

func (n *simNode) tick() {
	n.age++
	if n.stopping > 0 {
		if n.stopping--; n.stopping == 0 && !n.dies {
			n.running, n.age = n.file(), 0
		}
	}
}

func (n *simNode) Running(context.Context) (string, bool, error) {
	return n.running, n.running != "" && n.running != n.file(), nil
}
func (n *simNode) KubeletHealthy(context.Context) error {
	if n.running == "" || n.age < 3 || n.sick && n.running == cmp.Or(n.sickVersion, "v1.36.3") {
		return errors.New("connection refused")
	}
	return nil
}

func fixture(t *testing.T) *updatertest.Fixture {
	dir := t.TempDir()
	n := &simNode{path: filepath.Join(dir, "usr", "kubelet"), running: "v1.35.4", age: 100}
	payload := filepath.Join(dir, "payload")
	for path, text := range map[string]string{n.path: "v1.35.4", payload: "v1.36.3"} {
		if err := fsutil.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := fsutil.Digest(payload)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return &updatertest.Fixture{
		Make: func() updaters.Updater { u := New(n); u.now = func() time.Time { return now }; return u },
		Task: updaters.Task{UID: "u", Attempt: 1, Step: v1alpha1.UpdateStep{ID: "kubelet", Updater: "kubelet", Verb: "swap", From: "v1.35.4", To: "v1.36.3"},
			Started: now, Dir: filepath.Join(dir, "runs"), Rollback: filepath.Join(dir, "rollback"),
			Payload: func(name string) (updaters.Payload, error) {
				if name != "kubelet" {
					return updaters.Payload{}, updaters.ErrNoPayload
				}
				return updaters.Payload{Path: payload, Digest: digest}, nil
			}},
		Tick: func() { now = now.Add(time.Second); n.tick() },
		State: func() string {
			if n.running == n.file() && n.KubeletHealthy(t.Context()) == nil {
				return n.running
			}
			return "between"
		},
		From: "v1.35.4", To: "v1.36.3", Reversible: true,
		Break:   func() { n.sick = true },
		Planned: planned(t),
		Hang:    func() <-chan struct{} { n.hang = make(chan struct{}); return n.hang },
	}
}

// planned is what the planner says of the step.
func planned(t *testing.T) *model.Step {
	in := updateplan.Input{Nodes: []updateplan.Node{{Name: "n1", Kubelet: "v1.35.4"}}, Target: model.Target{Kubernetes: "v1.36.3"}, KubeadmVersion: "v1.35.4"}
	for _, s := range updateplan.Make(in).Plan.Nodes[0].Steps {
		if s.Updater == "kubelet" {
			return &s
		}
	}
	t.Fatal("no step is planned")
	return nil
}

func TestConformance(t *testing.T) { updatertest.Conform(t, fixture) }

// A payload that rotted in the store must never become the kubelet.
func TestAWrongPayloadReplacesNothing(t *testing.T) {
	f := fixture(t)
	f.Task.Payload = func(string) (updaters.Payload, error) {
		p := filepath.Join(t.TempDir(), "p")
		if err := os.WriteFile(p, []byte("rotten"), 0o600); err != nil {
			t.Fatal(err)
		}
		return updaters.Payload{Path: p, Digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}, nil
	}
	u := f.Make().(*Updater)
	for range 5 {
		if r, err := u.Update(t.Context(), f.Task); err == nil && r.Done {
			t.Fatal("done")
		}
	}
	n := u.host.(*simNode)
	if got := n.file(); got != "v1.35.4" {
		t.Fatalf("the kubelet is now %q", got)
	}
	if n.running != "v1.35.4" {
		t.Fatal("the kubelet is stopped and nothing is there to take its place")
	}
}

// An agent that is killed, or ended, while the kubelet stops leaves no node without a
// kubelet, even if the agent never starts again.
func TestAnAgentThatEndsLeavesAKubelet(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		f := fixture(t)
		u := f.Make().(*Updater)
		n := u.host.(*simNode)
		n.killed = true
		func() {
			defer func() { _ = recover() }()
			_, _ = u.Update(t.Context(), f.Task)
		}()
		for range 30 { // no more calls
			f.Tick()
		}
		if n.killed || n.running != "v1.36.3" {
			t.Fatalf("running now: %q", n.running)
		}
	})
	t.Run("ended", func(t *testing.T) {
		f := fixture(t)
		u := f.Make().(*Updater)
		ctx, end := context.WithCancel(t.Context())
		defer failpoint.OnHit(func(p string) {
			if p == failpoint.KubeletReplaced {
				end()
			}
		})()
		_, _ = u.Update(ctx, f.Task)
		for range 30 {
			f.Tick()
		}
		if n := u.host.(*simNode); ctx.Err() == nil || n.running != "v1.36.3" {
			t.Fatalf("running now: %q", n.running)
		}
	})
}

// A kubelet that was not there before is gone after an undo.
func TestAProgramThatWasNotThereIsRemoved(t *testing.T) {
	f := fixture(t)
	n := f.Make().(*Updater).host.(*simNode)
	if err := os.Remove(n.path); err != nil {
		t.Fatal(err)
	}
	if _, err := updaters.Swap(f.Task, "kubelet", n.path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if ok, err := updaters.Restore(f.Task, "kubelet", n.path); !ok || err != nil {
			t.Fatalf("%v %v", ok, err)
		}
		if _, err := os.Stat(n.path); err == nil {
			t.Fatal("it is still there")
		}
	}
}

// A kubelet that dies at once is started again by its unit, in the unit's own
// time, not at every look.
func TestADyingKubeletIsNotStartedAtEveryCall(t *testing.T) {
	f := fixture(t)
	u := f.Make().(*Updater)
	n := u.host.(*simNode)
	n.dies = true
	for range 60 { // a minute
		if _, err := u.Update(t.Context(), f.Task); err != nil {
			t.Fatal(err)
		}
		f.Tick()
	}
	if n.restarts > 8 {
		t.Fatalf("started %d times in a minute", n.restarts)
	}
}
