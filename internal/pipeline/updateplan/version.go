package updateplan

import (
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/model"
)

// same reports whether two versions are equal, build included.
func same(a, b string) bool { return componentversion.SameKubernetes(a, b) }

// less reports whether a is older than b; false if either cannot be read.
func less(a, b string) bool { return componentversion.LessKubernetes(a, b) }

// minorsBetween is the distance in minor versions, without sign; 0 if either does not
// parse.
func minorsBetween(a, b string) int {
	x, okA := componentversion.PlainKubernetes(a)
	if y, okB := componentversion.PlainKubernetes(b); okA && okB && x[0] == y[0] {
		return max(x[1]-y[1], y[1]-x[1])
	}
	va, vb := componentversion.ParseKubernetes(a), componentversion.ParseKubernetes(b)
	if va == nil || vb == nil {
		return 0
	}
	d := int(vb.Minor()) - int(va.Minor())
	if va.Major() != vb.Major() {
		d += (int(vb.Major()) - int(va.Major())) * 1000
	}
	return max(d, -d)
}

// checkSkew checks one node's move: one minor at a time, no way back over a minor.
func checkSkew(in *Input, n Node) []model.Blocker {
	var out []model.Blocker
	to := in.Target.Kubernetes
	for _, part := range []struct{ what, from string }{{"kubelet", n.Kubelet}, {"control plane", n.ControlPlaneVersion}} {
		if part.from == "" || to == "" {
			continue
		}
		minors := minorsBetween(part.from, to)
		v := model.Blocker{Reason: reasonVersionSkew, Object: "Node/" + n.Name}
		switch {
		case less(to, part.from) && minors > 0:
			v.Message = fmt.Sprintf("the %s of node %s runs %s; it cannot be downgraded to the earlier minor version %s", part.what, n.Name, part.from, to)
			v.Fix = "use a bundle of the minor version that runs"
		case minors > 1 && (in.maySkip(n, minors) || bridged(part.from, to, in.via)):
			continue
		case minors > 1:
			v.Message = fmt.Sprintf("the %s of node %s runs %s; %s is %d minor versions ahead, and one update moves one of them", part.what, n.Name, part.from, to, minors)
			v.Fix = "first update with a bundle of " + nextMinor(part.from) + ", or name that bundle as a hop of this update (refit plan --hop)"
		default:
			continue
		}
		out = append(out, v)
	}
	return out
}

func nextMinor(v string) string {
	p := componentversion.ParseKubernetes(v)
	if p == nil {
		return "the next minor version"
	}
	return fmt.Sprintf("v%d.%d", p.Major(), p.Minor()+1)
}

// checkDowngrade says why the target is a step back, from what each node runs and from
// the last update that was completed.
func checkDowngrade(in *Input) []model.Blocker {
	if in.AllowDowngrade {
		return nil
	}
	const fix = "if this is meant as a rollback, set spec.allowDowngrade"
	var out []model.Blocker
	for _, n := range in.Nodes {
		if len(in.Only) > 0 && !slices.Contains(in.Only, n.Name) {
			continue
		}
		runs := n.Kubelet
		if less(runs, n.ControlPlaneVersion) {
			runs = n.ControlPlaneVersion
		}
		if less(in.Target.Kubernetes, runs) {
			out = append(out, model.Blocker{Reason: reasonOlderThanRunning, Fix: fix, Object: "Node/" + n.Name,
				Message: fmt.Sprintf("node %s runs Kubernetes %s, the bundle brings the older %s", n.Name, runs, in.Target.Kubernetes)})
		}
	}
	if d := in.LastDone; d != nil && d.Name == in.Target.Name && componentversion.LessBundle(in.Target.Version, d.Version) {
		out = append(out, model.Blocker{Reason: reasonOlderThanRunning, Fix: fix,
			Message: fmt.Sprintf("bundle %s %s is older than %s, which this cluster was last updated to", in.Target.Name, in.Target.Version, d.Version)})
	}
	return out
}

// Same reports whether two versions are equal, build included; v1.2.3 equals 1.2.3.
func Same(a, b string) bool { return same(a, b) }
