// Package imagediff reads two images from registries and says what differs between
// them, platform by platform.
//
// Promise: manifests and configurations are compared with their digests, layers that both
// have are not read, and no more than internal/osimage/contents permits. Images
// with other platforms, or with other differences on another platform, need a boot. An
// error means that a registry did not answer: nothing is known then.
//
// Inputs: a way to registries, two images by digest, the rules of a pool. Outputs: the
// files that agents write, or why not. Caller: internal/controller/osimages.
package imagediff
