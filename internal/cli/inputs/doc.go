// Package inputs opens what commands work on: a cluster through its API server, its current
// update, manifests and the image names of a bundle. The program refit-render renders
// kustomizations and charts for it.
//
// Promise: one call to the API server takes at most RequestTimeout. An error says whether
// refit is not installed, a product area was left out, or the API server does not answer.
// A folder of manifests is its .yaml, .yml and .json files. A kustomization is built from local
// files alone. A chart is rendered without a cluster; only its archive is downloaded. Rendering
// takes at most a minute, in a process without an environment.
//
// OpenSupport reads an archive of refit support, bounded in memory, for the commands that only
// read: Access.Reader returns it or the cluster.
//
// The files clusterimages_*.go read which images a running cluster uses: page by page, one object
// at a time, so memory grows with the different references, not with the pods. A page takes at most
// two minutes. Kinds that the account must not list are in the result. A container's status gives
// the digest that runs under a tag.
//
// Inputs: a kubeconfig, files, standard input. Outputs: clients, values, and errors with the
// exit codes of package console. Callers: internal/cli and its command groups.
package inputs
