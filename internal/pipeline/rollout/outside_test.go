package rollout

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// A node whose external updater is at work is waited for, and one on which it failed
// halts the update in its words: it is never undone, because nobody can take back what
// another has done.
func TestAnExternalUpdater(t *testing.T) {
	t.Parallel()
	plan := nodePlan("w1", model.RoleWorker, "p", 0)
	plan.Steps = append(plan.Steps, model.Step{ID: "external-bios", Updater: "external/bios", By: model.ByController, NotReversible: "nobody can ask it"})
	look := func(outside *Outside, atTarget bool) Decision {
		n := Node{Name: "w1", Ready: true, Started: true, Unschedulable: true, Attempt: Attempt{1, 0, 1}, AtTarget: atTarget, Outside: outside,
			Run: &Run{Attempt: Attempt{1, 0, 1}, State: RunSucceeded, Step: "settle"}}
		return Next(Input{Plan: model.Plan{Nodes: []model.NodePlan{plan}}, Nodes: map[string]Node{"w1": n},
			Pools: map[string]Pool{"p": {Name: "p", Budget: 1, Undo: true}}})
	}
	if d := look(&Outside{Step: "external-bios", Says: "Updater bios: flashing"}, false); d.Halted || d.Stages.Of("w1") != StageSettling || !strings.Contains(d.Verdicts[0].Message, "flashing") {
		t.Errorf("at work: %+v", d)
	}
	d := look(&Outside{Step: "external-bios", Says: "write protected", Failed: true}, false)
	if !d.Halted || d.Stages.Of("w1") != StageFailed || len(d.Actions) > 0 {
		t.Fatalf("failed: %+v", d)
	}
	if m := d.Verdicts[0].Message; !strings.Contains(m, "step external-bios failed: write protected") || !strings.Contains(m, "it is not undone") {
		t.Errorf("failed: %s", m)
	}
	if d := look(nil, true); d.Stages.Of("w1") != StageFinishing {
		t.Errorf("seen at its target: %+v", d)
	}
}
