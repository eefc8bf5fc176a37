package updateplan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// hop is a further bundle of a minor version.
func hop(minor int, suffix string, payloads ...Payload) Hop {
	v := fmt.Sprintf("1.%d.1", minor)
	return Hop{Target: model.Target{Bundle: "sha256:" + v + suffix, Name: "refit-demo", Version: v, Kubernetes: "v" + v + suffix}, Payloads: payloads}
}

var then137 = hop(37, "", bothPayloads...)

// A hop that must not run is named with its number, and the others are planned all the same.
func TestHopsThatMustNotRun(t *testing.T) {
	t.Parallel()
	k3sNode := func(n Node) Node {
		n.Current = Fields{model.FieldDatastore: model.DatastoreEtcd}
		return n
	}
	k3s := []Payload{{Name: "k3s", Platform: "linux/amd64"}}
	k3sInput := func(atEnd bool) Input {
		return Input{Nodes: []Node{k3sNode(cp("s1", "v1.35.4+k3s1")), worker("a1", "v1.35.4+k3s1")}, WorkersAtEnd: atEnd,
			Target: hop(36, "+k3s1").Target, Payloads: k3s, Then: []Hop{hop(37, "+k3s1", k3s...)}}
	}
	for name, tc := range map[string]struct {
		in   Input
		want []string
	}{
		"a minor is left out":         {input(func(in *Input) { in.Then = []Hop{hop(38, "", bothPayloads...)} }, cp("c1", old)), []string{"VersionSkew hop 2, to 1.38.1: the kubelet", "VersionSkew hop 2, to 1.38.1: the control plane"}},
		"the order is wrong":          {input(func(in *Input) { in.Then = []Hop{hop(35, "", bothPayloads...)} }, cp("c1", old)), []string{"OlderThanRunning hop 2", "OlderThanRunning hop 2", "VersionSkew hop 2", "VersionSkew hop 2"}},
		"a payload is missing":        {input(func(in *Input) { in.Then = []Hop{hop(37, "", bothPayloads[:1]...)} }, cp("c1", old)), []string{"PayloadMissing hop 2, to 1.37.1: the bundle brings no kubelet"}},
		"k3s goes minor by minor":     {k3sInput(false), nil},
		"agents of k3s skip no minor": {k3sInput(true), []string{"VersionSkew hop 2, to 1.37.1+k3s1: the kubelet of node a1"}},
		"a worker four minors behind": {input(func(in *Input) { in.WorkersAtEnd, in.Then = true, []Hop{then137} }, cp("c1", old), worker("w1", "v1.33.1")),
			[]string{"VersionSkew hop 2, to 1.37.1: the kubelet of node w1"}},
		"a worker too old to wait": {input(func(in *Input) { in.WorkersAtEnd, in.Then = true, []Hop{then137} }, cp("c1", old), worker("w1", "v1.32.1")),
			[]string{"VersionSkew node w1 would stay at kubelet v1.32.1", "VersionSkew hop 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Make(tc.in)
			if len(o.Plan.Then) != 1 || len(o.Blockers) != len(tc.want) {
				t.Fatalf("%d further hops, blockers %v, want %v", len(o.Plan.Then), blockersOf(o), tc.want)
			}
			for i, b := range o.Blockers {
				if got := b.Reason + " " + b.Message; !strings.HasPrefix(got, strings.Replace(tc.want[i], "1.37.1+k3s1", "1.37.1", 1)) {
					t.Errorf("blocker %d: %s, want %s", i, got, tc.want[i])
				}
			}
		})
	}
}

// The plan warns once of a node that is left alone, not once for each hop.
func TestWarningsAreNotRepeated(t *testing.T) {
	t.Parallel()
	o := Make(input(func(in *Input) { in.Then, in.Pools = []Hop{then137}, pools("all", 0) }, cp("c1", old, "all"), worker("w1", old)))
	if len(o.Warnings) != 1 {
		t.Errorf("%d warnings: %+v", len(o.Warnings), o.Warnings)
	}
}

// moved is a node when its agent has observed what its steps brought.
func moved(n Node, np model.NodePlan) Node {
	n.Current = maps.Clone(n.Current)
	for _, s := range np.Steps {
		for _, c := range s.Changes {
			switch {
			case c.Path == PathKubelet:
				n.Kubelet = c.To
			case c.Path == PathControlPlane:
				n.ControlPlaneVersion = c.To
			case !strings.HasPrefix(c.Path, PrefixKubernetes):
				n.Current[c.Path] = c.To
			}
		}
	}
	return n
}

