// Package clusterapi answers Cluster API's in-place update hooks: one extension
// for many updaters.
//
// Promise: the change of a machine is shared out among the updaters as the
// planner does it for nodes: each field has one owner, what is left is named.
// Under Preserve, the default, a change that is not covered moves and replaces
// nothing: Cluster API gets a refusal with the same words every time, and an
// InPlacePlan names the fields. Such answers depend on the difference, on what
// is registered and on the settings, never on a passing state, because Cluster
// API keeps them for a day.
//
// UpdateMachine says done only when every updater does, refit's own only of a node
// that was observed at its version. A caller must show a
// client certificate, and is not believed either: the Machine is read from the API
// server, must be in an update there and must want what the body says; updaters
// are sent the stored objects; a question whose objects differ from the stored
// ones is refused and changes no InPlacePlan. While refit moves a node, the health checker leaves the machine alone; the
// mark has an expiry and is taken off on every way out, also after a crash, since
// the plan lists the machine before the mark is made.
//
// All state is in API objects, so any replica may answer any call. Bodies carry
// join tokens and file contents: they are never logged, recorded or repeated.
//
// Inputs: HTTPS requests; Machines, their pools and Clusters in the management
// cluster; refit's objects in the workload clusters (package workloadcluster). Outputs:
// answers, InPlacePlans, one annotation on Machines, ClusterUpdates there.
// Caller: internal/controller.
package clusterapi
