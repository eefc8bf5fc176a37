package nodedistribution

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/controller/ssa"
)

const (
	// large is from how many nodes on a write less per node counts more than a
	// moment earlier.
	large = 100
	// maxWritesPerReconcile is how many specs one reconcile writes: the next one includes
	// changes since then.
	maxWritesPerReconcile = 2000
)

// desiredState is the part of the nodes' desired state that is the same for all.
type desiredState struct {
	w         *fleetSnapshot
	order     []string
	approvals map[string]approval
	// names of the Bundles by digest.
	names map[string]string
	holds *pinSetBuilder
	// trust is the name of the Content with the keys.
	trust string
	peers *peerIndex
	// bandwidth is what each node may use of its network.
	bandwidth int64
	// blind are bundles that the controller cannot read yet, once looked is true.
	blind  []unreadBundle
	looked bool
}

// specOf makes the spec of the i-th node's NodeUpdate, but for what others write.
func (want *desiredState) specOf(i int) v1alpha1.NodeUpdateSpec {
	n, nu := want.w.nodes[i], want.w.reports[i]
	spec := v1alpha1.NodeUpdateSpec{Trust: want.trust, Pins: want.holds.pinSetOf(n, nu), Peers: want.peers.peersOf(want.w, i), HeartbeatSeconds: heartbeat(len(want.w.nodes)), ProgressSeconds: progressSeconds(len(want.w.nodes)), Bandwidth: want.bandwidth, PeerPort: want.w.peerPort(n)}
	for _, d := range want.forNode(n.Name, nu) {
		spec.Bundles = append(spec.Bundles, v1alpha1.ApprovedBundle{Digest: d, Name: want.names[d], Fetch: want.w.fetchGeneration(d, n.Name)})
	}
	return spec
}

// forNode are the bundles that a node may copy: all approved ones, and those on its own
// medium that claim the signature of a trusted key. In a large cluster a bundle that the
// controller has not read yet goes only to nodes that can read it. The other nodes get it
// together with their pin set, in one write instead of two.
func (want *desiredState) forNode(node string, nu *v1alpha1.NodeUpdate) []string {
	w := want.w
	var out, candidates []string
	for _, d := range want.order {
		if _, err := w.header(d); err != nil && len(w.nodes) > large && !knowsBundle(nu, d) && w.fetchGeneration(d, node) == 0 {
			continue
		}
		out = append(out, d)
	}
	for d, a := range want.approvals {
		if slices.Contains(a.candidate, node) {
			candidates = append(candidates, d)
		}
	}
	sort.Strings(candidates)
	out = append(out, candidates...)
	if len(out) > maxBundles {
		out = out[:maxBundles]
	}
	return out
}

// beats is how many agents may say within a minute that they live.
const beats = 3000

// heartbeat is how often an agent says at least that it lives, in seconds, 0 for
// every minute. It doubles, so that a node that comes or goes seldom changes it.
func heartbeat(nodes int) int32 {
	every := int32(0)
	for minutes := 1; minutes*beats < nodes && minutes < 32; minutes *= 2 {
		every = int32(2 * minutes * 60)
	}
	return every
}

// progressSeconds is how long an agent keeps mere progress back, in seconds, 0 for ten: at
// least a fiftieth of a second for every node. It doubles as well.
func progressSeconds(nodes int) int32 {
	every := 10
	for every*50 < nodes && every < 3600 {
		every *= 2
	}
	if every == 10 {
		return 0
	}
	return int32(min(every, 3600))
}

// knowsBundle reports whether a node has a bundle, sees it on a medium, or has it in its
// desired state.
func knowsBundle(nu *v1alpha1.NodeUpdate, digest string) bool {
	return nu != nil && (slices.Contains(nu.Status.Bundles, digest) ||
		slices.ContainsFunc(nu.Spec.Bundles, func(b v1alpha1.ApprovedBundle) bool { return b.Digest == digest }) ||
		slices.ContainsFunc(nu.Status.Media, func(m v1alpha1.Medium) bool { return m.Digest == digest }))
}

