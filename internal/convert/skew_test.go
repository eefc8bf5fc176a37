package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/convert"
)

// A target may be named as Kubernetes counts or as the platform does.
func TestSkewTarget(t *testing.T) {
	t.Parallel()
	releases := []convert.StreamRelease{{Release: "4.19.3", Kubernetes: "1.32.6", OS: "9.6.20251023-0", OSStreams: []string{"rhel-10"}}, {Release: "1.36.3", Kubernetes: "1.36.3"}}
	pool := &v1alpha1.MachineSource{Status: v1alpha1.MachineSourceStatus{Wanted: &v1alpha1.BootImage{OS: "10.0.20260501-0"}}}
	moves := &v1alpha1.BootImagePolicy{Spec: v1alpha1.BootImagePolicySpec{Skew: v1alpha1.BootImageSkew{TargetOS: "10.2.20270101-0"}}}
	for name, tc := range map[string]struct {
		version string
		policy  *v1alpha1.BootImagePolicy
		next    bool
		want    skew.Target
	}{
		"by Kubernetes":                     {"1.32.9", nil, false, skew.Target{Kubernetes: "1.32.9", Release: "4.19.3", OS: "9.6.20251023-0", Known: true, OSStreams: []string{"rhel-10"}}},
		"by the platform's release":         {"4.19.9", nil, false, skew.Target{Kubernetes: "1.32.6", Release: "4.19.3", OS: "9.6.20251023-0", Known: true, OSStreams: []string{"rhel-10"}}},
		"of several OS majors":              {"v1.36.3", nil, false, skew.Target{Kubernetes: "v1.36.3", Release: "1.36.3", OS: "10.0.20260501-0", Known: true}},
		"that no stream knows":              {"1.40.0", nil, false, skew.Target{Kubernetes: "1.40.0"}},
		"the policy's OS is for what comes": {"1.40.0", moves, true, skew.Target{Kubernetes: "1.40.0", OS: "10.2.20270101-0"}},
		"and not for what runs":             {"1.32.6", moves, false, skew.Target{Kubernetes: "1.32.6", Release: "4.19.3", OS: "9.6.20251023-0", Known: true, OSStreams: []string{"rhel-10"}}},
		"that cannot be read":               {"next", moves, true, skew.Target{Kubernetes: "next"}},
	} {
		if diff := cmp.Diff(tc.want, convert.SkewTarget(tc.version, releases, tc.policy, pool, tc.next)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What counts as the image of a source.
func TestSkewSource(t *testing.T) {
	t.Parallel()
	known, custom := &v1alpha1.BootImage{Image: "ami-1", OS: "9.6.20251023-0", Release: "1.36.3"}, &v1alpha1.BootImage{Image: "ami-x"}
	said := &v1alpha1.DeclaredImage{OS: "9.4.20250101-0"}
	for name, tc := range map[string]struct {
		declared *v1alpha1.DeclaredImage
		status   v1alpha1.MachineSourceStatus
		os       string
		unknown  bool
	}{
		"refit knows it": {nil, v1alpha1.MachineSourceStatus{SkewMode: skew.Automatic, Referenced: known}, "9.6.20251023-0", false},
		"refit knows it; the declaration is ignored": {said, v1alpha1.MachineSourceStatus{SkewMode: skew.Automatic, Referenced: known}, "9.6.20251023-0", false},
		"a person keeps it":                          {said, v1alpha1.MachineSourceStatus{SkewMode: skew.Manual, Referenced: known}, "9.4.20250101-0", false},
		"a custom image is unknown":                  {nil, v1alpha1.MachineSourceStatus{SkewMode: skew.Automatic, Referenced: custom}, "", true},
		"a custom image that is declared":            {said, v1alpha1.MachineSourceStatus{SkewMode: skew.Automatic, Referenced: custom}, "9.4.20250101-0", false},
		"an excluded source is unknown":              {nil, v1alpha1.MachineSourceStatus{State: v1alpha1.SourceExcluded, Referenced: known}, "9.6.20251023-0", true},
		"an excluded source that is declared":        {said, v1alpha1.MachineSourceStatus{State: v1alpha1.SourceExcluded}, "9.4.20250101-0", false},
		"a declaration that a node contradicts":      {said, v1alpha1.MachineSourceStatus{SkewMode: skew.Manual, Contradiction: "n was installed from x"}, "9.4.20250101-0", true},
		"nothing was ever said":                      {nil, v1alpha1.MachineSourceStatus{}, "", false},
	} {
		tc.status.OldestInstalled = &v1alpha1.InstalledImage{OS: "9.2.20240101-0", Example: "n1"}
		got := convert.SkewSource(&v1alpha1.MachineSource{Spec: v1alpha1.MachineSourceSpec{Declared: tc.declared}, Status: tc.status})
		if byPerson := tc.declared != nil && got.OS == tc.declared.OS; (got.Installed == "9.2.20240101-0" && got.InstalledNode == "n1") != byPerson {
			t.Errorf("%s: images of nodes count with a declaration only: %+v", name, got)
		}
		if got.OS != tc.os || (got.Unknown != "") != tc.unknown {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
