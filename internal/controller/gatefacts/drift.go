package gatefacts

import (
	"maps"
	"slices"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// driftOf are the local changes that a node's agent reports, without those that the pool's
// policy ignores. The update repairs those that the policy repairs. No policy overrules a
// node that an administrator rolled back, or that rolled itself back.
func driftOf(nu *v1alpha1.NodeUpdate) []gate.Drift {
	if nu == nil || nu.Status.Observed == nil {
		return nil
	}
	fields := nu.Status.Observed.Fields
	var out []gate.Drift
	if left := fields[model.FieldOSLeft]; left != "" {
		out = append(out, gate.Drift{Kind: gate.DriftLeft, Detail: "an administrator rolled it back from " + left + ", which is still wanted, to " + fields[model.FieldOSImage] + "; refit does not undo that"})
	}
	if failed := fields[model.FieldOSFailed]; failed != "" {
		out = append(out, gate.Drift{Kind: gate.DriftFailed, Detail: "it rolled itself back from the OS image that is still wanted: " + failed})
	}
	out = append(out, driftByRules(fields)...)
	policy := fields[model.FieldDriftPolicy]
	if policy == model.DriftIgnore {
		return out
	}
	if d := fields[model.FieldFilesDrift]; d != "" {
		out = append(out, gate.Drift{Kind: gate.DriftFiles, Detail: d, RepairedByUpdate: policy == model.DriftRepair})
	}
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if kind, ok := strings.CutPrefix(path, model.FieldOSDrift); ok {
			// Layered packages go by a person's hand alone.
			out = append(out, gate.Drift{Kind: kind, Detail: fields[path], RepairedByUpdate: policy == model.DriftRepair && kind != gate.DriftPackages})
		}
	}
	return out
}

// driftByRules is the drift of files and units with policies of their own, which come before that of
// the pool.
func driftByRules(fields map[string]string) (out []gate.Drift) {
	if d := fields[model.FieldFilesReport]; d != "" {
		out = append(out, gate.Drift{Kind: gate.DriftFiles, Detail: d})
	}
	if d := fields[model.FieldFilesRepair]; d != "" {
		out = append(out, gate.Drift{Kind: gate.DriftFiles, Detail: d, RepairedByUpdate: true})
	}
	return out
}
