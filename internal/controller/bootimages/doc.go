// Package bootimages keeps the boot images of machine managers current, as BootImagePolicies
// require, and keeps an inventory: one MachineSource for each machine manager.
//
// Promise: internal/bootimage decides; this package gathers, writes and records. A change costs
// at most three writes per machine manager: the clone of a template, the reference to it, the
// record. A canary costs its copy and the removal of it as well. It writes nothing if nothing differs. All state is in MachineSources, so a restart at
// any line continues where it was. refit deletes only what it created. A kind that the cluster
// does not serve, or that refit may not read, is reported and stops no other kind.
//
// Inputs: BootImagePolicies, BootImageStreams, MachineSources, Nodes and their agents' reports,
// and the objects of machine kinds, read live every half minute. Outputs: templates, patches,
// MachineSources, status. Caller: internal/controller.
//
// First-boot configurations (Ignition in Secrets): replacing their authority changes no other
// byte. One that is not Ignition, fetches from another server, is written by another client, or
// has several authorities stays unchanged, and the status says so. A Secret that several
// managers refer to is written once per reconcile; every write is in their records.
//
// Provenance and versions: every source is counted once. A node with a Machine belongs to that
// machine's source; a node selector matches only nodes without one. Only nodes that joined after
// a declaration can contradict it. The rules of every stream that a policy names count, also of
// streams that are not used yet.
//
// Files: controller.go has the loop and gather.go the snapshot. candidate.go and
// image_choice.go handle one machine manager and its image, rollback.go the one to return to.
// canary.go has one machine try an image. write.go writes, collect.go deletes. The files
// user_data*.go handle first-boot configurations. record.go, skew.go, summary.go and the pure
// provenance.go and version_rules.go fill the status of MachineSources and policies.
package bootimages
