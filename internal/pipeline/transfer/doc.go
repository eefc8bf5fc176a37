// Package transfer decides how a bundle spreads from the node that has the medium to all
// others: which nodes are peers, and which chunk a node requests from which peer next. It
// is pure.
//
// Promise: the graph of peers is connected, no node has more than MaxPeers, and adding or
// removing one node changes the peers of few others. Nodes of a kind want the same chunks: they
// are connected among themselves. A node with a medium has peers of every kind (LinkSources),
// because other nodes may not store what a kind wants. The chunk that the fewest peers have is
// fetched first, ties by lot, so that every chunk soon has several copies.
//
// One node fetches a bundle from a registry (PickFetcher), and another only after it failed.
//
// Inputs: node names; bitmaps. Outputs: peers; a chunk number. Callers: the controller
// (Peers -> spec.peers, PickFetcher -> spec.bundles), agent/peertransfer (Pick). The protocol is in internal/peerapi.
package transfer
