// Package cli is the refit command line: it gathers facts, calls the pure
// packages and prints what they answer.
//
// Promise: standard output carries only the answer; progress and hints go to
// standard error. Exit codes are those of package exit. Every command that
// waits only watches: state is in the cluster, Ctrl-C stops nothing.
//
// Size: plan, apply and rollback are one story over the same options; commands that
// stand alone have packages of their own (bundlecmd, updatecmd, ...).
//
// Inputs: arguments, a kubeconfig, files. Callers: cmd/refit.
package cli
