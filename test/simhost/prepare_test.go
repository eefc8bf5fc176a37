package simhost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// prepare makes ready what a step boots, before it runs.
func (n *node) prepare(task updaters.Task) {
	n.t.Helper()
	name := task.Step.Params[model.ParamConfig]
	c := &model.NodeConfig{}
	if err := json.Unmarshal([]byte(n.config[name]), c); err != nil {
		n.t.Fatal(err)
	}
	if err := n.updater().Prepare(n.t.Context(), name, c); err != nil {
		n.t.Fatal(err)
	}
}

// On real deployments, an image that was staged before the run does not survive an
// unplanned restart. The run uses it although its image is gone by then, and drops it when
// another one supersedes it.
func TestStagedBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, n *node) {
		second := n.step(n.put(version(t, "2", nil, "v=2")), "v=2")
		n.prepare(second)
		if s := n.status(); s.NextIsBooted() || s.Staged == nil || !s.Staged.Locked {
			t.Fatalf("staged %+v, next %+v", s.Staged, s.Next)
		}
		n.Reboot() // unplanned
		n.isOn("1", "first=1")
		n.prepare(second)
		third := n.step(n.put(version(t, "3", nil, "v=3")), "v=3")
		n.prepare(third)
		if err := os.RemoveAll(filepath.Join(n.Stateroot(), "var/lib/images")); err != nil {
			t.Fatal(err)
		}
		boots := n.Boots
		done(t, n.there(third))
		n.isOn("3", "v=3")
		n.without("first=1", "v=2")
		if n.Boots != boots+1 {
			t.Fatalf("%d restarts", n.Boots-boots)
		}
		if err := n.updater().Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		done(t, n.back(third))
		n.isOn("1", "first=1")
	})
}
