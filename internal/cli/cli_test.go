package cli

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	at := func(sec int64) metav1.ObjectMeta {
		return metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(sec, 0))}
	}
	upd := func(name, phase string, sec int64) v1alpha1.ClusterUpdate {
		u := v1alpha1.ClusterUpdate{ObjectMeta: at(sec)}
		u.Name, u.Status.Phase = name, phase
		return u
	}
	tests := map[string]struct {
		in   []v1alpha1.ClusterUpdate
		want string
	}{
		"none":                               {nil, ""},
		"the one that moves nodes":           {[]v1alpha1.ClusterUpdate{upd("a", "Updating", 1), upd("b", "Ready", 2)}, "a"},
		"one that waits before one done":     {[]v1alpha1.ClusterUpdate{upd("a", "Done", 9), upd("b", "Blocked", 2)}, "b"},
		"the newest of those that are done":  {[]v1alpha1.ClusterUpdate{upd("a", "Done", 1), upd("b", "Done", 2)}, "b"},
		"a halted one before one that waits": {[]v1alpha1.ClusterUpdate{upd("a", "Blocked", 9), upd("b", "Halted", 2)}, "b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if u := rolloutfacts.ChooseUpdate(tc.in); u != nil {
				got = u.Name
			}
			if got != tc.want {
				t.Errorf("chose %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPickBundle(t *testing.T) {
	t.Parallel()
	b := v1alpha1.Bundle{}
	b.Name, b.Status.Version, b.Status.Digest = "demo-1", "1.36.3", "sha256:x"
	c := *b.DeepCopy()
	c.Name, c.Status.Digest = "demo-2", "sha256:y"
	if d, err := pickBundle([]v1alpha1.Bundle{b, c}, "demo-2"); err != nil || d != "sha256:y" {
		t.Errorf("by name: %s, %v", d, err)
	}
	if _, err := pickBundle([]v1alpha1.Bundle{b, c}, "1.36.3"); console.ExitCode(err) != console.ExitUsage {
		t.Errorf("a version that two bundles have was guessed: %v", err)
	}
	if _, err := pickBundle(nil, "nope"); console.ExitCode(err) != console.ExitUsage {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestExitCodeOfAView(t *testing.T) {
	t.Parallel()
	for phase, want := range map[string]int{"Idle": 0, "Done": 0, "Halted": 5, "Blocked": 3, "Ready": 3, "Updating": 4, "Preparing": 4} {
		if got := console.ExitCode(codeOf(explain.View{Phase: phase})); got != want {
			t.Errorf("%s: exit code %d, want %d", phase, got, want)
		}
	}
	if got := console.ExitCode(codeOf(explain.View{Phase: "Updating", Paused: true})); got != console.ExitBlocked {
		t.Errorf("paused: exit code %d", got)
	}
}

// A watch ends with exit code 3 when only a person can act, and not for a moment's
// Blocked.
func TestAWatchEndsWhenAPersonMustAct(t *testing.T) {
	t.Parallel()
	var b blockedTimer
	at := time.Unix(0, 0)
	blocked, updating := explain.View{Phase: v1alpha1.PhaseBlocked}, explain.View{Phase: v1alpha1.PhaseUpdating}
	for i, step := range []struct {
		v     explain.View
		after time.Duration
		ends  bool
	}{{blocked, 0, false}, {blocked, 9 * time.Second, false}, {updating, time.Second, false}, {blocked, time.Second, false}, {blocked, 9 * time.Second, false}, {blocked, time.Second, true}} {
		at = at.Add(step.after)
		if got := b.tooLong(step.v.Phase, at); got != step.ends {
			t.Errorf("step %d: ends %t, want %t", i, got, step.ends)
		}
	}
	if got := console.ExitCode(codeOf(blocked)); got != console.ExitBlocked {
		t.Errorf("exit code %d", got)
	}
}

// A command that waits for the nodes does not take a moment's Blocked for an answer, one
// that only asks does.
func TestBlockedIsAnAnswerAfterAWhile(t *testing.T) {
	t.Parallel()
	var waits, asks blockedTimer
	at := time.Unix(0, 0)
	if waits.ends(v1alpha1.PhaseBlocked, true, at) || !asks.ends(v1alpha1.PhaseBlocked, false, at) {
		t.Error("a wait ends at once, or a question waits")
	}
	if !waits.ends(v1alpha1.PhaseReady, true, at) || waits.ends(v1alpha1.PhaseBlocked, true, at.Add(blockedPatience)) || !waits.ends(v1alpha1.PhaseBlocked, true, at.Add(2*blockedPatience)) {
		t.Error("Ready is no answer, or the patience does not start anew after it")
	}
}

func TestPlanned(t *testing.T) {
	t.Parallel()
	u := &v1alpha1.ClusterUpdate{}
	u.Generation = 2
	u.Status = v1alpha1.ClusterUpdateStatus{ObservedGeneration: 1, Phase: v1alpha1.PhaseReady, PlanDigest: "sha256:x"}
	if planned(u, false) {
		t.Error("a status of an older spec counts as an answer")
	}
	u.Status.ObservedGeneration = 2
	if !planned(u, true) {
		t.Error("a ready plan is no answer")
	}
	u.Status.Phase = v1alpha1.PhasePreparing
	if planned(u, true) || !planned(u, false) {
		t.Error("a plan whose nodes still prepare answers only who does not wait for them")
	}
	u.Status.Blockers = []v1alpha1.Blocker{{Reason: v1alpha1.ReasonConfigWaiting, Waiting: true, Message: "the plan does not have them yet"}}
	if planned(u, false) || planned(u, true) {
		t.Error("a plan without an edited NodeConfig is an answer")
	}
	u.Status.Blockers[0].Waiting = false
	if !planned(u, false) {
		t.Error("a NodeConfig that a person must correct hides the plan")
	}
}
