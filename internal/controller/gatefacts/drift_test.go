package gatefacts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// What the agent says, by the pool's policy; that a person took the node back is never
// overruled by a policy.
func TestDriftOf(t *testing.T) {
	says := map[string]string{model.FieldFilesDrift: "/etc/motd is not as refit wrote it", "os/drift": "LayeredPackages,UsrOverlay", "os/drift/UsrOverlay": "/usr was unlocked", "os/drift/LayeredPackages": "vim"}
	files, overlay, packages := gate.Drift{Kind: gate.DriftFiles, Detail: says[model.FieldFilesDrift]}, gate.Drift{Kind: gate.DriftOverlay, Detail: "/usr was unlocked"}, gate.Drift{Kind: gate.DriftPackages, Detail: "vim"}
	repaired := func(d gate.Drift) gate.Drift { d.RepairedByUpdate = true; return d }
	left := gate.Drift{Kind: gate.DriftLeft, Detail: "an administrator rolled it back from sha256:b, which is still wanted, to sha256:a; refit does not undo that"}
	failed := gate.Drift{Kind: gate.DriftFailed, Detail: "it rolled itself back from the OS image that is still wanted: sha256:b: it was not Ready"}
	for name, c := range map[string]struct {
		policy string
		left   bool
		want   []gate.Drift
	}{
		"report":                        {"", false, []gate.Drift{files, packages, overlay}},
		"repair, but for packages":      {model.DriftRepair, false, []gate.Drift{repaired(files), packages, repaired(overlay)}},
		"ignore":                        {model.DriftIgnore, false, nil},
		"rolled back, although ignored": {model.DriftIgnore, true, []gate.Drift{left}},
	} {
		fields := map[string]string{}
		for k, v := range says {
			fields[k] = v
		}
		if c.policy != "" {
			fields[model.FieldDriftPolicy] = c.policy
		}
		if c.left {
			fields[model.FieldOSLeft], fields[model.FieldOSImage] = "sha256:b", "sha256:a"
		}
		got := driftOf(&v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: fields}}})
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	fields := map[string]string{model.FieldOSFailed: "sha256:b: it was not Ready", model.FieldDriftPolicy: model.DriftIgnore, model.FieldFilesDrift: "x"}
	if d := cmp.Diff([]gate.Drift{failed}, driftOf(&v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: fields}}})); d != "" {
		t.Error("a policy ignores a node that rolled itself back:", d)
	}
	fields = map[string]string{model.FieldDriftPolicy: model.DriftIgnore, model.FieldFilesReport: "a", model.FieldFilesRepair: "b", "os/drift/UsrOverlay": "c"}
	want := []gate.Drift{{Kind: gate.DriftFiles, Detail: "a"}, {Kind: gate.DriftFiles, Detail: "b", RepairedByUpdate: true}}
	if d := cmp.Diff(want, driftOf(&v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Observed: &v1alpha1.Observed{Fields: fields}}})); d != "" {
		t.Error("rules for single files before the policy of the pool:", d)
	}
	if driftOf(nil) != nil || driftOf(&v1alpha1.NodeUpdate{}) != nil {
		t.Error("of a node that says nothing")
	}
}
