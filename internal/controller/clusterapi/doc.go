// Package clusterapi answers Cluster API's in-place update hooks: one extension for many
// updaters.
//
// Promise: it distributes a machine's change to the updaters as the planner does for nodes:
// each field has one owner, and fields without one are named. Under Preserve, the default, an
// uncovered change moves and replaces nothing: Cluster API gets a refusal with a constant
// message, and an InPlacePlan names the fields. Such answers depend only on the difference, the
// registered updaters and the settings, never on transient state, because Cluster API caches
// them for a day.
//
// UpdateMachine answers done only when every updater has; refit's own updater only when the
// node was observed at its version. A caller must present a client certificate, and refit
// trusts its body only after a comparison. It reads the Machine from the API server, which must
// be in an update and want the same version. Updaters get the stored objects. A request whose
// objects differ from the stored ones is refused and changes no InPlacePlan.
//
// While refit moves a node, the Machine health check skips the machine. That annotation has an
// expiry and is removed on every way out, also after a crash, since the plan lists the machine
// before refit sets it.
//
// All state is in API objects, so any replica may answer any call. Bodies carry join tokens and
// file contents: they are never logged, recorded or repeated.
//
// In the workload clusters (workload_*.go) it requests an update of the machine's node and reads
// the result there: a ClusterUpdate limited to the node, whose name identifies Machine and
// version. Any number of calls, also from two replicas, create one. It uses only a bundle whose
// digest a person has set. It needs to read Nodes, NodeUpdates and Bundles there and to write
// ClusterUpdates, nothing else, and no Secret. It uses only the data inside a kubeconfig: one
// that names a file, a program, a proxy or another identity is refused, because the controller
// would resolve it with its own rights.
//
// Inputs: HTTPS requests; Machines, their pools and Clusters in the management cluster; refit's
// objects in the workload clusters. Outputs: answers, InPlacePlans, one annotation on Machines,
// ClusterUpdates there. Caller: internal/controller.
package clusterapi
