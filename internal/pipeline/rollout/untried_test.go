package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// boots lets all nodes boot an image.
func boots(c *cluster, image string) *cluster {
	for i := range c.in.Plan.Nodes {
		np := &c.in.Plan.Nodes[i]
		np.Steps = append(slices.Clone(np.Steps[:2]), model.Step{ID: "os-image", Updater: "os-image", By: model.ByAgent, Disruption: model.DisruptionReboot, DeadlineSeconds: 1800,
			Changes: []model.Change{{Path: model.FieldOSImage, To: image}}}, np.Steps[4])
	}
	return c
}

// An image that no node has booted goes to one node of all pools first. When that node is done,
// the pools go on with their budgets; if it fails or stays silent, the update halts.
func TestAnUntriedImageHasACanary(t *testing.T) {
	t.Parallel()
	two := func() *cluster {
		c := newCluster(map[string]Pool{"edge": {Name: "edge", Budget: 3, MaxFailures: 9}, "core": {Name: "core", Budget: 3, MaxFailures: 9}},
			append(workersOf("edge", 3), ok("x1", "core", false), ok("x2", "core", false))...)
		return boots(c, "sha256:new")
	}
	first := []string{"w1"}
	for name, tc := range map[string]struct {
		happens func(*cluster)
		starts  []string
		halted  bool
	}{
		"none has booted it": {func(*cluster) {}, first, false},
		"the first is held":  {func(c *cluster) { c.truth["w1"].OnHold = true }, []string{"w2"}, false},
		"one that has started stays the canary": {func(c *cluster) {
			markStarted(c.truth["w2"])
			c.truth["w2"].Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunRunning, Step: "os-image"}
		}, nil, false},
		"the canary is done":               {func(c *cluster) { finished(c.truth["w1"], time.Hour) }, []string{"w2", "w3", "x1", "x2"}, false},
		"a node of the other pool is done": {func(c *cluster) { finished(c.truth["x1"], time.Hour) }, []string{"w1", "w2", "w3", "x2"}, false},
		"the canary failed": {func(c *cluster) {
			markStarted(c.truth["w1"])
			c.truth["w1"].Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunFailed, Step: "os-image"}
		}, nil, true},
		"the canary is lost": {func(c *cluster) {
			markStarted(c.truth["w1"])
			m := c.truth["w1"]
			m.Run, m.AgentHeartbeatLost, m.SilentFor = &Run{Attempt: Attempt{1, 0, 1}, State: RunRunning, Step: "os-image"}, true, time.Hour
		}, nil, true},
		"a pool has its own canaries": {func(c *cluster) {
			p := c.in.Pools["core"]
			p.Canary = Amount{Value: 100, Percent: true}
			c.in.Pools["core"] = p
		}, []string{"w1", "x1", "x2"}, false},
		"no image": {func(c *cluster) {
			for i := range c.in.Plan.Nodes {
				c.in.Plan.Nodes[i].Steps[2].Changes = nil
			}
		}, []string{"w1", "w2", "w3", "x1", "x2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := two()
			tc.happens(c)
			d := Next(c.facts())
			var starts []string
			for _, a := range d.Actions {
				if a.Verb == Cordon {
					starts = append(starts, a.Node)
				}
			}
			slices.Sort(starts)
			if !slices.Equal(starts, tc.starts) || d.Halted != tc.halted {
				t.Errorf("starts %v, wanted %v; halted %t; %+v", starts, tc.starts, d.Halted, d.Blockers)
			}
		})
	}
}
