package kubelet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/host/disk"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters"
	"github.com/refit-dev/refit/internal/pipeline/update/updatertest"
)

// simNode is a node whose kubelet is a file with its version in it.
type simNode struct {
	path    string
	running string // content of the file when the process was started, "" if it does not run
	age     int    // ticks since the start
	sick    bool
	dies    bool // at once after its start
	starts  int
}

func (n *simNode) Kubelet(context.Context) (string, error) { return n.path, nil }
func (n *simNode) Kubectl() string                         { return "" }
func (n *simNode) StopKubelet(context.Context) error       { n.running = ""; return nil }
func (n *simNode) Log(context.Context) string              { return "kubelet: bad flag" }
func (n *simNode) file() string                            { b, _ := os.ReadFile(n.path); return string(b) }
func (n *simNode) StartKubelet(ctx context.Context) error {
	n.starts++
	if n.running == "" && !n.dies && ctx.Err() == nil {
		n.running, n.age = n.file(), 0
	}
	return ctx.Err()
}
func (n *simNode) Running(context.Context) (string, bool, error) {
	return n.running, n.running != "" && n.running != n.file(), nil
}
func (n *simNode) KubeletHealthy(context.Context) error {
	if n.running == "" || n.age < 3 || n.sick && n.running == "v1.36.3" {
		return errors.New("connection refused")
	}
	return nil
}

func fixture(t *testing.T) *updatertest.Fixture {
	dir := t.TempDir()
	n := &simNode{path: filepath.Join(dir, "usr", "kubelet"), running: "v1.35.4", age: 100}
	payload := filepath.Join(dir, "payload")
	for path, text := range map[string]string{n.path: "v1.35.4", payload: "v1.36.3"} {
		if err := disk.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := disk.Digest(payload)
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
		Tick: func() { now = now.Add(time.Second); n.age++ },
		State: func() string {
			if n.running == n.file() && n.KubeletHealthy(t.Context()) == nil {
				return n.running
			}
			return "between"
		},
		From: "v1.35.4", To: "v1.36.3", Reversible: true,
		Break: func() { n.sick = true },
	}
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

// An agent that is told to end between stop and start leaves no node without
// a kubelet: it may never be started again.
func TestAnAgentThatEndsLeavesAKubelet(t *testing.T) {
	f := fixture(t)
	u := f.Make().(*Updater)
	ctx, end := context.WithCancel(t.Context())
	restore := failpoint.OnHit(func(p string) {
		if p == failpoint.KubeletStopped {
			end()
		}
	})
	defer restore()
	_, _ = u.Update(ctx, f.Task)
	if n := u.host.(*simNode); ctx.Err() == nil || n.running != "v1.36.3" {
		t.Fatalf("running now: %q", n.running)
	}
}

// A kubelet that dies at once is started again by its unit, in the unit's own
// time, not at every look.
func TestADyingKubeletIsNotStartedAtEveryLook(t *testing.T) {
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
	if n.starts > 8 {
		t.Fatalf("started %d times in a minute", n.starts)
	}
}