// fingerprint names every input of the specs except the nodes themselves and their peers.
// While it is the same, a node that did not change is not compared.
func (want *desiredState) fingerprint() string {
	var b strings.Builder
	n := len(want.w.nodes)
	fmt.Fprintf(&b, "%s %s %v %d %d %d", want.trust, want.peers.controller.PublicKey, n > large, heartbeat(n), progressSeconds(n), want.bandwidth)
	for _, d := range want.order {
		_, err := want.w.header(d)
		f := want.w.fetchers[d]
		fmt.Fprintf(&b, "|%s %s %v %s %d", d, want.names[d], err == nil, f.node, f.generation)
	}
	for i := range want.w.sets {
		s := &want.w.sets[i]
		_, err := want.w.header(s.Spec.Bundle)
		fmt.Fprintf(&b, "|%s %d %v %v", s.UID, s.Generation, s.DeletionTimestamp.IsZero(), err == nil)
	}
	for i := range want.w.pools {
		p := &want.w.pools[i]
		fmt.Fprintf(&b, "|%s %d %v", p.UID, p.Generation, p.DeletionTimestamp.IsZero())
	}
	var candidates []string
	for d, a := range want.approvals {
		for _, node := range a.candidate {
			candidates = append(candidates, fmt.Sprint(d, node, want.w.fetchGeneration(d, node)))
		}
	}
	sort.Strings(candidates)
	return b.String() + strings.Join(candidates, " ")
}

// staleNode is a node whose NodeUpdate does not say what it should.
type staleNode struct {
	name string
	spec v1alpha1.NodeUpdateSpec
	rank rank
}

// rank says how urgent a node is.
type rank uint8

const (
	missing   rank = iota // there is no NodeUpdate
	different             // it says something else
	rankPeers             // only the peers differ
	settled               // it says what it should
)

// ranked is the rank that a node had, and the edition of its peers at that time.
type ranked struct {
	rank  rank
	since int
}

// stale lists the nodes to write in this reconcile, the most urgent first; more reports that
// there are others.
func (r *Reconciler) stale(w *fleetSnapshot, want *desiredState) (out []staleNode, more bool) {
	r.rankedNodes.Under(want.fingerprint(), w.edition, w.nodes)
	var lines [settled][]int
	count := 0
	peersMoved := want.peers.edition != r.peersEdition // the peers of some node may differ
	r.peersEdition = want.peers.edition
	for i, n := range w.nodes {
		x, same := r.rankedNodes.At(i, n, w.reports[i])
		if !same || peersMoved && x.since != want.peers.since(w, i) {
			*x = ranked{want.rank(i), want.peers.since(w, i)}
		}
		if x.rank == settled {
			continue
		}
		if count++; len(lines[x.rank]) < maxWritesPerReconcile {
			lines[x.rank] = append(lines[x.rank], i)
		}
	}
	for k, line := range lines {
		for _, i := range line[:min(len(line), maxWritesPerReconcile-len(out))] {
			out = append(out, staleNode{name: w.nodes[i].Name, spec: want.specOf(i), rank: rank(k)})
		}
	}
	return out, count > len(out)
}

// rank compares the spec of the i-th node with its desired state.
func (want *desiredState) rank(i int) rank {
	nu := want.w.reports[i]
	if nu == nil {
		return missing
	}
	switch spec := want.specOf(i); {
	case !sameButPeers(&nu.Spec, &spec):
		return different
	case !slices.Equal(nu.Spec.Peers, spec.Peers):
		return rankPeers
	}
	return settled
}

// sameSpec compares all but spec.run, spec.config, spec.stage and spec.reboot, which are written elsewhere.
func sameSpec(have, want *v1alpha1.NodeUpdateSpec) bool {
	return sameButPeers(have, want) && slices.Equal(have.Peers, want.Peers)
}

// sameButPeers is written out because it is asked of thirty thousand at once; a
// test sees that no field is left out.
func sameButPeers(have, want *v1alpha1.NodeUpdateSpec) bool {
	return have.Trust == want.Trust && have.Pins == want.Pins && have.HeartbeatSeconds == want.HeartbeatSeconds && have.ProgressSeconds == want.ProgressSeconds && have.Bandwidth == want.Bandwidth && have.PeerPort == want.PeerPort && slices.Equal(have.Bundles, want.Bundles)
}

// writeSpecs writes what differs, after the Contents that it names.
func (r *Reconciler) writeSpecs(ctx context.Context, w *fleetSnapshot, contents map[string]content, stale []staleNode) error {
	for _, s := range stale {
		if err := r.makeContents(ctx, w, contents, s.spec.Trust, s.spec.Pins); err != nil {
			return err
		}
	}
	return queue.ForEach(ctx, stale, func(s staleNode) error {
		nu, err := ssa.NodeSpec(ctx, r.Client, v1alpha1.FieldOwnerController, s.name, &s.spec)
		if err == nil {
			r.nodes.PutUpdate(nu)
		}
		return err
	})
}

func (r *Reconciler) makeContents(ctx context.Context, w *fleetSnapshot, contents map[string]content, names ...string) error {
	for _, name := range names {
		c, ok := contents[name]
		if !ok || w.contents[name] != nil {
			continue
		}
		o, err := ssa.MakeContent(ctx, r.Client, c.kind, c.data)
		if err != nil {
			return err
		}
		w.contents[name] = o
	}
	return nil
}
