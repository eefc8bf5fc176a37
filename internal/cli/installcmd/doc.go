// Package installcmd is `refit install` and `refit uninstall`: install refit into a
// cluster and onto its nodes from a bundle, and remove it.
//
// Promise: it pulls nothing, verifies every byte for a host against the bundle, and is
// idempotent. Inputs: a bundle, a kubeconfig, a remote shell. Callers: internal/cli.
package installcmd
