// Package peertransfer moves chunks of bundles between this node and its peers: Fetch
// gets the missing ones, Serve hands out what this node has, both within the bandwidth
// limit.
//
// Promise: Fetch requests the rarest chunk first, and compares every chunk with its digest
// before it counts. A bad, slow or unreachable peer delays only its own requests: Fetch
// backs off from it, longer each time. It never fetches a chunk again that is here. It ends
// when everything is here, when the context ends, or when this node's disk fails. Only
// served bundles are visible, and only to peers whose key is accepted at that moment. If
// another process has the port, the error names that process.
//
// Inputs: the library's shelves, missing chunks, peers, the node's identity, a limit.
// Outputs: chunks on the shelf, statistics, a running chunk server. Callers: the
// agent's wiring, bench.
package peertransfer
