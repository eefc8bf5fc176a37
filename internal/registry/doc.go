// Package registry asks image registries what is behind a tag.
//
// Promise: a Poller uses HEAD and the last ETag, reads a manifest only of an unknown
// image, and lists a repository once for all tracks. It does not call a registry that is
// unreachable or has asked to wait. Failure.Kind is unreachable, rate limited,
// unauthorized, or a missing tag or repository. Content read by a digest is verified. The
// whole list of manifest types is accepted, so that an index is never mistaken for one of
// its platforms. Credentials come from a pull secret, go only to their registry, and
// appear in no error.
//
// Signatures reads what is attached to an image, within limits; imageproof verifies it.
//
// OpenPart reads a range of a blob without comparing it: the caller has digests of smaller parts.
//
// A listing has a total. Where registries come from objects, pass a transport of
// internal/outbound.
//
// Inputs: repositories, tags, a clock. Outputs: digests, lists of tags, what an
// image says of itself. Callers: internal/controller/imagetracks, internal/cli/tagscmd,
// internal/cli/bundlecmd, internal/agent/peertransfer.
package registry
