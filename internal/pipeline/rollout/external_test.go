package rollout

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// The rollout waits for a node whose external updater is at work. A failure of it halts the
// update, with the message of the updater. The node is never undone, because refit cannot
// undo the work of an external updater.
func TestAnExternalUpdater(t *testing.T) {
	t.Parallel()
	plan := nodePlan("w1", model.RoleWorker, "p", 0)
	plan.Steps = append(plan.Steps, model.Step{ID: "external-bios", Updater: "external/bios", By: model.ByController, NotReversible: "refit cannot ask it to undo"})
	look := func(outside *ExternalWait, atTarget bool) Decision {
		n := Node{Name: "w1", Ready: true, Started: true, Unschedulable: true, Attempt: Attempt{1, 0, 1}, AtTarget: atTarget, External: outside,
			Run: &Run{Attempt: Attempt{1, 0, 1}, State: RunSucceeded, Step: "settle"}}
		return Next(Input{Plan: model.Plan{Nodes: []model.NodePlan{plan}}, Nodes: map[string]Node{"w1": n},
			Pools: map[string]Pool{"p": {Name: "p", Budget: 1, Undo: true}}})
	}
	if d := look(&ExternalWait{Step: "external-bios", Message: "Updater bios: flashing"}, false); d.Halted || d.Stages.ByNode("w1") != StageSettling || !strings.Contains(d.Blockers[0].Message, "flashing") {
		t.Errorf("at work: %+v", d)
	}
	d := look(&ExternalWait{Step: "external-bios", Message: "write protected", Failed: true}, false)
	if !d.Halted || d.Stages.ByNode("w1") != StageFailed || len(d.Actions) > 0 {
		t.Fatalf("failed: %+v", d)
	}
	if m := d.Blockers[0].Message; !strings.Contains(m, "step external-bios failed: write protected") || !strings.Contains(m, "it is not undone") {
		t.Errorf("failed: %s", m)
	}
	if d := look(nil, true); d.Stages.ByNode("w1") != StageFinishing {
		t.Errorf("seen at its target: %+v", d)
	}
}
