// Package crio brings images into CRI-O, or another runtime that takes its
// registries from /etc/containers, and pins them there.
//
// Promise: images come in by the runtime's own pull, under their own names and
// digests, so the store's format is its own affair. For that time the runtime is
// told of a read-only mirror on loopback that has these images and no others;
// when the load ends, the mirror and what tells of it are gone. It is proved by
// pulls that cannot reach anything else, before the first image is pulled and
// before the mirror ends, that the runtime has taken each of the two. Pins are a list of
// ours in the runtime's configuration, in the file that is read last; what others
// pin stays in it, since that file's list replaces theirs. Whether an image is
// pinned is what CRI says.
//
// Of a runtime that is not CRI-O no process is signalled: it must see by itself
// that its configuration changed, or the load fails and says so.
//
// Inputs: images with their blobs, the runtime's socket. Outputs: the runtime's
// store, two files in its configuration. Callers: pin/agent, the agent's
// installation.
package crio
