// Package nodedistribution writes the desired state of every node: approved bundles, trusted
// keys, the pin set, peers.
//
// Promise: it updates no node. Its inputs are the objects of administrators (Bundle,
// TrustPolicy, PinnedImageSet, ClusterUpdate) and the reports of agents. It writes the
// NodeUpdates with their specs (all but spec.run), the Contents that they name, discovered
// Bundles, the set of every approved bundle, and the statuses of Bundle, TrustPolicy and
// PinnedImageSet. A pin set never loses an image because the controller cannot read a
// bundle at the moment.
//
// Files: gather.go reads, the files named after a subject decide (pure functions of
// fleetSnapshot), apply.go writes. Caller: internal/controller.
//
// Size: the desired state is one decision over one snapshot: approvals, pin sets, peers and
// their statuses share it.
package nodedistribution
