// Package peertransfer moves chunks of bundles between this node and its peers: Fetch
// gets the missing ones, Serve hands out what this node has, both within the bandwidth
// limit.
//
// Promise: the rarest chunk first; every chunk is compared with its digest before it
// counts; a bad, slow or unreachable peer costs only itself (it is put aside, longer
// each time); chunks that are here are never fetched again. Fetch ends when everything
// is here, when the context ends, or when this node's disk fails. Only served bundles
// are visible, and only to peers whose key is accepted at that moment. A port that
// another process holds is reported with the name of that process.
//
// Inputs: the library's shelves, missing chunks, peers, the node's identity, a limit.
// Outputs: chunks on the shelf, statistics, a running chunk server. Callers: the
// agent's wiring, bench.
package peertransfer
