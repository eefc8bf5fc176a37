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

// Lines of a run at which an agent can die, in the order in which a run passes them first.
// At the lines of an exchange the process dies that replaces the files.
var (
	workerPoints = []string{
		failpoint.JournalRun, failpoint.StepBefore, failpoint.KubeadmBinary, failpoint.KubeadmStarted, failpoint.StepAfter,
		failpoint.JournalStep, failpoint.KubeletReplaced, failpoint.KubeletRestarted, failpoint.JournalFinish, failpoint.RunReported,
	}
	controlPlanePoints = []string{
		failpoint.JournalRun, failpoint.StepBefore, failpoint.ControlPlaneCommand, failpoint.ControlPlanePrepared,
		failpoint.ExchangeRecorded, failpoint.ExchangePrepared, failpoint.ExchangeStopped, failpoint.ExchangeRenamed,
		failpoint.ControlPlaneReplaced, failpoint.StepAfter, failpoint.JournalStep,
		failpoint.KubeadmBinary, failpoint.KubeadmStarted, failpoint.JournalFinish, failpoint.RunReported,
	}
)

func journalPoints(s *scenario.Scenario, node string) []string {
	if node == s.Lab.Nodes()[0] {
		return controlPlanePoints
	}
	return workerPoints
}

// TestJournalKills cuts every node's agent off once at every kind of line of its
// run's journal, one after the other, and the controller at every change of a node.
// Every pass of every line is drawn from in the engine's own property test.
// The update finishes by itself; results/journal.json says what was cut.
func TestJournalKills(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("the kill at every line takes long: make e2e")
	}
	s := start(t, "journal", 3, withFailpoints)
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
	startUpdate(t, s)

	var mu sync.Mutex
	cut := map[string][]string{}
	var wg sync.WaitGroup
	for _, n := range s.Lab.Nodes() {
		wg.Go(func() {
			for _, p := range journalPoints(s, n) {
				if diesAt(ctx, s, n, p) {
					mu.Lock()
					cut[n] = append(cut[n], p)
					mu.Unlock()
				}
			}
		})
	}
	controller := 0
	wg.Go(func() { controller = killAtChanges(ctx, s) })
	finished(t, s, b, digest)
	cancel()
	wg.Wait()
	for _, n := range s.Lab.Nodes() {
		for _, p := range journalPoints(s, n) {
			if !slices.Contains(cut[n], p) {
				t.Errorf("the agent of %s never died at %s", n, p)
			}
		}
	}
	if controller < 6 {
		t.Errorf("the controller was killed %d times only", controller)
	}
	keepResult(t, "journal.json", func() any {
		return map[string]any{"agents": cut, "controllerKills": controller, "outcome": "finished by itself, every node observed at " + to}
	})
}

// diesAt has the agent of a node die at its next pass of the point.
func diesAt(ctx context.Context, s *scenario.Scenario, node, point string) bool {
	if s.Exec(ctx, node, "sh", "-c", "echo "+point+" > "+failpointFile) != nil {
		return false
	}
	for ctx.Err() == nil {
		if err := s.Exec(ctx, node, "test", "!", "-e", failpointFile); err == nil {
			return true
		}
		time.Sleep(200 * time.Millisecond)
	}
	return false
}

// killAtChanges kills the controller each time a node was cordoned, permitted,
// reported or uncordoned, and gives the number of kills.
func killAtChanges(ctx context.Context, s *scenario.Scenario) int {
	seen := map[string]bool{}
	kills := 0
	for ctx.Err() == nil {
		for _, n := range s.Lab.Nodes() {
			look, cancel := context.WithTimeout(ctx, time.Second)
			state := stateOf(look, s, n)
			cancel()
			if state == "" || seen[state] {
				continue
			}
			seen[state] = true
			if s.KillController(ctx) == nil {
				kills++
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return kills
}

// stateOf names how far a node is; "" if it cannot be seen or nothing began.
func stateOf(ctx context.Context, s *scenario.Scenario, node string) string {
	cordoned, err := s.Cordoned(ctx, node)
	if err != nil {
		return ""
	}
	nu, err := nodeUpdateOf(ctx, s, node)
	switch {
	case err != nil:
		return ""
	case nu.Status.Run != nil && nu.Spec.Run != nil && !cordoned:
		return node + " uncordoned"
	case nu.Status.Run != nil && nu.Spec.Run != nil:
		return node + " " + string(nu.Status.Run.State)
	case nu.Spec.Run != nil:
		return node + " permitted"
	case cordoned:
		return node + " cordoned"
	}
	return ""
}
