package e2e

import (
	"context"
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

// supervisorKill is a move of a cluster in which one of the victims dies at each line, on each of the nodes.
type supervisorKill struct {
	Victims []string `json:"victims"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	// Killed are the lines by node, each with who died there.
	Killed  map[string][]string `json:"killed"`
	Outcome string              `json:"outcome"`
}

// supervisorVictims die at the lines. The unit's process and its containerd do not run while the
// unit is stopped for a copy of SQLite.
var (
	supervisorVictims = []string{"agent", "power", "unit", "containerd"}
	stoppedAt         = []string{failpoint.SQLiteStopped, failpoint.SQLiteCopied, failpoint.KubeletReplaced}
	whileStopped      = map[string]string{"unit": "agent", "containerd": "power"}
)

// victimsAt returns who dies at each line. The victims take turns, and begin with the one of a number.
func victimsAt(lines, victims []string, begin int, datastore string) (out []string) {
	for i, line := range lines {
		v := victims[(begin+i)%len(victims)]
		if other := whileStopped[v]; other != "" && datastore == lab.DatastoreSQLite && slices.Contains(stoppedAt, line) {
			v = other
		}
		out = append(out, v)
	}
	return out
}

// TestLookAlikeKills kills at every line of the step supervisor: the agent, the unit of the
// distribution, its containerd, or the whole node. The agent pauses at the line until the
// other has died. A power cut loses what was not flushed. Each look-alike has a server and an
// agent. It moves to another build and then over a minor version. In the cases NAME one victim dies
// at all lines of a move. In NAME-turns all four take turns in both moves, so that over both
// moves and nodes each dies at each line.
func TestLookAlikeKills(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a kill at every line of twelve moves: make e2e")
	}
	all := [2][]string{supervisorVictims, supervisorVictims}
	for _, x := range []struct {
		d         int
		name      string
		datastore string
		victims   [2][]string
	}{
		{0, "k3s", lab.DatastoreSQLite, [2][]string{{"agent"}, {"power"}}},
		{1, "rke2", lab.DatastoreEtcd, [2][]string{{"unit"}, {"containerd"}}},
		{2, "k0s", lab.DatastoreEtcd, [2][]string{{"agent"}, {"power"}}},
		{0, "k3s-turns", lab.DatastoreSQLite, all},
		{1, "rke2-turns", lab.DatastoreEtcd, all},
		{2, "k0s-turns", lab.DatastoreEtcd, all},
	} {
		d := lookAlikes[x.d]
		t.Run(x.name, func(t *testing.T) {
			o := scenario.Options{Name: "lkill-" + x.name, Distribution: d.name, From: d.from, To: d.to, Nodes: 2, MediumNode: "n2"}
			if x.datastore != lab.DatastoreEtcd {
				o.Datastore = x.datastore
			}
			withFailpoints(&o)
			s := prepared(t, o)
			var moves []*supervisorKill
			keepResult(t, "lookalike-kills-"+x.name+".json", func() any {
				return map[string]any{"distribution": "look-alike of " + d.name, "datastore": x.datastore, "moves": moves, "steps": played[t.Name()]}
			})
			must(t, s.Components(t.Context()))
			must(t, s.Up(t.Context()))
			version := d.from
			for i, to := range []string{nextBuild(d.from), d.to} {
				m := &supervisorKill{Victims: x.victims[i], From: version, To: to, Killed: map[string][]string{}}
				step(t, strings.Join(m.Victims, ", ")+" die at every line of the move to "+to, func(t *testing.T) { killInTheMove(t, s, m, x.datastore, i) })
				moves, version = append(moves, m), to
			}
			noRequestForARegistry(t, s)
		})
	}
}

// TestVictimsTakeTurns needs no lab: over both moves and nodes each victim dies at each line, but for the lines
// at which it does not run.
func TestVictimsTakeTurns(t *testing.T) {
	for _, datastore := range []string{lab.DatastoreEtcd, lab.DatastoreSQLite} {
		died := map[string]map[string]bool{}
		for move := range 2 {
			for node, lines := range [][]string{supervisorLines(datastore), supervisorLines("")} {
				store := [2]string{datastore, ""}[node]
				for i, v := range victimsAt(lines, supervisorVictims, firstVictim(move, node, len(lines)), store) {
					if whileStopped[v] != "" && store == lab.DatastoreSQLite && slices.Contains(stoppedAt, lines[i]) {
						t.Errorf("%s would die at %s, where it does not run", v, lines[i])
					}
					if died[lines[i]] == nil {
						died[lines[i]] = map[string]bool{}
					}
					died[lines[i]][v] = true
				}
			}
		}
		for _, line := range supervisorEnd {
			for _, v := range supervisorVictims {
				if !died[line][v] && (datastore == lab.DatastoreEtcd || !slices.Contains(stoppedAt, line)) {
					t.Errorf("%s: %s does not die at %s", datastore, v, line)
				}
			}
		}
	}
}

// firstVictim is the number of the victim at the first line of a node with so many lines. It counts from the
// last line, since a server has more lines before those that all nodes have.
func firstVictim(move, node, lines int) int {
	n := len(supervisorVictims)
	return ((2*move+node-lines)%n + n) % n
}

// killInTheMove moves the cluster, and kills a victim at every line on both nodes.
func killInTheMove(t *testing.T, s *scenario.Scenario, m *supervisorKill, datastore string, move int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := distributionBundle(t, s, m.To)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	if move == 0 {
		must(t, s.Install(ctx, b, device))
	}
	must(t, s.Approve(ctx, b))
	_, err = s.Prepare(ctx, b)
	must(t, err)
	must(t, s.Eject(ctx, s.MediumNode, device))
	stores := []string{datastore, ""}
	due := map[string][]string{} // what is to die on a node, in the order of its lines
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, node := range s.Lab.Nodes() {
		lines := supervisorLines(stores[i])
		victims := victimsAt(lines, m.Victims, firstVictim(move, i, len(lines)), stores[i])
		for k := 0; k < len(lines); k = next(victims, lines, k) {
			due[node] = append(due[node], killedAt(victims[k], lines[k]))
		}
		if !pauseAt(ctx, s, node, lines[0]) {
			t.Fatalf("node %s does not take a failpoint", node)
		}
		wg.Go(func() {
			killAtLines(ctx, t, s, node, victims, lines, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				m.Killed[node] = append(m.Killed[node], what)
			})
		})
	}
	startUpdate(t, s)
	halts := untilDone(t, s)
	eventually(t, 5*time.Minute, "both nodes are Ready at "+m.To, func() (bool, string) { return areAt(t, s, m.To) })
	cancel()
	wg.Wait()
	for node, all := range due {
		for _, what := range all {
			if !slices.Contains(m.Killed[node], what) {
				t.Errorf("on %s this did not die: %s", node, what)
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

// killedAt says who died where.
func killedAt(victim, line string) string { return victim + " at " + line }

// killAtLines kills the victim of each line when the node pauses there.
func killAtLines(ctx context.Context, t *testing.T, s *scenario.Scenario, node string, victims, lines []string, killed func(what string)) {
	for i := 0; i < len(lines); {
		if !awaitPause(ctx, s, node, lines[i]) {
			return
		}
		then := next(victims, lines, i)
		// The next line is named before the kill: a node that starts again may be there at once.
		if then < len(lines) && !pauseAt(ctx, s, node, lines[then]) {
			return
		}
		if !killAt(ctx, t, s, node, victims[i], lines[i], then < len(lines)) {
			return
		}
		killed(killedAt(victims[i], lines[i]))
		i = then
	}
}

// next is the line after that of a kill. A node whose power goes between the swap of its program and
// the restart boots the new one: the agent finds it running, and orders no restart.
func next(victims, lines []string, i int) int {
	if victims[i] == "power" && lines[i] == failpoint.KubeletReplaced {
		return i + 2
	}
	return i + 1
}

// killAt kills a victim while the agent of the node pauses at a line, and lets the agent go on. more says that
// another line follows.
func killAt(ctx context.Context, t *testing.T, s *scenario.Scenario, node, victim, line string, more bool) bool {
	if more && victim == "power" && s.Exec(ctx, node, "sync", failpointFile) != nil {
		return false // a name that is not on disk is lost with the power
	}
	if err := killSupervised(ctx, s, node, victim); err != nil {
		if ctx.Err() == nil {
			t.Errorf("kill of %s of %s at %s: %v", victim, node, line, err)
		}
		return false
	}
	t.Logf("killed %s of %s at %s", victim, node, line)
	if victim == "agent" || victim == "power" {
		return true // what paused is gone
	}
	if err := s.Exec(ctx, node, "rm", "-f", pausedFile); err != nil {
		t.Errorf("go on at %s: %v", line, err)
	}
	return true
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
