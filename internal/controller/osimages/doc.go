// Package osimages builds the OS images of pools, prepulls them onto the nodes and
// publishes which image each pool has.
//
// Promise: it moves no node: a pool's image in OSImage.status is what nodes should boot,
// and a ClusterUpdate moves them, so a paused pool builds and stays where it is. The same
// inputs are one OSBuild. A restart at any moment resumes the build or repeats it with the
// same digest. Images are deleted only when no node runs, wants or could roll back to
// them. Prepulling drains and restarts nothing, hands out no credentials, and counts only
// reports about the current list. An image comparison reads manifests and configurations
// by digest, skips common layers and stays within the limits of osimage/contents.
//
// Files: gather.go reads everything and decides with internal/osimage, write.go applies
// it, imagediff.go compares two images, prepull.go and prepull_pools.go the prepull; one
// build is package osbuild. Inputs: OSImages, UpdatePools, NodeConfigs, OSBuilds, what
// nodes report, registries. Outputs: OSBuilds, Contents of type osconfig, PinnedImageSets
// os-image-POOL, Jobs, images, statuses. Caller: internal/controller.
package osimages
