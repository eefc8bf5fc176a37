package transfer

import (
	"bytes"
	"crypto/sha256"
)

// Candidate is a node that may fetch a bundle from a registry.
type Candidate struct {
	Node string
	// Fetches: it is this node's task now.
	Fetches bool
	// Failed reports that it cannot, or that its agent is silent. It is asked only where it
	// matters, because a large cluster has many nodes.
	Failed func() bool
}

// PickFetcher returns which node fetches a bundle, -1 if there is none. The one that fetches
// goes on unless it failed. Then another takes over that has not failed; which one depends on
// the names alone, so that different bundles come by different nodes. If all have failed, the
// task stays where it is.
func PickFetcher(bundle string, nodes []Candidate) int {
	current := lowest(bundle, nodes, func(c Candidate) bool { return c.Fetches })
	if current >= 0 && !nodes[current].Failed() {
		return current
	}
	if next := lowest(bundle, nodes, func(c Candidate) bool { return !c.Failed() }); next >= 0 {
		return next
	}
	if current >= 0 {
		return current
	}
	return lowest(bundle, nodes, func(Candidate) bool { return true })
}

// lowest is the node with the lowest hash among those that ok accepts.
func lowest(bundle string, nodes []Candidate, ok func(Candidate) bool) int {
	at := -1
	var least [sha256.Size]byte
	for i, n := range nodes {
		if !ok(n) {
			continue
		}
		if sum := sha256.Sum256([]byte(bundle + " " + n.Node)); at < 0 || bytes.Compare(sum[:], least[:]) < 0 {
			at, least = i, sum
		}
	}
	return at
}
