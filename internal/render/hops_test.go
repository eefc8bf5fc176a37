package render

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// A plan of several hops has a heading and a table for each.
func TestPlanTextOfHops(t *testing.T) {
	t.Parallel()
	hop := func(version string) model.Plan {
		return model.Plan{Target: model.Target{Bundle: "sha256:" + strings.Repeat(version[2:4], 32), Name: "demo", Version: version, Kubernetes: "v" + version},
			Nodes: []model.NodePlan{{Node: "n1", Pool: "default", Role: model.RoleWorker, To: "v" + version, Steps: []model.Step{{ID: "kubelet", Updater: "kubelet", Disruption: model.DisruptionDrain}}}}}
	}
	whole := hop("1.35.4")
	whole.Then = []model.Plan{hop("1.36.3")}
	rest := hop("1.36.3")
	for name, tc := range map[string]struct {
		view PlanView
		want []string
		not  string
	}{
		"both hops": {PlanView{Plan: &whole, Hops: []HopView{{Version: "1.35.4", State: HopRuns}, {Version: "1.36.3", State: HopWaits}}, Rollout: []string{"pool default: 1 worker"}},
			[]string{"to demo 1.36.3 (bundle sha256:363636363636, Kubernetes v1.36.3)", "Hop 1 of 2, to demo 1.35.4 (bundle sha256:353535353535, Kubernetes v1.35.4): runs.", "v1.35.4",
				"Hop 2 of 2, to demo 1.36.3 (bundle sha256:363636363636, Kubernetes v1.36.3): waits.", "How it is rolled out"}, ""},
		"no hops": {PlanView{Plan: &rest}, []string{"to demo 1.36.3"}, "Hop "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := Plan(&b, Table, tc.view); err != nil {
				t.Fatal(err)
			}
			at := 0
			for _, want := range tc.want {
				i := strings.Index(b.String()[at:], want)
				if i < 0 {
					t.Fatalf("the plan does not say %q after byte %d:\n%s", want, at, b.String())
				}
				at += i
			}
			if tc.not != "" && strings.Contains(b.String(), tc.not) {
				t.Errorf("the plan says %q:\n%s", tc.not, b.String())
			}
			if got, want := strings.Count(b.String(), "WAVE"), len(tc.view.Plan.Hops()); got != want {
				t.Errorf("%d tables for %d hops", got, want)
			}
		})
	}
}
