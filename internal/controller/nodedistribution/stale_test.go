package nodedistribution

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

func newWanted(f *fake, p *peerIndex, order ...string) *desiredState {
	approvals := map[string]approval{}
	for _, d := range order {
		approvals[d] = approval{ok: true}
	}
	return &desiredState{w: f.fleetSnapshot, order: order, approvals: approvals, names: map[string]string{}, holds: f.newPinSetBuilder(order), trust: "trust-1", peers: p.refresh(f.see(), "key")}
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

// In a large fleet, a bundle without a known header is in the desired state of only those
// nodes that report it. In a small fleet every node gets it, which saves a moment.
func TestABundleWithoutAHeader(t *testing.T) {
	t.Parallel()
	next := dig("b")
	for nodes, unread := range map[int]int{20: 20, 300: 3} {
		f := many(nodes)
		f.updates["n0001"].Status.Media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: next}}
		f.updates["n0002"].Status.Bundles = []string{next}
		f.updates["n0003"].Spec.Bundles = []v1alpha1.ApprovedBundle{{Digest: next}}
		count := func() (n int) {
			want := newWanted(f, &peerIndex{}, next)
			for _, node := range f.nodes {
				n += len(want.forNode(node.Name, f.updates[node.Name]))
			}
			return n
		}
		if got := count(); got != unread {
			t.Errorf("of %d nodes %d have the bundle before its header is known, want %d", nodes, got, unread)
		}
		f.bundle(next, "app:1=x")
		if got := count(); got != nodes {
			t.Errorf("of %d nodes %d have the bundle after its header is known", nodes, got)
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

// Mere progress of agents waits at least max(10 s, nodes/50 s), and at most twice that.
func TestProgressFillsNoAPIServer(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3, 500, 501, 1000, 1001, 3000, 3001, 6000, 10000, 30000, 32001, 100000} {
		got := time.Duration(max(10, progressSeconds(nodes))) * time.Second
		least := progressEvery(nodes)
		if got < least || got > 2*least {
			t.Errorf("%d nodes: progress waits %s, want %s to %s", nodes, got, least, 2*least)
		}
	}
}

// A node without a NodeUpdate is written first, a change of only its peers last. A NodeUpdate
// that is up to date is not written, and not compared again before it changes.
func TestStaleNodesInOrder(t *testing.T) {
	t.Parallel()
	f, r := many(12), &Reconciler{}
	list := func() []staleNode {
		out, more := r.stale(f.fleetSnapshot, newWanted(f, &r.peers))
		if more {
			t.Errorf("of 12 nodes only %d are listed in one reconcile", len(out))
		}
		return out
	}
	for _, s := range list() {
		f.updates[s.name].Spec = s.spec
	}
	for name, nu := range f.updates {
		f.updates[name] = nu.DeepCopy() // as a cache shows a change: another object
	}
	if s := list(); len(s) != 0 {
		t.Fatalf("%d nodes are stale right after they were written", len(s))
	}
	f.updates["n0003"].Spec.Peers = nil // unseen: the cache would show another object
	if s := list(); len(s) != 0 {
		t.Errorf("a node that did not change is compared again")
	}
	change := func(name string, do func(*v1alpha1.NodeUpdate)) {
		f.updates[name] = f.updates[name].DeepCopy()
		do(f.updates[name])
	}
	change("n0003", func(nu *v1alpha1.NodeUpdate) { nu.Spec.Peers = nil })
	change("n0007", func(nu *v1alpha1.NodeUpdate) { nu.Spec.Trust = "trust-0" })
	delete(f.updates, "n0009")
	s := list()
	if len(s) < 3 || s[0].name != "n0009" || s[1].name != "n0007" {
		t.Fatalf("order: %+v", s)
	}
	for _, x := range s[2:] {
		if x.rank != rankPeers {
			t.Errorf("%s is written for more than its peers", x.name)
		}
	}
}

func TestPeersStayWhileNoAgentMoves(t *testing.T) {
	t.Parallel()
	f, p := many(10), &peerIndex{}
	first := p.refresh(f.see(), "key").edition
	if p.refresh(f.see(), "key").edition != first {
		t.Error("nothing changed, and the peers are recomputed")
	}
	f.updates["n0001"] = f.updates["n0001"].DeepCopy()
	f.updates["n0001"].Status.Agent.Address = "elsewhere:2"
	if p.refresh(f.see(), "key").edition == first {
		t.Error("an agent moved, and its peers keep its old address")
	}
	moved := 0
	for i := range f.nodes {
		now := false
		for _, x := range p.peersOf(f.fleetSnapshot, i) {
			now = now || x.Node == "n0001" && x.Address == "elsewhere:2"
		}
		if now {
			moved++
		}
		if since := p.since(f.fleetSnapshot, i); now != (since == p.edition) {
			t.Errorf("node %d has the new address: %v, its peers are of edition %d of %d", i, now, since, p.edition)
		}
	}
	if moved == 0 {
		t.Error("no peer has the new address")
	}
	if got := p.peersOf(f.fleetSnapshot, 5); got[0].Node != v1alpha1.ControllerPeer || len(got) < 3 {
		t.Errorf("peers: %+v", got)
	}
}

// The cached peers equal those computed from the names of the nodes with an agent, after
// agents joined, left or moved.
func TestCachedPeersMatchTheNames(t *testing.T) {
	t.Parallel()
	f, p := many(12), &peerIndex{}
	check := func(what string) {
		t.Helper()
		p.refresh(f.see(), "key")
		var agents []string
		for i, n := range f.nodes {
			if nu := f.reports[i]; nu != nil && nu.Status.Agent != nil {
				agents = append(agents, n.Name)
			}
		}
		want := transfer.Peers(agents)
		for i, n := range f.nodes {
			var got []string
			for _, x := range p.peersOf(f.fleetSnapshot, i)[1:] {
				got = append(got, x.Node)
				if a := f.updates[x.Node].Status.Agent; x.Address != a.Address || x.PublicKey != a.PublicKey {
					t.Errorf("%s: the address of peer %s is %s", what, x.Node, x.Address)
				}
			}
			if !slices.Equal(got, want[n.Name]) {
				t.Errorf("%s: %s has %v, want %v", what, n.Name, got, want[n.Name])
			}
		}
	}
	check("at first")
	f.updates["n0004"] = f.updates["n0004"].DeepCopy()
	f.updates["n0004"].Status.Agent = nil
	check("an agent went")
	delete(f.updates, "n0007")
	check("a NodeUpdate went")
	f.nodes = append(f.nodes[:2:2], f.nodes[3:]...)
	delete(f.updates, "n0002")
	check("a node went")
	f.updates["n0004"] = f.updates["n0005"].DeepCopy()
	f.updates["n0004"].Name = "n0004"
	check("an agent came")
	f.updates["n0009"] = f.updates["n0009"].DeepCopy()
	f.updates["n0009"].Status.Agent.PublicKey = "another"
	check("a key was rotated")
}

// Thousands of stale nodes are written in several reconciles, nodes without a NodeUpdate first.
func TestAReconcileWritesToSomeOnly(t *testing.T) {
	t.Parallel()
	f, r := many(maxWritesPerReconcile+20), &Reconciler{}
	delete(f.updates, fmt.Sprintf("n%04d", maxWritesPerReconcile+10))
	out, more := r.stale(f.fleetSnapshot, newWanted(f, &r.peers))
	if len(out) != maxWritesPerReconcile || !more || out[0].rank != missing || out[1].rank != different {
		t.Fatalf("%d nodes, more: %v, ranks %d, %d", len(out), more, out[0].rank, out[1].rank)
	}
	for _, s := range out {
		f.updates[s.name] = &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: s.spec, Status: v1alpha1.NodeUpdateStatus{Agent: agentOf(f, s.name)}}
	}
	out, more = r.stale(f.fleetSnapshot, newWanted(f, &r.peers))
	if more || len(out) < 20 {
		t.Errorf("then %d, more: %v", len(out), more)
	}
}

