package updateplan

import (
	"maps"
	"slices"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// Hop is a further bundle that an update goes to, in the order of the list.
type Hop struct {
	Target   model.Target
	Payloads []Payload
}

// addHop adds a further hop. A warning that an earlier hop has about the same object is not
// repeated.
func (o *Outcome) addHop(name string, hop Outcome) {
	o.Plan.Then = append(o.Plan.Then, hop.Plan)
	for _, b := range hop.Blockers {
		b.Message = name + b.Message
		o.Blockers = append(o.Blockers, b)
	}
	for _, b := range hop.Warnings {
		if !slices.ContainsFunc(o.Warnings, func(w model.Blocker) bool { return w.Reason == b.Reason && w.Object == b.Object }) {
			b.Message = name + b.Message
			o.Warnings = append(o.Warnings, b)
		}
	}
}

// after is the input as a plan leaves it: its nodes have what its steps change. What external
// updaters offered was about that plan.
func (in Input) after(p model.Plan) Input {
	in.LastDone = &p.Target
	at := make(map[string]*model.NodePlan, len(p.Nodes))
	for i := range p.Nodes {
		at[p.Nodes[i].Node] = &p.Nodes[i]
	}
	in.Nodes = slices.Clone(in.Nodes)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		n.Offers = nil
		np := at[n.Name]
		if np == nil {
			continue
		}
		*n = n.after(np)
		if in.KubeadmVersion != "" && n.ControlPlane && MovesKubernetes(*np) {
			in.KubeadmVersion = p.Target.Kubernetes
		}
	}
	return in
}

// after is a node as its plan leaves it.
func (n Node) after(np *model.NodePlan) Node {
	n.Current = maps.Clone(n.Current)
	for _, s := range np.Steps {
		for _, c := range s.Changes {
			switch c.Path {
			case PathKubelet:
				n.Kubelet = c.To
			case PathControlPlane:
				n.ControlPlaneVersion = c.To
			case PathNodeConfig: // goes with the kubelet
			default:
				if n.Current == nil {
					n.Current = Fields{}
				}
				n.Current[c.Path] = c.To
			}
		}
	}
	return n
}

// maySkip reports whether a worker may move over several minor versions at once: Kubernetes
// supports a kubelet up to three minors older than the API servers, which move first. The
// program of k3s and RKE2 has more in it than a kubelet, and moves minor by minor.
func (in *Input) maySkip(n Node, minors int) bool {
	return in.WorkersAtEnd && !n.ControlPlane && n.ControlPlaneVersion == "" && minors <= maxKubeletSkew && !Supervised(n.Kubelet)
}

// MisfitsOfHops returns what of a node the bundles of several hops are not made for. A later hop
// finds the Kubernetes version that the one before it brings.
func MisfitsOfHops(hops []Requires, n FitNode) []model.Blocker {
	var out []model.Blocker
	for _, r := range hops {
		for _, b := range r.Misfits(n) {
			if !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
		if r.Kubernetes == "" {
			continue
		}
		if n.Kubelet = r.Kubernetes; n.ControlPlaneVersion != "" {
			n.ControlPlaneVersion = r.Kubernetes
		}
	}
	return out
}

// maxKubeletSkew is how many minor versions a kubelet may be older than an API server.
const maxKubeletSkew = 3

// bridged reports whether versions exist for every minor version between two others, of the same
// distribution.
func bridged(from, to string, via []string) bool {
	a, okA := releaseOf(from, to)
	b, okB := releaseOf(to, to)
	if !okA || !okB || a[0] != b[0] {
		return false
	}
	for minor := a[1] + 1; minor < b[1]; minor++ {
		if !slices.ContainsFunc(via, func(v string) bool {
			c, ok := releaseOf(v, to)
			return ok && c[0] == a[0] && c[1] == minor
		}) {
			return false
		}
	}
	return true
}

// releaseOf a build; ok is false if it is not of the distribution that the other version is of.
func releaseOf(version, other string) (out [3]int, ok bool) {
	build := distribution.SplitVersion(version)
	if build.Distribution != distribution.SplitVersion(other).Distribution {
		return out, false
	}
	return componentversion.PlainKubernetes(build.Release)
}
