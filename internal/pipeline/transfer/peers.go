package transfer

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// rings is how many independent orders of the nodes are laid over each other. Each gives a
// node two peers and by itself connects all; three of them make the path between any two
// nodes short (about log n steps).
const rings = 3

// MaxPeers is the maximum number of peers of a node.
const MaxPeers = 2 * rings

// Places are where a name stands in each ring.
type Places [rings]uint64

// PlacesOf a name: a hash, so that a node that comes or goes changes the peers of at most
// two others in each ring.
func PlacesOf(name string) Places {
	var out Places
	for r := range out {
		sum := sha256.Sum256(append([]byte{byte(r)}, name...))
		out[r] = binary.BigEndian.Uint64(sum[:])
	}
	return out
}

// groupRings are the rings in which the nodes of a kind stand together, and in it those of a
// zone: there only two of them are linked to others. The last ring mixes all.
const groupRings = rings - 1

// PlacesIn are the places of a node of a kind in a zone. Nodes of a kind want the same chunks,
// so chunks that only they want reach each of them through the others. Most peers of a node
// are in its zone: traffic between zones is slower and may cost. "" is no zone.
func PlacesIn(kind, zone, name string) Places {
	out := PlacesOf(name)
	for r := range groupRings {
		out[r] = uint64(shortHash(r, 0xfe, kind))<<48 | uint64(shortHash(r, 0xff, zone))<<32 | out[r]>>32
	}
	return out
}

func shortHash(ring int, what byte, text string) uint16 {
	sum := sha256.Sum256(append([]byte{byte(ring), what}, text...))
	return binary.BigEndian.Uint16(sum[:])
}

// Peers returns for every node the nodes with which it exchanges chunks. The relation goes
// both ways, every node is reachable from every other, and the names are sorted. Names
// given twice count once.
func Peers(nodes []string) map[string][]string {
	names := slices.Clone(nodes)
	slices.Sort(names)
	names = slices.Compact(names)
	places := make([]Places, len(names))
	for i, n := range names {
		places[i] = PlacesOf(n)
	}
	out := make(map[string][]string, len(names))
	for i, links := range Links(places) {
		peers := make([]string, 0, len(links))
		for _, j := range links {
			peers = append(peers, names[j])
		}
		out[names[i]] = peers
	}
	return out
}

// Links is Peers for a caller that keeps the places of thirty thousand names: the places
// of nodes sorted by name in, the indices of every node's peers out.
func Links(places []Places) [][]int32 {
	n := len(places)
	store := make([]int32, n*MaxPeers)
	out := make([][]int32, n)
	for i := range out {
		out[i] = store[i*MaxPeers : i*MaxPeers : (i+1)*MaxPeers]
	}
	link := func(a, b int32) {
		if !slices.Contains(out[a], b) {
			out[a] = append(out[a], b)
		}
	}
	order := make([]int32, n)
	for r := range rings {
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(places[a][r], places[b][r]), cmp.Compare(a, b)) })
		for k, i := range order {
			if next := order[(k+1)%n]; next != i {
				link(i, next)
				link(next, i)
			}
		}
	}
	for i := range out {
		slices.Sort(out[i])
	}
	return out
}
