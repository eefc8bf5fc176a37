package updateplan

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func TestFit(t *testing.T) {
	t.Parallel()
	node := FitNode{Name: "n1", Kubelet: "v1.35.4", Platform: "linux/amd64", Runtime: "containerd", RuntimeVersion: "1.7.24~ds1"}
	amd64 := []string{"linux/amd64"}
	of := func(c ...bundle.Constraint) Requires {
		return Requires{Kubernetes: "v1.36.3", Platforms: amd64, Constraints: c}
	}
	for name, c := range map[string]struct {
		r      Requires
		change func(*FitNode)
		reason string
		says   []string
	}{
		"it fits":            {of(), nil, "", nil},
		"two minor versions": {Requires{Kubernetes: "v1.37.0"}, nil, "VersionSkew", []string{"v1.35.4", "v1.37.0"}},
		"the control plane is ahead of the bundle": {Requires{Kubernetes: "v1.35.9"}, func(n *FitNode) { n.ControlPlaneVersion = "v1.36.0" }, "VersionSkew", []string{"v1.36.0"}},
		"another platform":                         {of(), func(n *FitNode) { n.Platform = "linux/arm64" }, "ConstraintNotMet", []string{"linux/arm64", "linux/amd64"}},
		"a variant of the platform":                {Requires{Platforms: []string{"linux/arm/v7"}}, func(n *FitNode) { n.Platform = "linux/arm" }, "", nil},
		"no platform named":                        {Requires{}, func(n *FitNode) { n.Platform = "linux/arm64" }, "", nil},
		"an unknown node":                          {of(bundle.Constraint{Name: "kubernetes", Min: "1.35.0"}), func(n *FitNode) { *n = FitNode{Name: "n1"} }, "", nil},
		"a runtime that ignores pins":              {of(), func(n *FitNode) { n.RuntimeVersion = "1.7.2" }, "ConstraintNotMet", []string{"1.7.2", "1.7.3"}},
		"the suffix of a distribution":             {of(bundle.Constraint{Name: "containerd", Min: "1.7.24"}), nil, "", nil},
		"a runtime that is too old":                {of(bundle.Constraint{Name: "containerd", Min: "2.0.0"}), nil, "ConstraintNotMet", []string{"1.7.24~ds1", "containerd 2.0.0 or later"}},
		"a runtime that is too new":                {of(bundle.Constraint{Name: "containerd", Max: "1.7.9"}), nil, "ConstraintNotMet", []string{"or earlier"}},
		"another runtime":                          {of(bundle.Constraint{Name: "cri-o", Min: "1.30.0"}), nil, "ConstraintNotMet", []string{"containerd", "cri-o 1.30.0 or later"}},
		"one of two runtimes":                      {of(bundle.Constraint{Name: "containerd", Min: "1.7.3"}, bundle.Constraint{Name: "cri-o", Min: "1.30.0"}), nil, "", nil},
		"too old to start from":                    {of(bundle.Constraint{Name: "kubernetes", Min: "1.35.5"}), nil, "ConstraintNotMet", []string{"v1.35.4", "kubernetes 1.35.5 or later"}},
		"the bound itself":                         {of(bundle.Constraint{Name: "kubernetes", Min: "1.35.4", Max: "1.35.4"}), nil, "", nil},
		"too new to start from":                    {of(bundle.Constraint{Name: "kubernetes", Max: "1.35.3"}), nil, "ConstraintNotMet", []string{"or earlier"}},
		"a control plane that is too new":          {of(bundle.Constraint{Name: "kubernetes", Max: "1.35.9"}), func(n *FitNode) { n.ControlPlaneVersion = "v1.36.0" }, "ConstraintNotMet", []string{"v1.36.0"}},
		"a part that has the target":               {of(bundle.Constraint{Name: "kubernetes", Max: "1.35.9"}), func(n *FitNode) { n.ControlPlaneVersion = "v1.36.3" }, "", nil},
		"a node that has the target":               {of(bundle.Constraint{Name: "kubernetes", Max: "1.35.9"}), func(n *FitNode) { n.Kubelet = "v1.36.3" }, "", nil},
		"a rollback is from a newer version": {Requires{Kubernetes: "v1.35.3", Rollback: true, Constraints: []bundle.Constraint{{Name: "kubernetes", Min: "1.35.0", Max: "1.35.3"}}},
			nil, "", nil},
		"a rollback has a lower bound": {Requires{Kubernetes: "v1.35.3", Rollback: true, Constraints: []bundle.Constraint{{Name: "kubernetes", Min: "1.35.9"}}},
			nil, "ConstraintNotMet", []string{"1.35.9 or later"}},
		"a constraint of a later refit is no guess": {of(bundle.Constraint{Name: "firmware", Min: "1.0.0"}), nil, "ConstraintNotMet", []string{"firmware", "does not know"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node
			if c.change != nil {
				c.change(&n)
			}
			got := Fit(c.r, []FitNode{n})
			if c.reason == "" {
				if len(got) > 0 {
					t.Fatalf("%+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Reason != c.reason || got[0].Fix == "" || got[0].Object != "Node/n1" {
				t.Fatalf("%+v, want one %s with a fix", got, c.reason)
			}
			for _, want := range append(c.says, "n1") {
				if !strings.Contains(got[0].Message, want) {
					t.Errorf("%q does not have %q", got[0].Message, want)
				}
			}
		})
	}
}

func TestFitNamesEachNodeInOrder(t *testing.T) {
	t.Parallel()
	got := Fit(Requires{Platforms: []string{"linux/amd64"}}, []FitNode{{Name: "b", Platform: "linux/arm64"}, {Name: "c", Platform: "linux/amd64"}, {Name: "a", Platform: "linux/s390x"}})
	if len(got) != 2 || got[0].Object != "Node/a" || got[1].Object != "Node/b" {
		t.Fatalf("%+v", got)
	}
}