// hopping draws clusters that go through up to three hops.
func hopping() *rapid.Generator[Input] {
	return rapid.Custom(func(t *rapid.T) Input {
		minor := rapid.IntRange(31, 34).Draw(t, "minor")
		version := func(m int) string { return fmt.Sprintf("v1.%d.%d", m, rapid.IntRange(0, 2).Draw(t, "patch")) }
		in := Input{KubeadmVersion: version(minor), WorkersAtEnd: rapid.Bool().Draw(t, "atEnd")}
		for i := range rapid.IntRange(1, 3).Draw(t, "control planes") {
			n := cp(fmt.Sprintf("c%d", i), in.KubeadmVersion)
			n.Current = Fields{PrefixProgram + "crictl": "sha256:old"}
			in.Nodes = append(in.Nodes, n)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "workers") {
			n := worker(fmt.Sprintf("w%d", i), version(minor-rapid.IntRange(0, 2).Draw(t, "behind")))
			n.Current = Fields{PrefixProgram + "crictl": "sha256:old"}
			in.Nodes = append(in.Nodes, n)
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "hops") {
			minor += rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 2, 0, -1}).Draw(t, "step")
			h := hop(minor, "", append(bothPayloads, Payload{Name: "crictl", Digest: fmt.Sprintf("sha256:crictl%d", i)})...)
			h.Target.Bundle += fmt.Sprint(i)
			if i == 0 {
				in.Target, in.Payloads = h.Target, h.Payloads
			} else {
				in.Then = append(in.Then, h)
			}
		}
		return in
	})
}

// A plan without a blocker moves each control plane by at most one minor version in a hop. At no
// moment is a kubelet newer than an API server, or more than three minor versions older. Each hop is what refit would plan when the hops before it are done, so the
// approved plan is the one that runs.
func TestHopsKeepTheSkew(t *testing.T) {
	planned := 0
	rapid.Check(t, func(t *rapid.T) {
		in := hopping().Draw(t, "cluster")
		o := Make(in)
		if len(o.Blockers) > 0 {
			return
		}
		planned++
		nodes := map[string]Node{}
		for _, n := range in.Nodes {
			nodes[n.Name] = n
		}
		hops := append([]Hop{{in.Target, in.Payloads}}, in.Then...)
		for i, p := range o.Plan.Hops() {
			again := in
			again.Nodes = slices.Collect(maps.Values(nodes))
			again.Target, again.Payloads, again.Then = hops[i].Target, hops[i].Payloads, hops[i+1:]
			if i > 0 {
				again.KubeadmVersion = hops[i-1].Target.Kubernetes
			}
			rest := Make(again).Plan.Hops()
			for k := range rest {
				if d := cmp.Diff(o.Plan.Hops()[i+k], rest[k]); d != "" {
					t.Fatalf("hop %d, planned again after hop %d:\n%s", i+k+1, i, d)
				}
			}
			for _, np := range p.Nodes {
				before := nodes[np.Node]
				after := moved(before, np)
				nodes[np.Node] = after
				if after.ControlPlane && (minorsBetween(before.ControlPlaneVersion, after.ControlPlaneVersion) > 1 || less(after.ControlPlaneVersion, before.ControlPlaneVersion)) {
					t.Fatalf("hop %d moves the control plane of %s from %s to %s", i+1, np.Node, before.ControlPlaneVersion, after.ControlPlaneVersion)
				}
				skewKept(t, nodes)
			}
		}
		for _, n := range nodes {
			if want := hops[len(hops)-1].Target.Kubernetes; n.Kubelet != want || n.ControlPlane && n.ControlPlaneVersion != want {
				t.Fatalf("%s ends at %s, %s", n.Name, n.Kubelet, n.ControlPlaneVersion)
			}
		}
	})
	if planned == 0 {
		t.Error("no plan without a blocker was drawn")
	}
}

