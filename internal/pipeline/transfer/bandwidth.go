package transfer

// Bandwidth is what nodes may use of their networks to pass chunks on, in bytes a
// second each way; 0 is no limit.
type Bandwidth struct {
	// Node limits every node by itself.
	Node int64
	// Site limits all nodes of the cluster together.
	Site int64
}

// LeastBandwidth is what a node is left in any case, in bytes a second: with less, chunks
// would miss the deadline of a peer.
const LeastBandwidth = 128 << 10

// Share is what one of so many nodes may use, 0 for no limit. The site's limit is divided
// evenly, so that the sum never exceeds it. From a hundred nodes on, the divisor is
// rounded up to two digits, so that one node more or less seldom changes the desired state
// of all.
func (b Bandwidth) Share(nodes int) int64 {
	share := max(b.Node, 0)
	if b.Site > 0 {
		unit := 1
		for nodes/unit >= 100 {
			unit *= 10
		}
		site := b.Site / int64(max((nodes+unit-1)/unit*unit, 1))
		if share == 0 || site < share {
			share = site
		}
	}
	if share > 0 || b.Site > 0 {
		share = max(share, LeastBandwidth)
	}
	return share
}
