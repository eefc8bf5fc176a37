// Package clusterresources applies the cluster resources in a bundle after its nodes were
// updated, and removes those that an earlier bundle of the same name applied.
//
// Promise: nothing is forced. Every object is applied by server-side apply with one field
// owner. A field that another manager owns is a conflict that names the owner, and stays. refit
// removes an object only if it is in the inventory, has the UID from when it was applied, and
// still has fields of refit; it never removes namespaces, kinds and volumes. Kinds are applied
// first, and the rest waits until they are served. Objects with the annotation refit.dev/apply:
// before-nodes are applied when the update has started, and no node moves before they are
// ready. Before that refit only compares by dry runs: how many objects it would create, change,
// remove. It refuses Secrets and refit's own kinds: every node can read a bundle, and a bundle
// must not approve one.
//
// The controller has no rights on such objects by default: an administrator grants them, and
// the status names missing ones.
//
// Inputs: ClusterUpdates, the payload "resources" of their bundles. Outputs: the objects,
// ConfigMaps refit-resources-NAME in refit-nodes (inventories), ClusterUpdate.status.resources.
// Caller: internal/controller.
package clusterresources
