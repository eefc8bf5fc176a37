// Package bootimages keeps the boot images of machine managers current, as BootImagePolicies
// require, and keeps an inventory: one MachineSource for each machine manager.
//
// Promise: internal/bootimage decides; this package gathers, writes and records. A change costs
// at most three writes per machine manager: the clone of a template, the reference to it, the
// record. It writes nothing if nothing differs. All state is in MachineSources, so a restart at
// any line continues where it was. refit deletes only what it created. A kind that the cluster
// does not serve, or that refit may not read, is reported and stops no other kind.
//
// Inputs: BootImagePolicies, BootImageStreams, MachineSources, Nodes and their agents' reports,
// and the objects of machine kinds, read live every half minute. Outputs: templates, patches,
// MachineSources, status. Caller: internal/controller.
//
// Files: controller.go has the loop and gather.go the snapshot. candidate.go, image_choice.go
// and image_region.go handle one machine manager and its image. write.go writes, collect.go
// deletes. record.go, skew.go and summary.go fill the status of MachineSources and policies.
package bootimages
