// Package peertransfer moves chunks of bundles between this node, its peers and registries: Fetch
// gets the missing ones, Serve hands out what this node has, both within the bandwidth
// limit. A Registry is a peer that has all chunks.
//
// Promise: Fetch requests the rarest chunk first, and compares every chunk with its digest
// before it counts. A bad, slow or unreachable peer delays only its own requests: Fetch
// backs off from it, longer each time. It never fetches a chunk again that is here. It ends
// when everything is here, when the context ends, or when this node's disk fails. Only
// served bundles are visible, and only to peers whose key is accepted at that moment. A node
// that fetches from a registry sends its peers also what it does not store itself. A registry
// that fails is asked less and less often, and not at all while it asks to wait; wrong content
// is named. If another process has the port, the error names that process.
//
// Inputs: the library's shelves, missing chunks, peers, places in registries, the node's identity,
// a limit. Outputs: chunks on the shelf, statistics, a running chunk server. Callers: the
// agent's wiring, bench.
package peertransfer
