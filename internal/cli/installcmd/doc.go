// Package installcmd is `refit install` and `refit uninstall`: refit comes into
// a cluster and onto its nodes from a bundle, and leaves again.
//
// Promise: nothing is pulled; every byte that goes to a host is checked against
// the bundle; running it twice changes nothing. Inputs: a bundle, a kubeconfig,
// a remote shell. Callers: internal/cli.
package installcmd
