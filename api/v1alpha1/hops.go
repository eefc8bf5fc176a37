package v1alpha1

import (
	"fmt"
	"slices"
)

// Bundles are the digests of the bundles that the update goes to, in order: its hops, then its
// target. An update without a bundle has one that is empty.
func (u *ClusterUpdate) Bundles() []string {
	return append(slices.Clone(u.Spec.Hops), u.Spec.Bundle)
}

// Hop is the position of the current hop: the first that is not done, or the last.
func (u *ClusterUpdate) Hop() int {
	for i := range u.Spec.Hops {
		if i >= len(u.Status.Hops) || u.Status.Hops[i].FinishedAt == nil {
			return i
		}
	}
	return len(u.Spec.Hops)
}

// HopBundle is the bundle of the current hop.
func (u *ClusterUpdate) HopBundle() string { return u.Bundles()[u.Hop()] }

// BetweenHops reports whether a hop is done and the next one has not started.
func (u *ClusterUpdate) BetweenHops() bool {
	i := u.Hop()
	return i > 0 && (i >= len(u.Status.Hops) || u.Status.Hops[i].StartedAt == nil)
}

// LastHop reports whether the update is in its last hop, or started it.
func (u *ClusterUpdate) LastHop() bool { return u.Hop() == len(u.Spec.Hops) && !u.BetweenHops() }

// RunUID identifies the current hop in marks, runs and records of nodes.
func (u *ClusterUpdate) RunUID() string { return u.RunUIDs()[u.Hop()] }

// RunUIDs are those of all hops: a node never runs the same one twice.
func (u *ClusterUpdate) RunUIDs() []string {
	out := []string{string(u.UID)}
	for i := range u.Spec.Hops {
		out = append(out, fmt.Sprintf("%s-%d", u.UID, i+2))
	}
	return out
}
