package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/model"
)

const older, newer = "registry.k8s.io/pause:3.10.1", "registry.k8s.io/pause:3.10.2"

type sandboxNode struct {
	root, config   string
	running        string // the image that the process was started with
	pid, age       int
	ignoresDropins bool // it reads no drop-ins
	sick           bool
	images         map[string]string
}

func (n *sandboxNode) Config(string) (string, bool) { return n.config, true }
func (n *sandboxNode) ImageID(_ context.Context, name string) (string, error) {
	return n.images[name], nil
}

var line = regexp.MustCompile(`sandbox = '(.*)'`)

func (n *sandboxNode) SandboxImage(context.Context) (string, error) {
	b, _ := os.ReadFile(filepath.Join(n.root, SandboxDropin))
	if m := line.FindSubmatch(b); m != nil && !n.ignoresDropins {
		return string(m[1]), nil
	}
	return older, nil
}
func (n *sandboxNode) Process(context.Context) (string, error) { return fmt.Sprint(n.pid), nil }
func (n *sandboxNode) What() string                            { return "the container runtime" }
func (n *sandboxNode) Log(context.Context) string              { return "log" }
func (n *sandboxNode) Restart(ctx context.Context) error {
	n.pid++
	n.age = 0
	n.running, _ = n.SandboxImage(ctx)
	return nil
}
func (n *sandboxNode) Unready(context.Context) string {
	if n.age < 3 || n.sick && n.running == newer {
		return "the container runtime does not answer"
	}
	return ""
}
func (n *sandboxNode) Containers(context.Context) ([]cri.Container, error) { return nil, nil }

func newSandboxNode(t *testing.T) (*sandboxNode, updaters.Task) {
	c := model.NodeConfig{Version: model.ConfigVersion, SandboxImage: newer}
	n := &sandboxNode{root: t.TempDir(), config: string(c.JSON()), running: older, age: 100, images: map[string]string{newer: "sha256:i"}}
	return n, updaters.Task{UID: "u", Attempt: 1, Started: time.Now(), Dir: filepath.Join(n.root, "runs"), Rollback: filepath.Join(n.root, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "sandbox-image", Updater: "sandbox-image", Verb: "apply",
			Params: map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, n.config)}}}
}

func TestSandboxConformance(t *testing.T) {
	updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture {
		n, tk := newSandboxNode(t)
		now := time.Now()
		return &updatertest.Fixture{
			Make: func() updaters.Updater { u := NewSandbox(n, n.root); u.now = func() time.Time { return now }; return u },
			Task: tk, Tick: func() { now = now.Add(time.Second); n.age++ },
			State: func() string {
				if n.Unready(t.Context()) != "" {
					return "between"
				}
				b, _ := os.ReadFile(filepath.Join(n.root, SandboxDropin))
				return n.running + " " + string(b)
			},
			From: older + " ", To: newer + " " + string(dropinText(newer)), Reversible: true,
			Break: func() { n.sick = true },
		}
	})
}

func TestARuntimeThatReadsNoDropinsKeepsWhatItHas(t *testing.T) {
	n, tk := newSandboxNode(t)
	n.ignoresDropins = true
	r, err := NewSandbox(n, n.root).Update(t.Context(), tk)
	if err != nil || !r.Failed || !strings.Contains(r.Message, "containerd 2") {
		t.Fatal(r, err)
	}
	if _, err := os.Stat(filepath.Join(n.root, SandboxDropin)); err == nil || n.pid != 0 {
		t.Fatal("the drop-in stayed, or the runtime was restarted")
	}
}

func TestAnImageThatIsNotThereIsNotUsed(t *testing.T) {
	n, tk := newSandboxNode(t)
	n.images = nil
	r, err := NewSandbox(n, n.root).Update(t.Context(), tk)
	if err != nil || !r.Failed || r.Reason != v1alpha1.ReasonImagesMissing || n.pid != 0 {
		t.Fatal(r, err)
	}
}
