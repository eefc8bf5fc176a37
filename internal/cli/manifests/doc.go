// Package manifests reads the inputs of the lint: files and directories of
// manifests, a configuration of its rules, the names of a bundle's images.
//
// Promise: an unreadable input is an error with its place and exit code 2. From a
// directory it reads .yaml, .yml and .json files only. Inputs: paths. Outputs:
// values of internal/imagetag/lint. Callers: internal/cli/tagscmd, bundlecmd.
package manifests
