// Package osimagesource turns the name of an OSImage or an OSBuild of the cluster into
// images for a bundle.
//
// Promise: by digest, and under the names by which nodes fetch them. An object without an
// image is an error with its reason. Input: the cluster. Output: sources for `refit bundle create`.
// Caller: internal/cli/bundlecmd.
package osimagesource
