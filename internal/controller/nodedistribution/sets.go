package nodedistribution

import (
	"slices"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// setName of the set that the controller makes for a bundle.
func setName(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	return "bundle-" + hex[:min(12, len(hex))]
}

func isOurs(s *v1alpha1.PinnedImageSet) bool {
	return s.Labels[v1alpha1.LabelManagedBy] == v1alpha1.FieldOwnerController
}

// missingSets are the approved bundles that have no set yet.
func (w *fleetSnapshot) missingSets(approved []string) []string {
	have := map[string]bool{}
	for i := range w.sets {
		if s := &w.sets[i]; s.Name == setName(s.Spec.Bundle) && s.DeletionTimestamp.IsZero() {
			have[s.Spec.Bundle] = true
		}
	}
	var out []string
	for _, d := range approved {
		if !have[d] {
			out = append(out, d)
		}
	}
	return out
}

// hasSet reports whether the controller's set of a bundle exists.
func (w *fleetSnapshot) hasSet(digest string) bool {
	return slices.ContainsFunc(w.sets, func(s v1alpha1.PinnedImageSet) bool {
		return s.Spec.Bundle == digest && s.Name == setName(digest) && s.DeletionTimestamp.IsZero()
	})
}

// removableSets lists the sets of the controller that may be deleted: those of released
// bundles, and those of bundles that are no longer approved. In that case no update wants the
// bundle, the last update was to another one, and it never ran or a later update has
// completed. The set of a revoked bundle that never ran is removed at once.
func (w *fleetSnapshot) removableSets(approved []string) []*v1alpha1.PinnedImageSet {
	last := w.lastDone()
	keep := w.keptBundles(approved, last)
	var out []*v1alpha1.PinnedImageSet
	for i := range w.sets {
		s := &w.sets[i]
		if isOurs(s) && s.DeletionTimestamp.IsZero() && !keep[s.Spec.Bundle] && w.hasEnded(s, last) {
			out = append(out, s)
		}
	}
	return out
}

// keptBundles are the bundles whose sets stay: those that are approved and not released, that an
// update wants, and that of the last update.
func (w *fleetSnapshot) keptBundles(approved []string, last *v1alpha1.ClusterUpdate) map[string]bool {
	keep := map[string]bool{}
	for _, d := range approved {
		keep[d] = !w.released(d)
	}
	for i := range w.moves {
		if m := &w.moves[i]; m.Status.Phase != v1alpha1.PhaseDone {
			for _, d := range m.Bundles() {
				keep[d] = true
			}
		}
	}
	if last != nil {
		keep[last.Spec.Bundle] = true
	}
	return keep
}

// hasEnded reports whether the time of a set's bundle is over.
func (w *fleetSnapshot) hasEnded(s *v1alpha1.PinnedImageSet, last *v1alpha1.ClusterUpdate) bool {
	d := s.Spec.Bundle
	return w.revoked(d) || w.released(d) || w.doneSince(s) || last != nil && !w.everRan(d)
}

func (w *fleetSnapshot) revoked(digest string) bool {
	for _, d := range w.trust().RevokedDigests {
		if d == digest {
			return !w.everRan(digest)
		}
	}
	return false
}

func (w *fleetSnapshot) everRan(digest string) bool {
	for i := range w.moves {
		m := &w.moves[i]
		if at := slices.Index(m.Bundles(), digest); at >= 0 && at <= m.Hop() && m.Status.StartedAt != nil {
			return true
		}
	}
	return false
}

func (w *fleetSnapshot) doneSince(s *v1alpha1.PinnedImageSet) bool {
	for _, m := range w.moves {
		if m.Spec.Bundle != "" && len(m.Spec.Nodes) == 0 && m.Spec.Bundle != s.Spec.Bundle && m.Status.Phase == v1alpha1.PhaseDone && m.Status.FinishedAt != nil && m.Status.FinishedAt.After(s.CreationTimestamp.Time) {
			return true
		}
	}
	return false
}

// lastDone is the update of the whole cluster to a bundle that was completed last,
// nil if none: one that was limited to some nodes says nothing about the others.
func (w *fleetSnapshot) lastDone() *v1alpha1.ClusterUpdate {
	var last *v1alpha1.ClusterUpdate
	for i := range w.moves {
		m := &w.moves[i]
		if m.Spec.Bundle != "" && len(m.Spec.Nodes) == 0 && m.Status.Phase == v1alpha1.PhaseDone && m.Status.FinishedAt != nil &&
			(last == nil || m.Status.FinishedAt.After(last.Status.FinishedAt.Time)) {
			last = m
		}
	}
	return last
}
