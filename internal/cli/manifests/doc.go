// Package manifests reads what people give to the lint: files and folders of
// manifests, a configuration of its rules, the names of a bundle's images.
//
// Promise: what cannot be read is an error with its place and exit code 2; a
// folder gives its .yaml, .yml and .json files only. Inputs: paths. Outputs:
// values of internal/imagetag/lint. Callers: internal/cli/tagscmd, bundlecmd.
package manifests
