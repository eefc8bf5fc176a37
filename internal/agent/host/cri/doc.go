// Package cri asks a container runtime over CRI for its images and containers. An image counts as
// stored and pinned only if CRI reports it so. Only two calls change the runtime: Stop and Pull.
//
// Inputs: the runtime's socket. Outputs: images with their names, digests and
// pins; the containers of static pods; the image file system. Callers: the
// image keeper, the runtimes' loaders, the updaters.
package cri
