package fleet

import (
	"fmt"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func newWanted(f *fake, p *peers, order ...string) *wanted {
	approvals := map[string]approval{}
	for _, d := range order {
		approvals[d] = approval{ok: true}
	}
	return &wanted{w: f.world, order: order, approvals: approvals, names: map[string]string{}, holds: f.newHolding(order), trust: "trust-1", peers: p.look(f.see(), "key")}
}

func many(n int) *fake {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	f := newFake(names...)
	for _, nu := range f.updates {
		nu.Status.Agent = &v1alpha1.AgentInfo{PublicKey: "key of " + nu.Name, Address: nu.Name + ":1"}
	}
	return f
}

// In a large fleet a bundle that nobody has read is told to those alone that see
// it; in a small one to all, a moment earlier.
func TestABundleThatNobodyHasRead(t *testing.T) {
	t.Parallel()
	next := dig("b")
	for nodes, told := range map[int]int{20: 20, 300: 3} {
		f := many(nodes)
		f.updates["n0001"].Status.Media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: next}}
		f.updates["n0002"].Status.Bundles = []string{next}
		f.updates["n0003"].Spec.Bundles = []v1alpha1.ApprovedBundle{{Digest: next}}
		count := func() (n int) {
			want := newWanted(f, &peers{}, next)
			for _, node := range f.nodes {
				n += len(want.forNode(node.Name, f.updates[node.Name]))
			}
			return n
		}
		if got := count(); got != told {
			t.Errorf("of %d nodes %d are told, want %d", nodes, got, told)
		}
		f.bundle(next, "app:1=x")
		if got := count(); got != nodes {
			t.Errorf("of %d nodes %d are told once it was read", nodes, got)
		}
	}
}

func TestHeartbeatsFillNoAPIServer(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]int32{3: 0, 3000: 0, 3001: 120, 6000: 120, 30000: 960, 1000000: 1920} {
		if got := heartbeat(nodes); got != want {
			t.Errorf("%d nodes: every %d s, want %d", nodes, got, want)
		}
	}
}

// What there is none of is written first, mere neighbours last; what says what
// it should is not written, and not looked at again before something changed.
func TestStaleNodesInOrder(t *testing.T) {
	t.Parallel()
	f, r := many(12), &Reconciler{}
	f.byName = nil
	look := func() []staleNode { return r.stale(f.world, newWanted(f, &r.peers)) }
	for _, s := range look() {
		f.updates[s.name].Spec = s.spec
	}
	for name, nu := range f.updates {
		f.updates[name] = nu.DeepCopy() // as a cache shows a change: another object
	}
	if s := look(); len(s) != 0 {
		t.Fatalf("%d nodes are stale right after they were written", len(s))
	}
	f.updates["n0003"].Spec.Peers = nil // unseen: the cache would show another object
	if s := look(); len(s) != 0 {
		t.Errorf("a node that did not change is looked at again")
	}
	change := func(name string, do func(*v1alpha1.NodeUpdate)) {
		f.updates[name] = f.updates[name].DeepCopy()
		do(f.updates[name])
	}
	change("n0003", func(nu *v1alpha1.NodeUpdate) { nu.Spec.Peers = nil })
	change("n0007", func(nu *v1alpha1.NodeUpdate) { nu.Spec.Trust = "trust-0" })
	delete(f.updates, "n0009")
	s := look()
	if len(s) < 3 || s[0].name != "n0009" || s[1].name != "n0007" {
		t.Fatalf("order: %+v", s)
	}
	for _, x := range s[2:] {
		if x.rank != 2 {
			t.Errorf("%s is written for more than its neighbours", x.name)
		}
	}
}

func TestNeighboursStayWhileNoAgentMoves(t *testing.T) {
	t.Parallel()
	f, p := many(10), &peers{}
	first := p.look(f.see(), "key").edition
	if p.look(f.see(), "key").edition != first {
		t.Error("nothing changed, and the neighbours are new")
	}
	f.updates["n0001"] = f.updates["n0001"].DeepCopy()
	f.updates["n0001"].Status.Agent.Address = "elsewhere:2"
	if p.look(f.see(), "key").edition == first {
		t.Error("an agent moved, and its neighbours keep its old address")
	}
	found := false
	for _, n := range f.nodes {
		for _, x := range p.of(n.Name) {
			found = found || x.Node == "n0001" && x.Address == "elsewhere:2"
		}
	}
	if !found {
		t.Error("no neighbour has the new address")
	}
	if got := p.of("n0005"); got[0].Node != controllerPeer || len(got) < 3 {
		t.Errorf("peers: %+v", got)
	}
}
