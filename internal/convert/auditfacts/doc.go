// Package auditfacts makes the facts about images out of the objects of a cluster, or
// of a dump of them: pods, nodes, NodeUpdates with what they hold, workloads.
//
// Promise: only what somebody reported becomes a fact. A node's list of images
// (status.images) is cut off at 50 images and five names each by default, so it
// counts as complete only below that; what running containers and a complete hold
// list prove is added to it; of two reports about one tag the newer counts. What
// a dump does not have stays unknown.
//
// Inputs: Objects. Outputs: Facts (values of internal/model and
// internal/imagetag/lint). Callers: internal/cli/tagscmd, internal/controller.
//
// Files: objects.go and dump.go what comes in, pods.go and nodes.go what is said
// of one, evidence.go what containers prove, facts.go all together, workloads.go
// objects for the lint.
package auditfacts
