// Package bootcmd is `refit bootimage`: the boot images of machines, whether they
// are new enough for a target, and patches for objects that refit does not write.
//
// Promise: it only reads, except three commands. token creates one Secret, uploaded writes
// spec.uploaded of a BootImageStream, rollback spec.rollback of a MachineSource. It uses the code
// and the facts of the controller: MachineSources, BootImagePolicies and
// BootImageStreams, of a cluster or of a dump.
//
// Inputs: a cluster, or a file. Outputs: tables, JSON, exit codes. Caller: cli.
package bootcmd
