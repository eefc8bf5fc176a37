package gatefacts

import (
	"maps"
	"slices"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// driftOf is what a node's agent says of what somebody changed, less what the pool's
// policy ignores. What the policy repairs comes back with the update. That a person
// took the node back, or that it went back by itself, is never overruled by a policy.
func driftOf(nu *v1alpha1.NodeUpdate) []gate.Drift {
	if nu == nil || nu.Status.Observed == nil {
		return nil
	}
	fields := nu.Status.Observed.Fields
	var out []gate.Drift
	if left := fields[model.FieldOSLeft]; left != "" {
		out = append(out, gate.Drift{Kind: gate.DriftLeft, Detail: "somebody took it back from " + left + ", which is wanted still, to " + fields[model.FieldOSImage] + "; that is not undone by itself"})
	}
	if failed := fields[model.FieldOSFailed]; failed != "" {
		out = append(out, gate.Drift{Kind: gate.DriftFailed, Detail: "it went back by itself from the OS image that is wanted still: " + failed})
	}
	policy := fields[model.FieldDriftPolicy]
	if policy == model.DriftIgnore {
		return out
	}
	if d := fields[model.FieldFilesDrift]; d != "" {
		out = append(out, gate.Drift{Kind: gate.DriftFiles, Detail: d, Mended: policy == model.DriftRepair})
	}
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if kind, ok := strings.CutPrefix(path, model.FieldOSDrift); ok {
			// Layered packages go by a person's hand alone.
			out = append(out, gate.Drift{Kind: kind, Detail: fields[path], Mended: policy == model.DriftRepair && kind != gate.DriftPackages})
		}
	}
	return out
}
