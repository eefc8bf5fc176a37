// Package inputs opens what commands work on: a cluster through its API server, its current
// update, manifests and the image names of a bundle. It renders kustomizations and charts.
//
// Promise: one call to the API server takes at most RequestTimeout. An error says whether
// refit is not installed, a product area was left out, or the API server does not answer.
// A folder of manifests is its .yaml, .yml and .json files. A kustomization is built from local
// files alone. A chart is rendered without a cluster; only its archive is downloaded.
//
// Inputs: a kubeconfig, files, standard input. Outputs: clients, values, and errors with the
// exit codes of package console. Callers: internal/cli and its command groups.
package inputs
