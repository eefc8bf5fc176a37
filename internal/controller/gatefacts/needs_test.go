package gatefacts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

func TestWhatAPlanNeedsOfAgents(t *testing.T) {
	step := func(by, updater string, params map[string]string) model.Step {
		return model.Step{By: by, Updater: updater, Params: params}
	}
	config := map[string]string{model.ParamConfig: "config-1"}
	got := needsOf(model.Plan{Nodes: []model.NodePlan{
		{Node: "n1", Steps: []model.Step{step(model.ByAgent, "kubeadm", nil), step(model.ByController, "drain", nil), step(model.ByAgent, "kubelet", nil), step(model.ByAgent, "kubelet", nil)}},
		{Node: "n2", Steps: []model.Step{step(model.ByAgent, "files", config), step(model.ByAgent, "restart", config)}},
		{Node: "n3", Steps: []model.Step{step(model.ByController, "drain", nil)}},
		{Node: "n4", Steps: []model.Step{step(model.ByAgent, "files", map[string]string{model.ParamUndoDeadline: "600"})}},
	}})
	want := map[string]*gate.Needs{
		"n1": {Updaters: []string{"kubeadm", "kubelet"}, Formats: []string{"refit.dev/hold/v1", "refit.dev/plan/v1"}, Refit: componentversion.Refit()},
		"n2": {Updaters: []string{"files", "restart"}, Formats: []string{"refit.dev/hold/v1", "refit.dev/plan/v1", "refit.dev/config/v1", "refit.dev/config/v2"}, Refit: componentversion.Refit()},
		"n4": {Updaters: []string{"files"}, Formats: []string{"refit.dev/hold/v1", "refit.dev/plan/v1", "refit.dev/undo-deadline/v1"}, Refit: componentversion.Refit()},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
