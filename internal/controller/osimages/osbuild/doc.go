// Package osbuild runs one OSBuild: it appends a layer itself, or has a Job build a
// Containerfile for each architecture, and assembles the index.
//
// Promise: a build that cannot do what was requested fails at once with the end of the
// log; faults of the environment are retried four times. A finished build does not change.
// A restart resumes it from the OSBuild and its Jobs, or repeats it with the same digest.
// Everything a build reads is copied when it starts. Missing inputs are problems with a
// fix; an error is only an API server that did not answer. No secret is in a problem, an
// event or a label. A base in a bundle is found by digest alone, in bundles that agents
// serve; only manifests and configurations of it are read, never a layer. Events and
// metrics follow the status write, so they never report what did not happen.
//
// Files: builds.go the life of a build, append.go the layer, job.go the Jobs, index.go
// several architectures. context.go files next to the Containerfile, inputs.go what an
// OSImage refers to, basefinder.go bases in bundles, events.go events and metrics,
// status.go the status. Inputs: an OSBuild, its OSImage, Contents, ConfigMaps, Secrets,
// NodeUpdates, bundles. Outputs: images in registries, Jobs in refit-builds,
// OSBuild.status, events, metrics. Callers: controller/osimages, internal/controller.
package osbuild
