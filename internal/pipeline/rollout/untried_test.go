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

// A node that was permitted to restart into an image and stays silent has failed at its deadline. Such
// failures count over all pools with the image, failures of other steps and images in their own pool.
func TestSilenceCountsOverPools(t *testing.T) {
	t.Parallel()
	const deadline = 30 * time.Minute
	for name, tc := range map[string]struct {
		max    int
		silent map[string]time.Duration
		step   string
		image  string // of the second pool
		halted bool
		failed int
	}{
		"one within its deadline":              {1, map[string]time.Duration{"w2": deadline}, "os-image", "sha256:new", false, 0},
		"one after it":                         {1, map[string]time.Duration{"w2": deadline + time.Minute}, "os-image", "sha256:new", true, 1},
		"one of two":                           {2, map[string]time.Duration{"w2": time.Hour}, "os-image", "sha256:new", false, 1},
		"two of one pool":                      {2, map[string]time.Duration{"w2": time.Hour, "w3": time.Hour}, "os-image", "sha256:new", true, 2},
		"one of each pool":                     {2, map[string]time.Duration{"w2": time.Hour, "x1": time.Hour}, "os-image", "sha256:new", true, 2},
		"one of each pool, one is not late":    {2, map[string]time.Duration{"w2": time.Hour, "x1": time.Minute}, "os-image", "sha256:new", false, 1},
		"one of each pool, with another image": {2, map[string]time.Duration{"w2": time.Hour, "x1": time.Hour}, "os-image", "sha256:other", false, 2},
		"one of each pool, in another step":    {2, map[string]time.Duration{"w2": time.Hour, "x1": time.Hour}, "etcd", "sha256:new", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := Amount{Value: 1}
			c := boots(newCluster(map[string]Pool{"edge": {Name: "edge", Budget: 3, MaxFailures: tc.max, Canary: own}, "core": {Name: "core", Budget: 3, MaxFailures: tc.max, Canary: own}},
				append(workersOf("edge", 3), ok("x0", "core", false), ok("x1", "core", false), ok("x2", "core", false))...), "sha256:new")
			for _, canary := range []string{"w1", "x0"} {
				finished(c.truth[canary], time.Hour)
			}
			for _, node := range []string{"x0", "x1", "x2"} {
				c.plan(node, func(np *model.NodePlan) { np.Steps[2].Changes[0].To = tc.image })
			}
			for node, silent := range tc.silent {
				c.plan(node, func(np *model.NodePlan) {
					np.Steps = append(np.Steps[:2:2], append([]model.Step{{ID: "etcd", Updater: "etcd", By: model.ByAgent, DeadlineSeconds: 1800}}, np.Steps[2:]...)...)
				})
				m := c.truth[node]
				markStarted(m)
				m.Run = &Run{Attempt: Attempt{1, 0, 1}, State: RunRunning, Step: tc.step}
				m.AgentHeartbeatLost, m.SilentFor, m.Ready = true, silent, false
			}
			d := Next(c.facts())
			if d.Halted != tc.halted || d.Failed != tc.failed {
				t.Errorf("halted %t, %d failed; %+v", d.Halted, d.Failed, d.Blockers)
			}
		})
	}
}
