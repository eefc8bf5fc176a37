// Package auditfacts converts the objects of a cluster, or of a dump, to facts about images:
// pods, nodes, NodeUpdates with their pinned images, workloads.
//
// Promise: only reported values become facts. A node's image list (status.images) is limited to
// 50 images with five names each by default, so it counts as complete only below that. Images
// of running containers and of a complete pin list are added to it. Of two reports about one
// tag the newer counts. Values missing in a dump stay unknown.
//
// Inputs: Objects. Outputs: Facts (values of internal/model and internal/imagetag/lint).
// Callers: internal/cli/tagscmd, internal/controller.
//
// Files: objects.go and dump.go have the inputs; pods.go, nodes.go and evidence.go convert one
// object; facts.go combines them; workloads.go makes objects for the lint.
package auditfacts
