// Package nodedistribution keeps what every node must know: which bundles are approved,
// whose keys are trusted, what to hold and pin, who the neighbours are.
//
// Promise: it moves no node. From people's objects (Bundle, TrustPolicy,
// PinnedImageSet, ClusterUpdate) and what agents report it makes the
// NodeUpdates with their specs (all but spec.run), the Contents they name, the
// Bundles that were found, the set of every approved bundle, and the statuses of
// Bundle, TrustPolicy and PinnedImageSet. A hold list never loses an image because the
// controller does not know a bundle at the moment.
//
// Shape: gather.go reads, the files named after a subject decide (pure
// functions over world), apply.go writes. Caller: internal/controller.
//
// Size: what a node must know is one decision over one world: approvals, hold
// lists, neighbours and their statuses share it.
package nodedistribution
