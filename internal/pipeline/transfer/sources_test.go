package transfer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The stick is in a node of one kind. A node of another kind wants chunks that the first
// stores nowhere: it gets them from the node with the stick, or through nodes of its kind.
func TestEveryKindIsReachedFromTheMedium(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kindsOf := rapid.SliceOfN(rapid.SampledFrom([]string{"worker amd64", "worker arm64", "control plane amd64"}), 1, 150).Draw(t, "kinds")
		zones := rapid.IntRange(1, 3).Draw(t, "zones")
		places := make([]Places, len(kindsOf))
		for i, k := range kindsOf {
			places[i] = PlacesIn(k, fmt.Sprint(i%zones), fmt.Sprintf("n%03d", i))
		}
		sources := []int32{int32(rapid.IntRange(0, len(kindsOf)-1).Draw(t, "the node with the stick"))}
		links := Links(places)
		LinkSources(links, kindsOf, sources)
		for i, peers := range links {
			limit := MaxPeers + 1
			if int32(i) == sources[0] {
				limit = MaxSourcePeers
			}
			if len(peers) > limit || !slices.IsSorted(peers) || slices.Contains(peers, int32(i)) || len(slices.Compact(slices.Clone(peers))) != len(peers) {
				t.Fatalf("node %d has the peers %v", i, peers)
			}
			for _, j := range peers {
				if !slices.Contains(links[j], int32(i)) {
					t.Fatalf("%d knows %d but not the other way round", i, j)
				}
			}
		}
		for _, kind := range kindsOf {
			reached := map[int32]bool{sources[0]: true}
			for todo := []int32{sources[0]}; len(todo) > 0; todo = todo[1:] {
				for _, j := range links[todo[0]] {
					if !reached[j] && kindsOf[j] == kind { // nodes of other kinds do not store it
						reached[j] = true
						todo = append(todo, j)
					}
				}
			}
			for i, k := range kindsOf {
				if k == kind && !reached[int32(i)] {
					t.Fatalf("node %d (%s) gets nothing from the stick in node %d", i, k, sources[0])
				}
			}
		}
	})
}

// Nodes of one kind get no further links; the only control-plane node of a large cluster does.
func TestSourcesOfOneKindNeedNoMoreLinks(t *testing.T) {
	var places []Places
	var kinds []string
	for i := range 50 {
		places, kinds = append(places, PlacesIn("worker", "", fmt.Sprint("n", i))), append(kinds, "worker")
	}
	links := Links(places)
	before := fmt.Sprint(links)
	LinkSources(links, kinds, []int32{3})
	if fmt.Sprint(links) != before {
		t.Error("links were added among nodes of one kind")
	}
	places, kinds = append(places, PlacesIn("control plane", "", "z")), append(kinds, "control plane")
	links = Links(places)
	far := slices.IndexFunc(links, func(peers []int32) bool { return !slices.Contains(peers, 50) })
	LinkSources(links, kinds, []int32{int32(far)})
	if !slices.Contains(links[far], 50) || !slices.Contains(links[50], int32(far)) {
		t.Error("the node with the stick is not a peer of the control-plane node")
	}
}
