// Package registry asks image registries what is behind a tag.
//
// Promise: polite and honest. A Poller asks with HEAD and the last ETag, reads a
// manifest only of an image that was not known, lists a repository once for all
// who follow it, and leaves a registry alone that is away or has said to wait.
// That it is away, limits, denies, or has no such tag or repository are told
// apart (Failure.Kind). What is read by a digest is compared with it. The whole
// list of manifest types is accepted, so that an index is never taken for one of
// its platforms. Credentials are those of a pull secret, are sent to the registry
// they are for, and appear in no error.
//
// A listing has a total. Where registries come from objects, pass a transport of
// internal/outbound.
//
// Inputs: repositories, tags, a clock. Outputs: digests, lists of tags, what an
// image says of itself. Callers: internal/controller/imagetracks, internal/cli/tagscmd.
package registry
