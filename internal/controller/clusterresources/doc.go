// Package clusterresources applies the cluster resources that a bundle brings, after its
// nodes were moved, and removes those that an earlier bundle of its name brought.
//
// Promise: nothing is forced. Every object is applied by server-side apply with one
// field owner; a field that somebody else owns is a conflict that names the owner,
// and stays. What is removed is in the inventory, has the identity that it had
// when it was applied, and still has fields of ours; namespaces, kinds and volumes
// are left. Kinds come first and are waited for. Objects with the annotation
// refit.dev/apply: before-nodes are applied when the update has started, and no node
// moves before they are there and work. Before the nodes move it is only
// compared, by dry runs: how many objects would be made, changed, removed. Secrets
// and refit's own kinds are refused: every node reads a bundle, and a bundle must
// not approve one.
//
// The controller has no rights on such objects by itself: who wants them applied
// grants them, and what is missing is named.
//
// Inputs: ClusterUpdates, the payload "resources" of their bundles. Outputs: the
// objects, ConfigMaps refit-resources-NAME in refit-nodes (inventories),
// ClusterUpdate.status.resources. Caller: the controller.
package clusterresources
