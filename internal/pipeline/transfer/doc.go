// Package transfer decides how a bundle spreads from the node that has the
// medium to all others: who is whose neighbour, and which chunk a node asks
// whom for next. It is pure.
//
// Promise: the neighbour graph is connected, no node has more than MaxNeighbours,
// and adding or removing one node changes the neighbours of few others. The
// chunk that the fewest neighbours have is fetched first, ties by lot, so that
// copies of every chunk come into being early.
//
// Inputs: node names; bitmaps. Outputs: neighbours; a chunk number. Callers:
// the controller (Neighbours -> spec.peers), distribute/agent (Pick). The wire
// is in distribute/exchange.
package transfer
