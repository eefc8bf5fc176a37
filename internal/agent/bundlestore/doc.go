// Package bundlestore reads media, checks the bundles on them, stores headers and blobs of
// approved bundles, and copies from a medium. It is the node half of stage load.
//
// A bundle may be in parts, on one medium or several, plugged in at the same time or one after the
// other. The parts are joined where they are: chunks are copied and served from the parts that are
// there, and the status names those that are missing. Of a chunk in two parts the node keeps the
// bytes that it has (its edge), so that the parts need not meet. The part with the bundle's header
// comes first, or the header comes from a peer.
//
// A delta makes a bundle of its base: of blobs in the store, or on another medium. A process without
// privileges (host/confined) unpacks it and applies its patches; the agent compares each chunk that
// comes out before it stores it. The header of the bundle is parsed after its digest was allowed and
// compared, that of a base which is not allowed by that process only.
//
// Promise: of a bundle that is not approved only the header is read, and nothing is stored.
// A process without privileges (host/confined) parses it, and the partition tables and file
// systems around it; nothing is mounted. It answers with a label of bounded size for each
// bundle (digest, name, version, signatures) and with the places of the file on the medium.
// The agent, which runs as root, parses no file system: it reads those places. It decides
// from the label and verifies signatures itself. It parses a whole header only after its
// digest was approved or signed, and compares that digest before it decodes anything.
// Headers from other nodes are compared with the wanted digest in the same way, so they
// need no such process. A device is read once until its key changes, by a goroutine of its
// own: one that hangs is named and delays no other. A medium that vanishes, is damaged or is
// swapped is reported; copied chunks stay and the rest comes from elsewhere. So is a medium
// without a bundle that a person plugged in, with what was seen on it. Peers are served
// approved bundles only.
//
// A BlobStore keeps content-addressed blobs, filled chunk by chunk from several sources
// at once. A blob under its final name is complete, synced, and had its digest when it
// was completed. A chunk is compared with its SHA-256 when it is written and when it is
// read. After a crash every chunk of a partial blob is compared again, so that intact
// chunks are not fetched twice. A complete blob that no longer matches is missing again.
//
// Inputs: media, approved digests, model.Trust. Outputs: a Library of shelves
// (header + blobs), findings for the node's status. Callers: the agent's
// wiring, peertransfer, the updaters (payload files).
//
// Size: whole bundles, deltas and those in parts share how media are read, opened, compared and described;
// apart they would share the unexported state of a medium.
package bundlestore
