// Package bundlestore is the node half of load: it reads media, vets what is on them,
// keeps headers and blobs of approved bundles, and copies from a medium.
//
// Promise: of what is not approved only the header is read, and nothing is
// kept. It is parsed by a process without rights (host/unprivileged), which answers
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
// Inputs: media, approved digests, model.Trust. Outputs: a Library of shelves
// (header + blobs), Findings for the node's status. Callers: the agent's
// wiring; distribute/agent and exchange use Shelf and Library through
// interfaces of their own.
package bundlestore
