package fleet

import (
	"slices"
	"sort"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/distribute"
)

// controllerPeer is the name of the controller among the peers.
const controllerPeer = "refit-controller"

// order lists the approved digests: what moves nodes now, what is to move them
// next, what runs, then the newest Bundle objects. The order decides whose image
// keeps a tag that moved between releases, so a bundle that is refused because
// it is older comes after what runs.
func (w *world) order(approvals map[string]approval) []string {
	var out []string
	add := func(d string) {
		if approvals[d].ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	for _, d := range w.wantedByMoves() {
		add(d)
	}
	if last := w.lastDone(); last != nil {
		add(last.Spec.Bundle)
		if w.runsUnapproved(last.Spec.Bundle, approvals) && !slices.Contains(out, last.Spec.Bundle) {
			out = append(out, last.Spec.Bundle)
		}
	}
	bundles := slices.Clone(w.bundles)
	sort.SliceStable(bundles, func(i, j int) bool { return bundles[j].CreationTimestamp.Before(&bundles[i].CreationTimestamp) })
	for i := range bundles {
		add(digestOf(&bundles[i]))
	}
	return out
}

// wantedByMoves: what moves nodes now, then what is to move them, the newest first.
func (w *world) wantedByMoves() []string {
	moves := slices.Clone(w.moves)
	sort.SliceStable(moves, func(i, j int) bool { return moves[j].CreationTimestamp.Before(&moves[i].CreationTimestamp) })
	var out []string
	for _, started := range []bool{true, false} {
		for i := range moves {
			if m := &moves[i]; m.Status.Phase != v1alpha1.PhaseDone && (m.Status.StartedAt != nil) == started && wanted(m) {
				out = append(out, m.Spec.Bundle)
			}
		}
	}
	return out
}

// runsUnapproved: what the last update brought runs, and is held until a later
// one is done, also when somebody deleted the Bundle that approved it. A revoked
// one is not.
func (w *world) runsUnapproved(digest string, approvals map[string]approval) bool {
	a, known := approvals[digest]
	return (!known || a.reason == v1alpha1.ReasonAwaitingApproval) && !slices.Contains(w.trust().RevokedDigests, digest)
}

// wanted updates were planned and are not refused as older than what runs.
func wanted(m *v1alpha1.ClusterUpdate) bool {
	return m.Status.StartedAt != nil || m.Status.PlanDigest != "" && !slices.ContainsFunc(m.Status.Blockers, func(b v1alpha1.Blocker) bool {
		return b.Reason == v1alpha1.ReasonOlderThanRunning
	})
}

// specs makes the spec of every node's NodeUpdate; spec.run is not part of it.
func (w *world) specs(order []string, approvals map[string]approval, holds *holding, trustName, publicKey string) map[string]v1alpha1.NodeUpdateSpec {
	names := w.bundleNames()
	peers := w.peers(publicKey)
	out := map[string]v1alpha1.NodeUpdateSpec{}
	for _, n := range w.nodes {
		spec := v1alpha1.NodeUpdateSpec{Trust: trustName, Hold: holds.of(n), Peers: peers[n.Name]}
		for _, d := range w.forNode(n.Name, order, approvals) {
			spec.Bundles = append(spec.Bundles, v1alpha1.ApprovedBundle{Digest: d, Name: names[d]})
		}
		out[n.Name] = spec
	}
	return out
}

// forNode is what a node may copy: all that is approved, and what its own stick
// claims a trusted key has signed.
func (w *world) forNode(node string, order []string, approvals map[string]approval) []string {
	out := slices.Clone(order)
	var candidates []string
	for d, a := range approvals {
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

func (w *world) bundleNames() map[string]string {
	out := map[string]string{}
	for i := range w.bundles {
		b := &w.bundles[i]
		if d := digestOf(b); d != "" && (out[d] == "" || b.Spec.Digest != "") {
			out[d] = b.Name
		}
	}
	return out
}

// peers gives every node its neighbours and the controller.
func (w *world) peers(publicKey string) map[string][]v1alpha1.Peer {
	var names []string
	for _, n := range w.nodes {
		if nu := w.updates[n.Name]; nu != nil && nu.Status.Agent != nil && nu.Status.Agent.PublicKey != "" {
			names = append(names, n.Name)
		}
	}
	neighbours := distribute.Neighbours(names)
	out := map[string][]v1alpha1.Peer{}
	for _, n := range w.nodes {
		peers := []v1alpha1.Peer{{Node: controllerPeer, PublicKey: publicKey}}
		for _, name := range neighbours[n.Name] {
			a := w.updates[name].Status.Agent
			peers = append(peers, v1alpha1.Peer{Node: name, Address: a.Address, PublicKey: a.PublicKey})
		}
		out[n.Name] = peers
	}
	return out
}
