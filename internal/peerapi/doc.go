// Package peerapi is the protocol between nodes. Both sides authenticate with a key of
// their own over TLS 1.3. Requests are for a header, a bitmap or a chunk; unapproved
// bundles are never served. The controller alone may read an agent's log.
//
// Promise: a peer is accepted by its public key alone, not by a name, an address or a
// date (a node's clock may be wrong). The package does not verify content; the caller
// compares it with the bundle's digest or chunk table before use.
//
// One peer cannot starve the others. Slots, news streams and connections are counted by
// key, and connections by address before the key is known. A peer that does not read loses
// its connection.
//
// Inputs: Identity (key), Library (approved bundles of this node), Peer (address
// and key). Outputs: an http.Handler, a Client. Callers: agent/peertransfer, the
// agent's wiring (server), the controller (client: NewClient, Client.Header).
//
//	id, err := peerapi.NewIdentity(key)
//	c := peerapi.NewClient(id, peerapi.Peer{Name: "n2", Address: "10.0.0.2:18740", PublicKey: "MCowBQ..."})
//	raw, err := c.Header(ctx, "sha256:...")
package peerapi
