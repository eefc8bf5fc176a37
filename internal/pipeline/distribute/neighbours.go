package distribute

import (
	"crypto/sha256"
	"encoding/binary"
	"sort"
)

// rings is how many independent orders of the nodes are laid over each other.
// Each gives a node two neighbours and by itself connects all; three of them
// make the way between any two nodes short (about log n steps).
const rings = 3

// MaxNeighbours is the most neighbours a node has.
const MaxNeighbours = 2 * rings

// Neighbours says for every node with whom it exchanges chunks. The relation
// goes both ways, every node is reachable from every other, and the names are
// sorted. Names given twice count once.
//
// Every ring orders the nodes by a hash of their name, so a node that comes or
// goes changes the neighbours of at most two others in each ring.
func Neighbours(nodes []string) map[string][]string {
	links := make(map[string]map[string]bool, len(nodes))
	for _, n := range nodes {
		links[n] = map[string]bool{}
	}
	names := make([]string, 0, len(links))
	for n := range links {
		names = append(names, n)
	}
	for r := range rings {
		order(names, byte(r))
		for i, n := range names {
			if next := names[(i+1)%len(names)]; next != n {
				links[n][next] = true
				links[next][n] = true
			}
		}
	}
	out := make(map[string][]string, len(links))
	for n, l := range links {
		peers := make([]string, 0, len(l))
		for p := range l {
			peers = append(peers, p)
		}
		sort.Strings(peers)
		out[n] = peers
	}
	return out
}

// order sorts names by their place in a ring.
func order(names []string, ring byte) {
	place := make(map[string]uint64, len(names))
	for _, n := range names {
		sum := sha256.Sum256(append([]byte{ring}, n...))
		place[n] = binary.BigEndian.Uint64(sum[:])
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := place[names[i]], place[names[j]]
		return a < b || a == b && names[i] < names[j]
	})
}
