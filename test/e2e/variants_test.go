package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/refit-dev/refit/internal/lab/scenario"
)

// TestVariants runs the story straight through on clusters of other shapes. It writes
// its measurements to results/variants.json, among them how long the API server was
// unavailable and the lowest number of ready pods.
func TestVariants(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("whole updates of several clusters take long: make e2e")
	}
	report := struct {
		Variants map[string]scenario.Result `json:"variants"`
	}{map[string]scenario.Result{}}
	for _, v := range []struct {
		name                 string
		nodes, controlPlanes int
	}{
		{"one control plane and three workers", 4, 1},
		{"two control planes and two workers", 4, 2}, // one worker alone could not be drained within the budget
		{"a single node", 1, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := prepared(t, scenario.Options{Name: fmt.Sprintf("shape%d%d", v.nodes, v.controlPlanes), From: from, To: to,
				Nodes: v.nodes, ControlPlanes: v.controlPlanes, MediumNode: fmt.Sprintf("n%d", min(2, v.nodes))})
			r, err := s.Play(t.Context())
			must(t, err)
			report.Variants[v.name] = r
			if !r.OK {
				t.Errorf("problems: %v", r.Problems)
			}
		})
	}
	keepResult(t, "variants.json", func() any { return report })
}