func skewKept(t *rapid.T, nodes map[string]Node) {
	for _, api := range nodes {
		if !api.ControlPlane {
			continue
		}
		for _, n := range nodes {
			switch {
			case n.ControlPlane && n.Name != api.Name && minorsBetween(n.ControlPlaneVersion, api.ControlPlaneVersion) <= 1:
				// the kubelet of a control-plane node uses the API server of its node
			case less(api.ControlPlaneVersion, n.Kubelet) && minorsBetween(api.ControlPlaneVersion, n.Kubelet) > 0:
				t.Fatalf("kubelet %s of %s is newer than API server %s of %s", n.Kubelet, n.Name, api.ControlPlaneVersion, api.Name)
			case tooFarBehind(n.Kubelet, api.ControlPlaneVersion):
				t.Fatalf("kubelet %s of %s is too old for API server %s of %s", n.Kubelet, n.Name, api.ControlPlaneVersion, api.Name)
			case n.ControlPlane && minorsBetween(n.ControlPlaneVersion, api.ControlPlaneVersion) > 1:
				t.Fatalf("API servers %s and %s", n.ControlPlaneVersion, api.ControlPlaneVersion)
			}
		}
	}
}

// Before a bundle is approved, one two minors ahead fits if a bundle between them is approved.
func TestABundleFitsThroughHops(t *testing.T) {
	t.Parallel()
	nodes := []FitNode{{Name: "n1", Kubelet: "v1.34.1", ControlPlaneVersion: "v1.34.1"}}
	for via, want := range map[string]int{"": 2, "v1.35.9": 0, "v1.36.9": 2, "v1.33.9": 2, "v2.35.1": 2, "rubbish": 2} {
		if got := Fit(Requires{Kubernetes: "v1.36.3", Via: []string{via}}, nodes); len(got) != want {
			t.Errorf("via %q: %d misfits, want %d: %+v", via, len(got), want, got)
		}
	}
	built := []FitNode{{Name: "n1", Kubelet: "v1.34.1+k3s1", ControlPlaneVersion: "v1.34.1+k3s1"}}
	for via, want := range map[string]int{"v1.35.9+k3s3": 0, "v1.35.9": 2, "v1.35.9+rke2r1": 2} {
		if got := Fit(Requires{Kubernetes: "v1.36.3+k3s1", Via: []string{via}}, built); len(got) != want {
			t.Errorf("k3s via %q: %d misfits, want %d: %+v", via, len(got), want, got)
		}
	}
	if got := Fit(Requires{Kubernetes: "v1.37.3", Via: []string{"v1.35.1"}}, nodes); len(got) != 2 {
		t.Errorf("one of two minors between is missing: %+v", got)
	}
	old := Fit(Requires{Kubernetes: "v1.33.3", Via: []string{"v1.34.1"}}, nodes)
	if len(old) != 2 {
		t.Errorf("no hop leads back: %+v", old)
	}
}

// A constraint on Kubernetes is about the version that the hop before brings; one on the platform
// appears once.
func TestMisfitsOfHops(t *testing.T) {
	t.Parallel()
	n := FitNode{Name: "n1", Kubelet: "v1.34.1", ControlPlaneVersion: "v1.34.1", Platform: "linux/arm64"}
	constraint := func(least string) Requires {
		r := Requires{Kubernetes: "v1.36.3"}
		r.Constraints = append(r.Constraints, kubernetesFrom(least))
		return r
	}
	first := Requires{Kubernetes: "v1.35.2"}
	if got := MisfitsOfHops([]Requires{first, constraint("v1.35.0")}, n); len(got) != 0 {
		t.Errorf("the first hop brings v1.35.2: %+v", got)
	}
	if got := MisfitsOfHops([]Requires{first, constraint("v1.35.3")}, n); len(got) == 0 {
		t.Error("the first hop does not bring v1.35.3")
	}
	if got := MisfitsOfHops([]Requires{constraint("v1.35.0")}, n); len(got) == 0 {
		t.Error("without the first hop nothing brings v1.35")
	}
	amd := Requires{Kubernetes: "v1.35.2", Platforms: []string{"linux/amd64"}}
	if got := MisfitsOfHops([]Requires{amd, amd}, n); len(got) != 1 {
		t.Errorf("the platform is named %d times", len(got))
	}
}

func kubernetesFrom(least string) bundle.Constraint {
	return bundle.Constraint{Name: bundle.ConstraintKubernetes, Min: least}
}
