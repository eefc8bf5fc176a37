// Package crio loads images into CRI-O, or another runtime that configures its registries in
// /etc/containers, and pins them there.
//
// Promise: the runtime pulls the images itself, under their own names and digests, so refit does
// not depend on the format of its store. During a load, the runtime's configuration names a
// read-only mirror on loopback that has these images and no others. The mirror and its
// configuration are removed after the load. Test pulls that can reach only the mirror prove that
// the runtime read the configuration: before the first image, and before the mirror stops. Pins
// are a list in the runtime's configuration, in the file that is read last. That file replaces
// the lists of other files, so refit copies their pins into it. CRI reports whether an image is
// pinned.
//
// Of a runtime that is not CRI-O no process is signalled: it must see by itself
// that its configuration changed, or the load fails and says so.
//
// Inputs: images with their blobs, the runtime's socket. Outputs: the runtime's
// store, two files in its configuration. Callers: pin/agent, the agent's
// installation.
package crio