func agentOf(f *fake, name string) *v1alpha1.AgentInfo {
	if nu := f.updates[name]; nu != nil {
		return nu.Status.Agent
	}
	return nil
}

// Every field of a spec is compared, but for those that others write.
func TestEveryFieldOfASpecCounts(t *testing.T) {
	t.Parallel()
	others := []string{"Run", "Config", "Stage", "Reboot"}
	kind := reflect.TypeFor[v1alpha1.NodeUpdateSpec]()
	for i := range kind.NumField() {
		var spec v1alpha1.NodeUpdateSpec
		switch f := reflect.ValueOf(&spec).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int32, reflect.Int64:
			f.SetInt(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		default:
			t.Fatalf("%s: a field of kind %s is not set by this test", kind.Field(i).Name, f.Kind())
		}
		if same := sameSpec(&v1alpha1.NodeUpdateSpec{}, &spec); same != slices.Contains(others, kind.Field(i).Name) {
			t.Errorf("%s differs, and the specs are the same: %v", kind.Field(i).Name, same)
		}
	}
}

// A pool that stops keeping copies changes the desired state of its nodes.
func TestAPoolChangesTheDesiredState(t *testing.T) {
	t.Parallel()
	f := many(2)
	f.pools = []v1alpha1.UpdatePool{poolOf("n0001", v1alpha1.LocalCopyKeep)}
	before := newWanted(f, &peerIndex{}).fingerprint()
	f.pools[0].Spec.LocalCopy, f.pools[0].Generation = v1alpha1.LocalCopyDiscard, 2
	if newWanted(f, &peerIndex{}).fingerprint() == before {
		t.Error("the nodes of the changed pool are not compared again")
	}
}

// The desired state of a node names a pin set: with all peers it stays below 1.75 KiB, even
// for a release of 200 images. The pin set is stored once for all nodes of a kind.
func TestALargeReleaseIsReferredTo(t *testing.T) {
	t.Parallel()
	f := many(64)
	var images []string
	for i := range 200 {
		images = append(images, fmt.Sprintf("registry.example/platform/component-with-a-long-name-%03d:v4.22.7=%s", i, dig(fmt.Sprintf("%03d", i))))
	}
	f.bundle(dig("a"), images...)
	f.set(allOf(dig("a")))
	key := strings.Repeat("k", 60)
	for i, n := range f.nodes {
		f.updates[n.Name].Status.Agent = &v1alpha1.AgentInfo{Address: fmt.Sprintf("10.128.255.%d:18740", i), PublicKey: key}
	}
	want := newWanted(f, &peerIndex{}, dig("a"))
	lists := map[string]bool{}
	for i := range f.nodes {
		spec := want.specOf(i)
		b, err := json.Marshal(spec)
		if err != nil || len(b) > 1792 || strings.Contains(string(b), "component") {
			t.Fatalf("%d bytes, %v:\n%s", len(b), err, b)
		}
		lists[spec.Pins] = true
	}
	if len(lists) != 1 || len(want.holds.data) != 1 {
		t.Errorf("%d lists for nodes of one kind", len(lists))
	}
	for name, data := range want.holds.data {
		if !lists[name] || strings.Count(data, "component-with") != 200 || len(data) > 100_000 {
			t.Errorf("%s: %d bytes", name, len(data))
		}
	}
}
