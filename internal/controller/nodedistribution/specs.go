package nodedistribution

import (
	"slices"
	"sort"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// order lists the approved digests that nodes hold: what moves nodes now, what is to move
// them next, what runs, then the newest Bundle objects. A released bundle is not in it once
// its set is gone. The order decides whose image
// keeps a tag that moved between releases, so a bundle that is refused because
// it is older comes after what runs.
func (w *fleetSnapshot) order(approvals map[string]approval) []string {
	var out []string
	add := func(d string) {
		if approvals[d].ok && !slices.Contains(out, d) && (!w.released(d) || w.hasSet(d)) {
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

// wantedByMoves: what moves nodes now, then what is to move them, the newest first. The bundles of
// an update are those of its current hop and of the hops to come, then those of the hops that are
// done: the nodes run the last of them.
func (w *fleetSnapshot) wantedByMoves() []string {
	moves := slices.Clone(w.moves)
	sort.SliceStable(moves, func(i, j int) bool { return moves[j].CreationTimestamp.Before(&moves[i].CreationTimestamp) })
	var out []string
	for _, started := range []bool{true, false} {
		for i := range moves {
			if m := &moves[i]; m.Status.Phase != v1alpha1.PhaseDone && (m.Status.StartedAt != nil) == started && planned(m) {
				all, at := m.Bundles(), m.Hop()
				out = append(out, all[at:]...)
				for _, d := range slices.Backward(all[:at]) {
					out = append(out, d)
				}
			}
		}
	}
	return out
}

// runsUnapproved reports whether the cluster runs a bundle although its Bundle was deleted.
// Its images stay pinned until a later update is done. Those of a revoked bundle do not.
func (w *fleetSnapshot) runsUnapproved(digest string, approvals map[string]approval) bool {
	a, known := approvals[digest]
	return (!known || a.reason == v1alpha1.ReasonAwaitingApproval || a.reason == v1alpha1.ReasonSignaturesRequired) && !slices.Contains(w.trust().RevokedDigests, digest)
}

// planned updates were planned and are not refused as older than what runs.
func planned(m *v1alpha1.ClusterUpdate) bool {
	return m.Status.StartedAt != nil || m.Status.PlanDigest != "" && !slices.ContainsFunc(m.Status.Blockers, func(b v1alpha1.Blocker) bool {
		return b.Reason == v1alpha1.ReasonOlderThanRunning
	})
}

func (w *fleetSnapshot) bundleNames() map[string]string {
	out := map[string]string{}
	for i := range w.bundles {
		b := &w.bundles[i]
		if d := digestOf(b); d != "" && (out[d] == "" || b.Spec.Digest != "") {
			out[d] = b.Name
		}
	}
	return out
}
