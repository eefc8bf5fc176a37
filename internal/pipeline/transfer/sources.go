package transfer

import "slices"

const (
	// maxSources are how many nodes with a medium get more peers.
	maxSources = 4
	// linksToKind are how many nodes of each other kind such a node is linked to.
	linksToKind = 2
	// MaxSourcePeers is the maximum number of peers of a node with a medium.
	MaxSourcePeers = 15
)

// LinkSources adds links to those of Links: each source, a node with a medium, gets peers of
// every kind but its own. It may store only what its own kind wants. The rest it sends
// straight from the medium, and by chance it may have no peer of another kind. kinds has the kind of each node, sources the indices of nodes in
// ascending order.
func LinkSources(links [][]int32, kinds []string, sources []int32) {
	members := map[string][]int32{}
	for i, k := range kinds {
		members[k] = append(members[k], int32(i))
	}
	if len(members) < 2 {
		return
	}
	names := make([]string, 0, len(members))
	for k := range members {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, s := range sources[:min(len(sources), maxSources)] {
		for _, k := range names {
			if k != kinds[s] {
				linkToKind(links, s, members[k])
			}
		}
	}
}

// linkToKind links a source with the nodes that follow it among the members of a kind.
func linkToKind(links [][]int32, source int32, members []int32) {
	at, _ := slices.BinarySearch(members, source)
	for i := range min(linksToKind, len(members)) {
		m := members[(at+i)%len(members)]
		if len(links[source]) >= MaxSourcePeers {
			return
		}
		link(links, source, m)
		link(links, m, source)
	}
}

// link adds b to the peers of a, which stay sorted.
func link(links [][]int32, a, b int32) {
	if at, there := slices.BinarySearch(links[a], b); !there {
		links[a] = slices.Insert(links[a], at, b)
	}
}
