// Package prepull brings the images of a track to the nodes that run its targets,
// before any of them is restarted.
//
// Promise: one PinnedImageSet of the track's own, track-NAME; one of that name that
// somebody else has made is an error. How far the nodes are is what their agents
// say about the very list that they were told.
//
// Inputs: a track and its state, its workloads, NodeUpdates, Contents. Outputs: the
// set, Jobs (package kubeletpull), track.Preload. Caller: controller/imagetracks.
package prepull
