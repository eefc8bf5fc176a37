// Package bundlestore is the node half of load: it reads media, vets what is on them,
// keeps headers and blobs of approved bundles, and copies from a medium.
//
// Promise: of what is not approved only the header is read, and nothing is
// kept. It is parsed by a process without rights (host/confined), which answers
// with a label of bounded size: digest, name, version, signatures. This process, which
// is root, decides from the label, and verifies signatures itself; it parses a whole
// header only after its digest was approved or signed, and compares that digest before
// it decodes anything. Headers from other nodes are compared with the wanted digest in
// the same way, so they need no such process. A device is read once until its key
// changes; each by a goroutine of its own, so that one that hangs is named and keeps
// nobody waiting. A medium that vanishes, is torn or is swapped is reported; what was
// copied stays and the rest comes from elsewhere. Peers are served approved
// bundles only.
//
// A BlobStore keeps content-addressed blobs, filled chunk by chunk from several sources
// at once. A blob under its final name is complete, synced, and had its digest when it
// was completed. A chunk is compared with its SHA-256 when it is written and when it is
// read. After a crash every chunk of a partial blob is compared again, so that intact
// chunks are not fetched twice. A complete blob that no longer matches is missing again.
//
// Inputs: media, approved digests, model.Trust. Outputs: a Library of shelves
// (header + blobs), Findings for the node's status. Callers: the agent's
// wiring, peertransfer, the updaters (payload files).
package bundlestore
