// Package osbuild makes one OSBuild: it appends a layer itself, or has a Job build a
// Containerfile, one for every architecture, and puts their images together.
//
// Promise: what a build was asked to do and cannot fails it at once with the end of the
// log; faults of the surroundings are tried four times. What ended does not change. A
// restart at any moment finds the build where it was: all that is known is in the
// OSBuild and its Jobs, and what was cut off is made again to the same digest. What a
// Job reads is copied when it starts.
//
// Files: builds.go the life of a build, append.go the layer, job.go the Jobs, index.go
// several architectures, context.go files beside the Containerfile, status.go what is
// written. Inputs: an OSBuild, its OSImage, Content, ConfigMaps and Secrets. Outputs:
// images in registries, Jobs in refit-builds, OSBuild.status. Callers:
// internal/controller/osimages, the controller.
package osbuild
