package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

const (
	failpointFile = "/var/lib/refit/failpoint"
	pausedFile    = failpointFile + failpoint.PausedSuffix
)

// controlPlaneLines are the lines of the step that replaces a control plane, in the order in
// which a node passes them first.
var controlPlaneLines = []string{
	failpoint.ControlPlaneCommand, failpoint.ControlPlanePrepared, failpoint.ExchangeRecorded, failpoint.ExchangePrepared,
	failpoint.ExchangeStopped, failpoint.ExchangeRenamed, failpoint.ControlPlaneReplaced,
}

// withoutKubelet are the lines at which the kubelet is stopped: there is nothing to kill.
var withoutKubelet = []string{failpoint.ExchangeStopped, failpoint.ExchangeRenamed}

// TestKillsInTheExchange kills the kubelet, containerd and the whole node at every line of
// the step that replaces the control plane: the agent pauses at the line until the other has
// died. TestJournalKills has the agent die at the same lines. Each victim has a cluster of one
// node, which loses its only API server at the worst line. results/exchangekills.json says
// what was killed where, and how the update ended.
func TestKillsInTheExchange(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a cluster for each victim takes minutes: make e2e")
	}
	type row struct {
		Victim  string   `json:"victim"`
		Lines   []string `json:"lines"`
		Outcome string   `json:"outcome"`
	}
	var rows []row
	for _, victim := range []string{"kubelet", "containerd", "power"} {
		t.Run(victim, func(t *testing.T) {
			lines := slices.DeleteFunc(slices.Clone(controlPlaneLines), func(p string) bool {
				return victim == "kubelet" && slices.Contains(withoutKubelet, p)
			})
			r := row{Victim: victim}
			r.Lines, r.Outcome = killInTheExchange(t, victim, lines)
			rows = append(rows, r)
			for _, p := range lines {
				if !slices.Contains(r.Lines, p) {
					t.Errorf("%s was not killed at %s", victim, p)
				}
			}
		})
	}
	keepResult(t, "exchangekills.json", func() any { return map[string]any{"kills": rows} })
}

// killInTheExchange updates a cluster of one node, and kills the victim at each line.
func killInTheExchange(t *testing.T, victim string, lines []string) (killedAt []string, outcome string) {
	s := start(t, "exch"+victim, 1, withFailpoints, func(o *scenario.Options) { o.MediumNode = "n1" })
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
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, line := range lines {
			if !awaitPause(ctx, s, "n1", line) {
				return
			}
			// The next line is named before the kill: a node that starts again may be there at once.
			if i+1 < len(lines) && !pauseAt(ctx, s, "n1", lines[i+1]) {
				return
			}
			if err := killOnceUp(ctx, s, victim); err != nil {
				t.Errorf("kill of %s at %s: %v", victim, line, err)
				return
			}
			killedAt = append(killedAt, line)
			if victim == "power" {
				continue // what paused is gone
			}
			if err := s.Exec(ctx, "n1", "rm", "-f", pausedFile); err != nil {
				t.Errorf("go on at %s: %v", line, err)
				return
			}
		}
	})
	if !pauseAt(ctx, s, "n1", lines[0]) {
		t.Fatal("the node does not take a failpoint")
	}
	startUpdate(t, s)
	halts := untilDone(t, s)
	finished(t, s, b, digest)
	cancel()
	wg.Wait()
	outcome = "finished by itself, the node observed at " + to
	if len(halts) > 0 {
		outcome = "halted with a reason, finished after refit retry: " + strings.Join(halts, "; ")
	}
	return killedAt, outcome
}

// killOnceUp kills the victim. systemd may still be starting it again after the kill before.
func killOnceUp(ctx context.Context, s *scenario.Scenario, victim string) error {
	var err error
	for range 300 {
		if err = kill(ctx, s, killPoint{node: "n1", victim: victim}); err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// pauseAt has the node pause at its next pass of the line.
func pauseAt(ctx context.Context, s *scenario.Scenario, node, line string) bool {
	for ctx.Err() == nil {
		if s.Exec(ctx, node, "sh", "-c", "echo "+line+" pause > "+failpointFile+".new && mv "+failpointFile+".new "+failpointFile) == nil {
			return true
		}
		time.Sleep(100 * time.Millisecond) // the node has no power yet
	}
	return false
}

// awaitPause waits until the node pauses at the line.
func awaitPause(ctx context.Context, s *scenario.Scenario, node, line string) bool {
	for ctx.Err() == nil {
		if s.Exec(ctx, node, "grep", "-qs", "^"+line+" ", pausedFile) == nil {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}
