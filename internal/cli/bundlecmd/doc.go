// Package bundlecmd is `refit bundle ...` and `refit keys ...`: creating,
// inspecting, verifying, signing and writing bundles.
//
// Promise: standard output carries only the answer (a digest, a table, JSON);
// progress, warnings and hints go to standard error. inspect, list and diff
// read headers only. Exit codes: 0 done, 2 usage, 3 no room or device in use,
// 6 verification failed, 1 anything else.
//
// Inputs: arguments, files, devices, registries for create. Callers: the root
// command in package cli.
package bundlecmd
