// Package peerapi is the wire between nodes: who may speak (a key of one's
// own, TLS 1.3, both sides checked), what is asked (header, bitmap, chunk), and
// what is never served (anything that is not approved).
//
// Promise: a peer is accepted by its public key alone, not by a name, an
// address or a date (a node's clock may be wrong). What arrives is not
// verified here; whoever asked compares it with the bundle's digest or chunk
// table before it is used.
//
// One peer cannot starve the others: slots, talks and connections are counted by key,
// connections by address before the key is known, and a peer that does not read loses
// its connection.
//
// Inputs: Identity (key), Library (approved bundles of this node), Peer (address
// and key). Outputs: an http.Handler, a Client. Callers: distribute/agent, the
// agent's wiring (server), the controller (client: NewClient, Client.Header).
//
//	id, err := exchange.NewIdentity(key)
//	c := exchange.NewClient(id, exchange.Peer{Name: "n2", Address: "10.0.0.2:18740", PublicKey: "MCowBQ..."})
//	raw, err := c.Header(ctx, "sha256:...")
package peerapi
