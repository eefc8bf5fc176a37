// Package noderights lets each node read its own NodeUpdate and no other.
//
// Promise: every NodeUpdate has a Role refit:node:NAME that names it
// (resourceNames) and a RoleBinding of that name for the node's identity, a few
// seconds after it was created. RBAC compares the name with a get, and with a list
// or watch that selects metadata.name, so an agent reads and watches by its own
// name only. Both belong to the NodeUpdate and go with it. What was deleted by
// hand is back within refresh. The controller grants only what it holds itself,
// and the admission policy refit-controller-grants limits it to this one shape.
//
// Inputs: NodeUpdates in the cache, RoleBindings by their label. Outputs: Roles
// and RoleBindings in refit-nodes. Caller: the controller, while it leads.
package noderights
