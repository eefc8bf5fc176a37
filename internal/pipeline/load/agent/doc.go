// Package agent is the node half of load: it reads media, vets what is on them,
// keeps headers and blobs of approved bundles, and copies from a medium.
//
// Promise: of what is not approved only the header is read, and nothing is
// kept. A medium that vanishes, is torn or is swapped is reported; what was
// copied stays and the rest comes from elsewhere. Peers are served approved
// bundles only.
//
// Inputs: media, approved digests, model.Trust. Outputs: a Library of shelves
// (header + blobs), Findings for the node's status. Callers: the agent's
// wiring; distribute/agent and exchange use Shelf and Library through
// interfaces of their own.
package agent
