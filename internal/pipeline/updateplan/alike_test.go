package updateplan

import (
	"slices"
	"testing"
)

// A node gets the plan of another one only if nothing that its plan depends on differs,
// and nothing about it may be asked by name.
func TestNodesThatShareAPlan(t *testing.T) {
	t.Parallel()
	in := input(nil)
	p := planner{in: &in}
	base := Node{Name: "w1", Pools: []string{"a", "b"}, Kubelet: old, Platform: "linux/amd64", ConfigName: "c", Current: Fields{"x": "1"}, Desired: Fields{"y": "2"}}
	want, ok := p.likeness(base)
	if !ok {
		t.Fatal("a plain worker shares no plan")
	}
	other := base
	other.Name = "w2"
	if got, ok := p.likeness(other); !ok || got != want {
		t.Errorf("another name is another plan: %+v", got)
	}
	for name, change := range map[string]func(*Node){
		"pool": func(n *Node) { n.Pools = []string{"a"} }, "order of pools": func(n *Node) { n.Pools = []string{"b", "a"} }, "kubelet": func(n *Node) { n.Kubelet = "v1.34.0" },
		"platform": func(n *Node) { n.Platform = "linux/arm64" }, "configuration": func(n *Node) { n.ConfigName = "d" },
		"value": func(n *Node) { n.Current = Fields{"x": "2"} }, "path": func(n *Node) { n.Current = Fields{"x2": "1"} }, "no value": func(n *Node) { n.Current = nil },
		"one value": func(n *Node) { n.Current = Fields{"x": "1", "z": ""} }, "desired value": func(n *Node) { n.Desired = Fields{"y": "3"} }, "nothing desired": func(n *Node) { n.Desired = nil },
	} {
		n := base
		change(&n)
		if got, ok := p.likeness(n); !ok || got == want {
			t.Errorf("another %s shares the plan, %t", name, ok)
		}
	}
	for name, change := range map[string]func(*Node){
		"unseen": func(n *Node) { n.Unobserved = true }, "with an offer": func(n *Node) { n.Offers = []Offer{{}} },
		"a control-plane node": func(n *Node) { n.ControlPlane = true }, "with an API server": func(n *Node) { n.ControlPlaneVersion = old },
	} {
		n := base
		change(&n)
		if got, ok := p.likeness(n); ok || got != (likeness{}) {
			t.Errorf("a node %s shares a plan: %+v", name, got)
		}
	}
	for _, c := range []struct {
		a, b Fields
		same bool
	}{
		{Fields{"a": "1", "b": "2"}, Fields{"b": "2", "a": "1"}, true}, {Fields{"a": "b"}, Fields{"a": "", "b": ""}, false}, {Fields{"a": "b"}, Fields{"ab": ""}, false}, {nil, Fields{}, true}, {Fields{"": ""}, nil, false},
	} {
		if got := c.a.text() == c.b.text(); got != c.same {
			t.Errorf("%v and %v: the same %t", c.a, c.b, got)
		}
	}
}

// What is reported of one node by name is reported of every node like it.
func TestEveryNodeIsNamed(t *testing.T) {
	t.Parallel()
	in := input(func(in *Input) { in.Pools, in.KubeadmVersion = pools("all", 0), "v1.36.3" }, cp("c1", "v1.36.3", "all"), worker("w1", "v1.33.0", "all"), worker("w2", "v1.33.0", "all"), worker("w3", old, "all"), worker("w4", old, "all"))
	o := Make(in)
	for _, node := range []string{"w1", "w2"} {
		if !slices.Contains(blockersOf(o), reasonVersionSkew+" Node/"+node) {
			t.Errorf("%s is not named: %v", node, blockersOf(o))
		}
	}
	var nodes []string
	for _, np := range o.Plan.Nodes {
		nodes = append(nodes, np.Node)
	}
	if !slices.Equal(nodes, []string{"w1", "w2", "w3", "w4"}) {
		t.Errorf("planned: %v", nodes)
	}
}

// Control-plane nodes go by name, regardless of the order of their pools; workers go by pool.
func TestOrderOfPoolsIsForWorkers(t *testing.T) {
	t.Parallel()
	o := Make(input(func(in *Input) { in.Pools = pools("late", 2, "early", 1, "too", 1) }, cp("c1", old, "late"), cp("c2", old, "early"), worker("w1", old, "late"), worker("w2", old, "early"), worker("w3", old, "too")))
	got := []string{}
	for _, np := range o.Plan.Nodes {
		got = append(got, np.Node+" "+np.Pool+" "+string(rune('0'+np.Wave)))
	}
	if !slices.Equal(got, []string{"c1 late 0", "c2 early 1", "w2 early 2", "w3 too 2", "w1 late 3"}) {
		t.Errorf("%v", got)
	}
}

// A field is as wanted: versions as versions, a certificate also if it is later.
func TestEqualAtItsEdges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, have, want string
		equal            bool
	}{
		{PrefixKubernetes + "kubelet", "v1.36.3", "1.36.3", true}, {PrefixKubernetes + "kubelet", "v1.36.3", "v1.36.4", false},
		{PrefixCertificate + "a", "2026", "2026", true}, {PrefixCertificate + "a", "2027", "2026", true}, {PrefixCertificate + "a", "2025", "2026", false},
		{PrefixCertificate + "a", "", "", true}, {PrefixCertificate + "a", "2026", "", false}, {PrefixCertificate + "a", "", "2026", false},
		{"file", "a", "a", true}, {"file", "b", "a", false}, {"file", "v1.36.3", "1.36.3", false},
	} {
		if got := Equal(c.path, c.have, c.want); got != c.equal {
			t.Errorf("%s: %q for %q: %t", c.path, c.have, c.want, got)
		}
	}
}
