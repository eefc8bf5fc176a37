package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// Lines of the updater supervisor, in the order in which a run passes them first: up to the
// replaced program by the datastore of the node, from there on the same.
var (
	supervisorStart = map[string][]string{
		"":                  {failpoint.JournalRun, failpoint.StepBefore},
		lab.DatastoreEtcd:   {failpoint.JournalRun, failpoint.StepBefore, failpoint.EtcdSnapshot},
		lab.DatastoreSQLite: {failpoint.JournalRun, failpoint.StepBefore, failpoint.SQLiteStopped, failpoint.SQLiteCopied},
	}
	supervisorEnd = []string{failpoint.KubeletReplaced, failpoint.KubeletRestarted, failpoint.StepAfter, failpoint.JournalStep, failpoint.JournalFinish, failpoint.RunReported}
)

func supervisorLines(datastore string) []string {
	return slices.Concat(supervisorStart[datastore], supervisorEnd)
}

// supervisorKill is a move of a cluster in which the victim dies at each line, on each of the nodes.
type supervisorKill struct {
	Victim string `json:"victim"`
	From   string `json:"from"`
	To     string `json:"to"`
	// Killed are the lines by node.
	Killed  map[string][]string `json:"killed"`
	Outcome string              `json:"outcome"`
}

// TestLookAlikeKills kills at every line of the step supervisor: the agent, the unit of the
// distribution, its containerd, or the whole node. The agent pauses at the line until the
// other has died. A power cut loses what was not flushed. Each look-alike has a server and an
// agent. It moves to another build and then over a minor version, with another victim.
func TestLookAlikeKills(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a kill at every line of four moves: make e2e")
	}
	for _, x := range []struct {
		d         int
		datastore string
		victims   [2]string
	}{
		{0, lab.DatastoreSQLite, [2]string{"agent", "power"}},
		{1, lab.DatastoreEtcd, [2]string{"unit", "containerd"}},
	} {
		d := lookAlikes[x.d]
		t.Run(d.name, func(t *testing.T) {
			o := scenario.Options{Name: "lkill-" + d.name, Distribution: d.name, From: d.from, To: d.to, Nodes: 2, MediumNode: "n2"}
			if x.datastore != lab.DatastoreEtcd {
				o.Datastore = x.datastore
			}
			withFailpoints(&o)
			s := prepared(t, o)
			var moves []*supervisorKill
			keepResult(t, "lookalike-kills-"+d.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "datastore": x.datastore, "moves": moves, "steps": played[t.Name()]}
			})
			must(t, s.Components(t.Context()))
			must(t, s.Up(t.Context()))
			version := d.from
			for i, to := range []string{nextBuild(d.from), d.to} {
				m := &supervisorKill{Victim: x.victims[i], From: version, To: to, Killed: map[string][]string{}}
				step(t, "the "+m.Victim+" dies at every line of the move to "+to, func(t *testing.T) { killInTheMove(t, s, m, x.datastore, i == 0) })
				moves, version = append(moves, m), to
			}
			noRequestForARegistry(t, s)
		})
	}
}

// killInTheMove moves the cluster, and kills the victim at every line on both nodes.
func killInTheMove(t *testing.T, s *scenario.Scenario, m *supervisorKill, datastore string, first bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := distributionBundle(t, s, m.To)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	if first {
		must(t, s.Install(ctx, b, device))
	}
	must(t, s.Approve(ctx, b))
	_, err = s.Prepare(ctx, b)
	must(t, err)
	must(t, s.Eject(ctx, s.MediumNode, device))
	lines := map[string][]string{"n1": supervisorLines(datastore), "n2": supervisorLines("")}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for node, all := range lines {
		if !pauseAt(ctx, s, node, all[0]) {
			t.Fatalf("node %s does not take a failpoint", node)
		}
		wg.Go(func() {
			killAtLines(ctx, t, s, node, m.Victim, all, func(line string) {
				mu.Lock()
				defer mu.Unlock()
				m.Killed[node] = append(m.Killed[node], line)
			})
		})
	}
	startUpdate(t, s)
	halts := untilDone(t, s)
	eventually(t, 5*time.Minute, "both nodes are Ready at "+m.To, func() (bool, string) { return bothAt(t, s, m.To) })
	cancel()
	wg.Wait()
	for node, all := range lines {
		for _, p := range all {
			if !slices.Contains(m.Killed[node], p) {
				t.Errorf("%s of %s was not killed at %s", m.Victim, node, p)
			}
		}
		movedTo(t, s, node, m.To, "")
		holdsAll(t, s, node, b)
	}
	waitsForImage(t, s)
	m.Outcome = "finished by itself, both nodes observed at " + m.To
	if len(halts) > 0 {
		m.Outcome = "halted with a reason, finished after refit retry: " + strings.Join(halts, "; ")
	}
}

func bothAt(t *testing.T, s *scenario.Scenario, to string) (bool, string) {
	t.Helper()
	var said []string
	all := true
	for _, n := range s.Lab.Nodes() {
		version, ready, err := s.Kubelet(t.Context(), n)
		all = all && err == nil && ready && version == to
		said = append(said, fmt.Sprint(n, " ", version, " ", ready, " ", err))
	}
	return all, strings.Join(said, ", ")
}

// killAtLines kills the victim each time that the node pauses at one of the lines.
func killAtLines(ctx context.Context, t *testing.T, s *scenario.Scenario, node, victim string, lines []string, killed func(line string)) {
	for i, line := range lines {
		if !awaitPause(ctx, s, node, line) {
			return
		}
		// The next line is named before the kill: a node that starts again may be there at once.
		if i+1 < len(lines) && !pauseAt(ctx, s, node, lines[i+1]) {
			return
		}
		if i+1 < len(lines) && victim == "power" && s.Exec(ctx, node, "sync", failpointFile) != nil {
			return // a name that is not on disk is lost with the power
		}
		if err := killSupervised(ctx, s, node, victim); err != nil {
			if ctx.Err() == nil {
				t.Errorf("kill of %s of %s at %s: %v", victim, node, line, err)
			}
			return
		}
		killed(line)
		t.Logf("killed %s of %s at %s", victim, node, line)
		if victim == "agent" || victim == "power" {
			continue // what paused is gone
		}
		if err := s.Exec(ctx, node, "rm", "-f", pausedFile); err != nil {
			t.Errorf("go on at %s: %v", line, err)
			return
		}
	}
}

// killSupervised kills a part of a look-alike's node. systemd may still be starting it again
// after the kill before.
func killSupervised(ctx context.Context, s *scenario.Scenario, node, victim string) error {
	row, _ := distribution.ByName(s.Distribution)
	unit := row.Agents[0]
	if node == s.Lab.Nodes()[0] {
		unit = row.Servers[0]
	}
	do := map[string]func() error{
		"agent":      func() error { return kill(ctx, s, killPoint{node: node, victim: "refit-agent"}) },
		"unit":       func() error { return kill(ctx, s, killPoint{node: node, victim: unit}) },
		"containerd": func() error { return s.Exec(ctx, node, "pkill", "-KILL", "-x", "containerd") },
		"power":      func() error { return s.Lab.CutPower(ctx, node) },
	}[victim]
	var err error
	for range 600 {
		if err = do(); err == nil || ctx.Err() != nil || victim == "power" {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
