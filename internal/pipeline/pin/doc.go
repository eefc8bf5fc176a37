// Package pin decides what a node must hold of a bundle, whether there is room for it,
// and what must be done so that the node holds and pins exactly that. It is pure.
//
// Promise: a pin set has everything of a bundle that its nodes need (FromBundle): only nodes
// that run a control plane need the images of the group control-plane. Only blobs that the set names are wanted (SelectNeeded); an image or payload that the bundle does
// not have as the set names it is a blocker, not a guess. The room is compared per file
// system, and names that share one are added up (CheckSpace). Decide believes only what
// the runtime itself reports over CRI: an image is held when it is there under its tag
// and under its digest. refit releases a pin only if it made the pin and no held image
// needs it; applied twice is applied once.
//
// It also decides the startup taint (DecideTaint): a node that joins, or that lost its
// store, takes no pods before it proved that it holds and pins its whole pin set. refit
// changes only its own taint. A node that was admitted once stays admitted while its store
// is the same, even if an image is missing for a while.
//
// Retain decides for how long nodes hold approved bundles: never shorter than the cluster, a
// node, an update, a rollback or an administrator needs one. Removable decides which images
// refit removes from a runtime: only images that it loaded itself and that nothing needs.
// RoleShares are what nodes of each role and platform store, by the rule of FromBundle.
//
// Inputs: bundle.Header, a pin set, Room values, what CRI reports, the record of own pins.
// Approved bundles with their updates. Outputs: Needed, blockers, Decision, Retention, Removal.
// Callers: the agent and its bundlestore, the
// controller, refit drill, refit bundle inspect.
package pin
