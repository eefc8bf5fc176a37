// Package cli is the refit command line: it gathers facts, calls the pure
// packages and prints what they answer.
//
// Promise: standard output carries only the answer; progress and hints go to
// standard error. Exit codes are those of package exit. Every command that
// waits only watches: state is in the cluster, Ctrl-C stops nothing.
//
// Inputs: arguments, a kubeconfig, files. Callers: cmd/refit.
package cli
