// Package osimagesource turns the name of an OSImage or an OSBuild of the cluster into the
// images that a bundle takes.
//
// Promise: by digest, and under the names by which nodes fetch them. What has no image is
// said, and why. Input: the cluster. Output: sources as `refit bundle create` takes them.
// Caller: internal/cli/bundlecmd.
package osimagesource
