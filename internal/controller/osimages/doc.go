// Package osimages builds the OS images of pools and says which image each has.
//
// Promise: it moves no node: a pool's image in OSImage.status is what nodes are
// wanted to boot, and a ClusterUpdate brings them there, so a paused pool builds and
// stays where it is. The same inputs are one OSBuild. What a build was asked to do
// and cannot fails it at once with the end of the log; faults of the surroundings
// are tried again. A restart at any moment finds the build where it was: a build
// that was cut off is made again and gives the same digest. Images are deleted only
// when no node has, wants or would go back to them.
//
// Shape: look.go gathers and decides for all OSImages at once (internal/osimage),
// write.go writes; building makes one build, given reads what an OSImage names.
// Inputs: OSImages, UpdatePools, NodeConfigs, OSBuilds, what nodes report,
// registries. Outputs: OSBuilds, Contents of type osconfig, Jobs in refit-builds,
// images, statuses. Caller: internal/controller.
package osimages
