// Package bundlefiles fetches headers and files of bundles for the controller, from the
// nodes that store them: cluster resources, boot images, manifests.
//
// Promise: every header and file has the digest that was requested, no matter which node
// sent it. Headers.Get never waits: fetches run in the background, one per digest, and
// Changed gets an event when one ends; only the digests of Keep are cached. Files are
// small and the caller bounds them. Stream reads a blob of any size and verifies nothing: its
// caller compares the digest. ErrNotYet means that the header is not known yet; nil
// means that the bundle has no such file. Only addresses of the node itself are dialed.
//
// Inputs: the controller's identity, digests, names of payloads, the agents that report
// the bundle. Outputs: headers, files and metadata of the bundle. Callers: the
// reconcilers.
package bundlefiles
