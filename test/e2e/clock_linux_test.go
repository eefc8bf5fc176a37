package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// clockJumps are what the wall clocks are set to, one after the other; the last is right.
// A dead clock starts decades back.
var clockJumps = []time.Duration{6 * time.Hour, -6 * time.Hour, -20 * 365 * 24 * time.Hour, 0}

// jumpTime is how long a clock stays wrong: the agent checks a step every second or
// sooner. Longer than some seconds in the past no new connection to the API server of this
// lab can be made, whose certificates are minutes old.
const jumpTime = 1500 * time.Millisecond

// clockStep is a step of a node, or a stage for the controller, and what was done to the
// clock of the program meanwhile.
type clockStep struct {
	Node    string   `json:"node"`
	Step    string   `json:"step"`
	Set     []string `json:"clockSet"`
	Seconds float64  `json:"seconds"`
}

// TestClocksAreSetDuringEachStep sets the wall clock of every node's agent forward by
// hours, back by hours, back by decades and right again during each step of its run. It
// does the same to the controller at each change of a node. The programs are released
// ones, whose clock_gettime is patched in memory (internal/lab/kernel). The clocks of the
// kernel, the kubelet and the runtime stay right. No step ends early or late, and the
// update finishes by itself.
func TestClocksAreSetDuringEachStep(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of its own: make e2e")
	}
	s := start(t, "clock", 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, dev))
	must(t, s.Approve(ctx, b))
	digest, err := s.Prepare(ctx, b)
	must(t, err)
	c := &clocks{s: s}
	keepResult(t, "clock.json", func() any {
		c.mu.Lock()
		defer c.mu.Unlock()
		return map[string]any{"simulated": "the wall clock of one process at a time, by a patch of its vDSO; kernel, kubelet, runtime and kubeadm have the right time",
			"steps": c.steps, "controller": c.controller, "outcome": "finished by itself, every node observed at " + to}
	})
	var wg sync.WaitGroup
	for _, n := range s.Lab.Nodes() {
		wg.Go(func() { c.followAgent(ctx, n) })
	}
	wg.Go(func() { c.followController(ctx) })
	startUpdate(t, s)
	finished(t, s, b, digest)
	cancel()
	wg.Wait()
	c.check(t)
}

type clocks struct {
	s *scenario.Scenario

	mu         sync.Mutex
	steps      []clockStep
	controller []clockStep
	errs       []error
}

func (c *clocks) check(t *testing.T) {
	t.Helper()
	for _, err := range c.errs {
		t.Error(err)
	}
	for _, n := range c.s.Lab.Nodes() {
		for _, step := range []string{"kubeadm", "kubelet", "settle"} {
			i := slices.IndexFunc(c.steps, func(x clockStep) bool { return x.Node == n && x.Step == step })
			if i < 0 || len(c.steps[i].Set) < 2 {
				t.Errorf("the clock of %s was not set forward and back during step %s: %+v", n, step, c.steps)
			}
		}
		nu, err := nodeUpdateOf(t.Context(), c.s, n)
		must(t, err)
		if r := nu.Status.Run; r == nil || r.State != v1alpha1.RunSucceeded || r.Attempt != 1 {
			t.Errorf("%s: not at the first attempt: %+v", n, r)
		}
	}
	if len(c.controller) < len(c.s.Lab.Nodes()) {
		t.Errorf("the controller's clock was set at %d changes only", len(c.controller))
	}
}

// followAgent sets the clock of a node's agent during each step that its local status
// says; the API server may be unavailable.
func (c *clocks) followAgent(ctx context.Context, node string) {
	for ctx.Err() == nil {
		step := c.localStep(node)
		if step == "" {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		at := time.Now()
		set := c.jump(ctx, c.agentPID, node, func() bool { return c.localStep(node) == step })
		for ctx.Err() == nil && c.localStep(node) == step {
			time.Sleep(100 * time.Millisecond)
		}
		c.mu.Lock()
		c.steps = append(c.steps, clockStep{node, step, set, time.Since(at).Round(100 * time.Millisecond).Seconds()})
		c.mu.Unlock()
	}
}

// followController does the same at each change of a node.
func (c *clocks) followController(ctx context.Context) {
	seen := map[string]bool{}
	for ctx.Err() == nil {
		for _, n := range c.s.Lab.Nodes() {
			look, cancel := context.WithTimeout(ctx, time.Second)
			state := stateOf(look, c.s, n)
			cancel()
			if state == "" || seen[state] {
				continue
			}
			seen[state] = true
			at := time.Now()
			set := c.jump(ctx, func(string) (int, error) { return process("refit-controller", "") }, n, func() bool { return true })
			c.mu.Lock()
			c.controller = append(c.controller, clockStep{n, state, set, time.Since(at).Round(100 * time.Millisecond).Seconds()})
			c.mu.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// jump sets a clock as long as it is to go on, and right at the end.
func (c *clocks) jump(ctx context.Context, find func(string) (int, error), node string, goesOn func() bool) (set []string) {
	for _, by := range clockJumps {
		if by != 0 && (!goesOn() || ctx.Err() != nil) {
			continue
		}
		pid, err := find(node)
		if err == nil {
			err = kernel.ShiftClock(pid, by)
		}
		switch {
		case err == nil && by != 0:
			set = append(set, by.String())
			time.Sleep(jumpTime)
		case err != nil && !errors.Is(err, os.ErrNotExist): // it is being restarted, and right
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	}
	return set
}

// localStep is the step that a node's agent says it runs, "" if none.
func (c *clocks) localStep(node string) string {
	path, err := c.s.Lab.Path(node, "/run/refit/status.json")
	if err != nil {
		return ""
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var local struct {
		Status v1alpha1.NodeUpdateStatus `json:"status"`
	}
	if json.Unmarshal(b, &local) != nil || local.Status.Run == nil || local.Status.Run.State != v1alpha1.RunRunning {
		return ""
	}
	return local.Status.Run.Step
}

// agentPID is the process of a node's agent, as this machine sees it.
func (c *clocks) agentPID(node string) (int, error) {
	root, err := c.s.Lab.Path(node, "/")
	if err != nil {
		return 0, err
	}
	space, err := os.Readlink(filepath.Join(strings.TrimSuffix(root, "/root"), "ns/pid"))
	if err != nil {
		return 0, err
	}
	return process("refit-agent", space)
}

// process is the one of a program, in a PID namespace if that is reported, whose first argument
// is run if the program is the agent.
func process(program, space string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		args, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil {
			continue
		}
		argv := strings.Split(string(args), "\x00")
		if filepath.Base(argv[0]) != program || program == "refit-agent" && (len(argv) < 2 || argv[1] != "run") {
			continue
		}
		if ns, err := os.Readlink(filepath.Join(p, "ns/pid")); err != nil || space != "" && ns != space {
			continue
		}
		return strconv.Atoi(filepath.Base(p))
	}
	return 0, fmt.Errorf("%s: %w", program, os.ErrNotExist)
}
