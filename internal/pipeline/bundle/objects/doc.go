// Package objects reads manifests that a bundle is to bring to a cluster.
//
// Promise: the same files make the same text, and what the controller would refuse is
// refused here, while the bundle is made. Input: a file or folder. Output: one text of
// YAML documents. Caller: bundlewriter.
package objects
