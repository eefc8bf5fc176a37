package files

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

const (
	networkFile = "etc/systemd/network/10-eth0.network"
	networkUnit = "systemd-networkd.service"
)

// networkNode is a node whose network is what systemd-networkd read last, with a run that
// writes a network file and restarts the machine if atBoot is set.
type networkNode struct {
	*simNode
	machine *machine
	run     *v1alpha1.NodeRun
	state   string
	now     time.Time
	last    *v1alpha1.NodeRunStatus
	booted  int
	// fails: the unit of the network fails with a broken file, instead of running with it.
	fails bool
}

func newNetworkNode(t *testing.T, text string, atBoot bool) *networkNode {
	n := &networkNode{simNode: newNode(t), machine: &machine{}, state: t.TempDir(), now: time.Now()}
	n.reads[networkUnit] = networkFile
	n.units[networkUnit] = &systemd.Unit{File: "enabled", Active: "active"}
	put(t, n.simNode, networkFile, "works", 0o644)
	n.start(networkUnit)
	f := file("/"+networkFile, text, model.DisruptionRestart, networkUnit)
	if atBoot {
		f = file("/"+networkFile, text, model.DisruptionReboot)
	}
	step := task(t, n.simNode, model.NodeConfig{Files: []model.ConfigFile{f}}).Step
	step.Params[model.ParamUndoDeadline] = "60"
	n.run = &v1alpha1.NodeRun{Name: "up", UID: "uid", PlanDigest: "sha256:p", Attempt: 1, Steps: []v1alpha1.UpdateStep{step}}
	if atBoot {
		n.run.Steps = append(n.run.Steps, v1alpha1.UpdateStep{ID: "reboot", Updater: "reboot", Verb: "reboot"})
	}
	return n
}

func (n *networkNode) RefreshUnit(ctx context.Context, name string, restart bool) error {
	err := n.simNode.RefreshUnit(ctx, name, restart)
	if n.fails && n.has[name] == "broken" {
		n.units[name].Active = "failed"
	}
	return err
}

func (n *networkNode) health(context.Context) engine.Health {
	if n.has[networkUnit] == "broken" {
		return engine.Health{API: "network is unreachable"}
	}
	return engine.Health{Heartbeat: n.now.String(), Peers: 2}
}

// process is one process of the agent, until a failpoint kills it.
func (n *networkNode) process() (killed bool) {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, errKilled) {
				panic(r)
			}
			killed = true
		}
	}()
	now := func() time.Time { n.now = n.now.Add(time.Second); return n.now }
	u := New(n, n.root, filepath.Join(n.state, "files.json"))
	r := NewReboot(n.machine)
	u.now, r.now = now, now
	e := &engine.Engine{Dir: n.state, Updaters: []updaters.Updater{u, r}, Log: slog.New(slog.DiscardHandler), Health: n.health, Now: now,
		Sleep: func(context.Context, time.Duration) { n.tick() }}
	e.Run(context.Background(), func() *v1alpha1.NodeRun { return n.run }, func(s *v1alpha1.NodeRunStatus) { n.last = s })
	return false
}

// tick is time that passes for the machine; after a boot the network is as its file says.
func (n *networkNode) tick() {
	n.machine.tick()
	if n.machine.boots > n.booted {
		n.booted = n.machine.boots
		n.start(networkUnit)
		panic(errKilled) // the agent's process ends with the machine
	}
}

var errKilled = errors.New("killed")

// A network file that cuts the node off is restored by the node itself, and its unit reads what
// was there before. So it is if the agent is killed at any one of the lines that it passes,
// and for files that are read at boot.
func TestABrokenNetworkFileIsUndoneByTheNode(t *testing.T) {
	for name, c := range map[string]struct{ atBoot, fails bool }{
		"the unit runs with it":   {false, false},
		"the unit fails with it":  {false, true},
		"it is read at boot only": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			for kill := 0; ; kill++ {
				n := newNetworkNode(t, "broken", c.atBoot)
				n.fails = c.fails
				if c.atBoot {
					n.units[networkUnit].Active = "inactive" // nothing reads the file before the boot
				}
				passed, reached := 0, ""
				restore := failpoint.OnHit(func(p string) {
					if passed++; passed == kill {
						reached = p
						panic(errKilled)
					}
				})
				for n.process() {
				}
				restore()
				if kill > 0 && reached == "" {
					t.Logf("killed at each of %d lines", kill-1)
					return
				}
				n.expectRestored(t, fmt.Sprintf("killed at line %d, %s", kill, reached))
			}
		})
	}
}

func (n *networkNode) expectRestored(t *testing.T, when string) {
	t.Helper()
	if n.last.State != v1alpha1.RunFailed || n.last.Reason != v1alpha1.ReasonUndoneByDeadline || !strings.Contains(n.last.Message, "network is unreachable") {
		t.Fatalf("%s: ended with %+v", when, n.last)
	}
	if got := n.text(t, networkFile); got != "works" || n.has[networkUnit] != "works" {
		t.Fatalf("%s: the file is %q, the network %q", when, got, n.has[networkUnit])
	}
	if n.units[networkUnit].Active == "failed" {
		t.Fatalf("%s: the unit has failed", when)
	}
	boots := n.machine.boots
	for n.process() {
	}
	if got := n.text(t, networkFile); got != "works" || n.machine.boots != boots {
		t.Fatalf("%s: it ran again: %q", when, got)
	}
}

// A network file that works stays.
func TestAWorkingNetworkFileStays(t *testing.T) {
	n := newNetworkNode(t, "works too", false)
	for n.process() {
	}
	if n.last.State != v1alpha1.RunSucceeded || n.has[networkUnit] != "works too" {
		t.Fatalf("%+v, the network %q", n.last, n.has[networkUnit])
	}
}
