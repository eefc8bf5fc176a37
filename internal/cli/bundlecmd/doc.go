// Package bundlecmd is `refit bundle ...`, `refit inventory` and `refit keys ...`: creating,
// inspecting, verifying, signing, writing and serving bundles.
//
// Promise: standard output carries only the answer (a digest, a table, JSON);
// progress, warnings and hints go to standard error. inspect, list and diff
// read headers only. serve runs until it is interrupted, and logs requests to
// standard error. Exit codes: 0 done, 2 usage, 3 no room or device in use,
// 6 verification failed, 1 anything else.
//
// create, and images with cluster:, run one program: the kubeadm of the release that
// kubernetes:VERSION names or that the cluster has, once its published checksum is verified. Downloads go into the user's cache directory.
//
// Inputs: arguments, files, devices, registries and release servers for create, an API server for
// cluster:. Callers: the root
// command in package cli.
//
// Size: the commands of one noun share its errors, flags and progress. The files
// kubernetes*.go and distributions*.go read releases for create and images, their only callers.
package bundlecmd
