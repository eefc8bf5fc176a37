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
	// perLook is how many specs are written before everything is looked at again:
	// what came meanwhile goes into the rest.
	perLook = 2000
)

// wanted is what the nodes are to be told, as far as it is the same for all.
type wanted struct {
	w         *fleetSnapshot
	order     []string
	approvals map[string]approval
	// names of the Bundles by digest.
	names map[string]string
	holds *holding
	// trust is the name of the Content with the keys.
	trust string
	peers *peerIndex
	// bandwidth is what each node may use of its network.
	bandwidth int64
	// blind are bundles that nobody can read yet, once looked is true.
	blind  []blind
	looked bool
}

// specOf makes the spec of the i-th node's NodeUpdate, but for what others write.
func (want *wanted) specOf(i int) v1alpha1.NodeUpdateSpec {
	n, nu := want.w.nodes[i], want.w.reports[i]
	spec := v1alpha1.NodeUpdateSpec{Trust: want.trust, Pins: want.holds.holdListOf(n, nu), Peers: want.peers.peersOf(want.w, i), HeartbeatSeconds: heartbeat(len(want.w.nodes)), ProgressSeconds: progressSeconds(len(want.w.nodes)), Bandwidth: want.bandwidth, PeerPort: want.w.peerPort(n)}
	for _, d := range want.forNode(n.Name, nu) {
		spec.Bundles = append(spec.Bundles, v1alpha1.ApprovedBundle{Digest: d, Name: want.names[d]})
	}
	return spec
}

// forNode is what a node may copy: all that is approved, and what its own stick
// claims a trusted key has signed. In a large fleet a bundle that nobody has read
// yet is told to those nodes alone that can read it: the others learn of it with
// what to hold of it, in one write instead of two.
func (want *wanted) forNode(node string, nu *v1alpha1.NodeUpdate) []string {
	w := want.w
	var out, candidates []string
	for _, d := range want.order {
		if _, err := w.header(d); err != nil && len(w.nodes) > large && !knows(nu, d) {
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

// knows reports whether a node has a bundle, sees it on a medium, or was told of it.
func knows(nu *v1alpha1.NodeUpdate, digest string) bool {
	return nu != nil && (slices.Contains(nu.Status.Bundles, digest) ||
		slices.ContainsFunc(nu.Spec.Bundles, func(b v1alpha1.ApprovedBundle) bool { return b.Digest == digest }) ||
		slices.ContainsFunc(nu.Status.Media, func(m v1alpha1.Medium) bool { return m.Digest == digest }))
}

// stamp names everything that the specs are made of besides the nodes
// themselves and their neighbours: while it is the same, a node that did not change needs no look.
func (want *wanted) stamp() string {
	var b strings.Builder
	n := len(want.w.nodes)
	fmt.Fprintf(&b, "%s %s %v %d %d %d", want.trust, want.peers.controller.PublicKey, n > large, heartbeat(n), progressSeconds(n), want.bandwidth)
	for _, d := range want.order {
		_, err := want.w.header(d)
		fmt.Fprintf(&b, "|%s %s %v", d, want.names[d], err == nil)
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
			candidates = append(candidates, d+node)
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
	rankPeers             // only the neighbours are others
	settled               // it says what it should
)

// ranked is the rank that a node had, and the edition of its neighbours by then.
type ranked struct {
	rank  rank
	since int
}

// stale lists the nodes to write to in this look, the most urgent first; more
// reports that there are others.
func (r *Reconciler) stale(w *fleetSnapshot, want *wanted) (out []staleNode, more bool) {
	r.settled.Under(want.stamp(), w.edition, w.nodes)
	var lines [settled][]int
	count := 0
	told := want.peers.edition != r.peersEdition // somebody's neighbours may be others
	r.peersEdition = want.peers.edition
	for i, n := range w.nodes {
		x, same := r.settled.At(i, n, w.reports[i])
		if !same || told && x.since != want.peers.since(w, i) {
			*x = ranked{want.rank(i), want.peers.since(w, i)}
		}
		if x.rank == settled {
			continue
		}
		if count++; len(lines[x.rank]) < perLook {
			lines[x.rank] = append(lines[x.rank], i)
		}
	}
	for k, line := range lines {
		for _, i := range line[:min(len(line), perLook-len(out))] {
			out = append(out, staleNode{name: w.nodes[i].Name, spec: want.specOf(i), rank: rank(k)})
		}
	}
	return out, count > len(out)
}

// rank compares what the i-th node is told with what it should be.
func (want *wanted) rank(i int) rank {
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

// sameSpec compares all but spec.run, spec.config and spec.stage, which are written elsewhere.
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
			r.nodes.PutUpdate(nu, w.now)
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
