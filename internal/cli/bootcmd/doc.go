// Package bootcmd is `refit bootimage`: what machines start from, whether it is
// new enough for a target, and what to write where refit does not.
//
// Promise: but for token, which makes one Secret, it reads only. It judges by the same code and the same facts as the
// controller: what stands in MachineSources, BootImagePolicies and
// BootImageStreams, of a cluster or of a dump.
//
// Inputs: a cluster, or a file. Outputs: tables, JSON, exit codes. Caller: cli.
package bootcmd
