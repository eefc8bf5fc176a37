package updateplan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// FitNode is what decides whether a bundle fits a node.
type FitNode struct {
	Name string
	// Kubelet and ControlPlaneVersion run there; empty where unknown.
	Kubelet, ControlPlaneVersion string
	// Platform, for example linux/amd64.
	Platform string
	// Runtime is containerd or cri-o, with the version that it reports.
	Runtime, RuntimeVersion string
}

// Requires is what a bundle asks of nodes: its metadata, or what is known of it without.
type Requires struct {
	Kubernetes  string
	Platforms   []string
	Constraints []bundle.Constraint
	// Via are the Kubernetes versions of other approved bundles: an update may hop to them first.
	Via []string
	// Rollback is a step back that a person asked for: an upper bound of Kubernetes does not count.
	Rollback bool
}

// RequiresOf reads them from metadata.
func RequiresOf(m *bundle.Metadata) Requires {
	return Requires{Kubernetes: m.KubernetesVersion, Platforms: m.Platforms, Constraints: m.Constraints}
}

// pinning are the first versions of the runtimes that respect pins; bundles need not name them.
var pinning = map[string]string{bundle.ConstraintContainerd: "1.7.3", bundle.ConstraintCRIO: "1.30.0"}

// Fit returns what of each node does not fit a bundle, sorted by node, before the bundle is approved.
// What is not known of a node does not count against it: the plan and the gate check again.
func Fit(r Requires, nodes []FitNode) []model.Blocker {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b FitNode) int { return cmp.Compare(a.Name, b.Name) })
	in := &Input{Target: model.Target{Kubernetes: r.Kubernetes}, via: r.Via}
	var out []model.Blocker
	for _, n := range nodes {
		out = append(out, checkSkew(in, Node{Name: n.Name, Kubelet: n.Kubelet, ControlPlaneVersion: n.ControlPlaneVersion})...)
		out = append(out, r.Misfits(n)...)
	}
	return out
}

// Misfits returns what of a node does not fit: its platform, its runtime, and the constraints. The plan
// has the step between the versions.
func (r Requires) Misfits(n FitNode) []model.Blocker {
	out := append(r.platform(n), r.runtime(n)...)
	for _, c := range r.Constraints {
		out = append(out, r.constraint(c, n)...)
	}
	return out
}

func unmet(n FitNode, fix, format string, a ...any) []model.Blocker {
	return []model.Blocker{{Reason: reasonConstraintNotMet, Object: "Node/" + n.Name, Message: fmt.Sprintf("node %s ", n.Name) + fmt.Sprintf(format, a...), Fix: fix}}
}

func (r Requires) platform(n FitNode) []model.Blocker {
	if n.Platform == "" || len(r.Platforms) == 0 || slices.ContainsFunc(r.Platforms, func(p string) bool { return p == n.Platform || strings.HasPrefix(p, n.Platform+"/") }) {
		return nil
	}
	return unmet(n, "bring a bundle that has it: refit bundle create --platform "+n.Platform, "is %s; the bundle is for %s", n.Platform, strings.Join(r.Platforms, ", "))
}

// runtime compares the runtime with those that the bundle names, and with what pins need.
func (r Requires) runtime(n FitNode) []model.Blocker {
	var named []string
	for _, c := range r.Constraints {
		if _, ok := pinning[c.Name]; ok {
			named = append(named, c.String())
			if c.Name == n.Runtime {
				return outside(c, n, n.RuntimeVersion, atLeast(n.RuntimeVersion, c.Min) && atLeast(c.Max, n.RuntimeVersion))
			}
		}
	}
	switch least := pinning[n.Runtime]; {
	case n.Runtime == "":
		return nil
	case len(named) > 0:
		return unmet(n, "use a node with a runtime that the bundle names, or a bundle for this one", "has the runtime %s %s; the bundle needs %s", n.Runtime, n.RuntimeVersion, strings.Join(named, ", or "))
	case !atLeast(n.RuntimeVersion, least):
		return unmet(n, "update the runtime first", "has %s %s, which ignores pins; refit needs %s or later", n.Runtime, n.RuntimeVersion, least)
	}
	return nil
}

func (r Requires) constraint(c bundle.Constraint, n FitNode) []model.Blocker {
	if _, ok := pinning[c.Name]; ok {
		return nil // runtime has it
	}
	if c.Name != bundle.ConstraintKubernetes {
		return unmet(n, "update refit, then compare again", "cannot be compared with the constraint %s: this refit does not know it", c)
	}
	if r.Rollback {
		c.Max = ""
	}
	for _, v := range []string{n.Kubelet, n.ControlPlaneVersion} {
		if v == "" || same(v, r.Kubernetes) {
			continue // a part that has the target is not updated from it
		}
		if found := outside(c, n, v, !less(v, c.Min) && !less(c.Max, v)); found != nil {
			return found
		}
	}
	return nil
}

// outside is the blocker of a version that is not within a constraint.
func outside(c bundle.Constraint, n FitNode, version string, within bool) []model.Blocker {
	if within {
		return nil
	}
	fix := "update " + c.Name + " first"
	if c.Name == bundle.ConstraintKubernetes {
		fix = "first update with a bundle between the two versions"
	}
	return unmet(n, fix+", or bring a bundle for this version", "runs %s %s; the bundle needs %s", c.Name, version, c)
}

// atLeast reports whether a version of a runtime is not older than another. Distributions add
// their own suffixes (1.7.24~ds1), so only the numbers count. Unknown versions pass.
func atLeast(version, least string) bool {
	a, okA := numbers(version)
	b, okB := numbers(least)
	return !okA || !okB || slices.Compare(a[:], b[:]) >= 0
}

func numbers(v string) (out [3]int, ok bool) {
	v = strings.TrimPrefix(v, "v")
	end := strings.IndexFunc(v, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end >= 0 {
		v = v[:end]
	}
	return componentversion.PlainKubernetes("v" + v)
}
