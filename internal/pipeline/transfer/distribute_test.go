package transfer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func reach(g map[string][]string, from string) int {
	seen, todo := map[string]bool{from: true}, []string{from}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		for _, p := range g[n] {
			if !seen[p] {
				seen[p] = true
				todo = append(todo, p)
			}
		}
	}
	return len(seen)
}

// The USB stick is in one node, and all others get the bundle.
func TestPeers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "nodes")
		prefix := rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "prefix")
		var nodes []string
		for i := range n {
			nodes = append(nodes, fmt.Sprintf("%s%d", prefix, i))
		}
		g := Peers(nodes)
		for a, peers := range g {
			if len(peers) > MaxPeers || slices.Contains(peers, a) || !slices.IsSorted(peers) {
				t.Fatalf("%s has the peers %v", a, peers)
			}
			for _, b := range peers {
				if !slices.Contains(g[b], a) {
					t.Fatalf("%s knows %s but not the other way round", a, b)
				}
			}
		}
		if got := reach(g, nodes[0]); got != n {
			t.Fatalf("from %s only %d of %d nodes are reached", nodes[0], got, n)
		}
		shuffled := rapid.Permutation(nodes).Draw(t, "shuffled")
		for a, peers := range Peers(shuffled) {
			if !slices.Equal(peers, g[a]) {
				t.Fatal("the order of the input changes the answer")
			}
		}
		changed := 0
		for a, peers := range Peers(append(nodes, "one-more")) {
			if a != "one-more" && !slices.Equal(peers, g[a]) {
				changed++
			}
		}
		if changed > MaxPeers {
			t.Fatalf("one more node changed the peers of %d others", changed)
		}
	})
}

func TestPeersAreNear(t *testing.T) {
	var nodes []string
	for i := range 3000 {
		nodes = append(nodes, fmt.Sprint("node-", i))
	}
	g := Peers(nodes)
	dist, todo := map[string]int{nodes[0]: 0}, []string{nodes[0]}
	far := 0
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		for _, p := range g[n] {
			if _, ok := dist[p]; !ok {
				dist[p] = dist[n] + 1
				far = max(far, dist[p])
				todo = append(todo, p)
			}
		}
	}
	if far > 10 {
		t.Fatalf("among 3000 nodes one is %d steps away; a ring alone would need 1500, the limit here is 10", far)
	}
}

// Most peers are in the same zone, and all zones are reached from each other.
func TestPeersAreInTheirZone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.IntRange(1, 4).Draw(t, "zones")
		each := rapid.IntRange(20, 60).Draw(t, "nodes of a zone")
		var places []Places
		var in []int
		for z := range zones {
			for i := range each {
				places = append(places, PlacesIn("", fmt.Sprint("zone-", z), fmt.Sprintf("n%d-%d", z, i)))
				in = append(in, z)
			}
		}
		g := map[string][]string{}
		home, all := 0, 0
		for i, links := range Links(places) {
			if len(links) > MaxPeers {
				t.Fatalf("%d peers", len(links))
			}
			g[fmt.Sprint(i)] = nil
			for _, j := range links {
				g[fmt.Sprint(i)] = append(g[fmt.Sprint(i)], fmt.Sprint(j))
				all++
				if in[i] == in[j] {
					home++
				}
			}
		}
		if home*10 < all*6 {
			t.Fatalf("of %d links %d are within a zone", all, home)
		}
		if got := reach(g, "0"); got != len(places) {
			t.Fatalf("%d of %d nodes are reached", got, len(places))
		}
	})
}

func bits(n int, set ...int) Bitmap {
	b := NewBitmap(n)
	for _, s := range set {
		b.Set(s)
	}
	return b
}

func TestPick(t *testing.T) {
	first := func(int) int { return 1 } // never replace: the first of equals
	for name, c := range map[string]struct {
		missing  []int
		underWay map[int]int
		theirs   Bitmap
		others   []Bitmap
		first    map[int]int
		offers   []int
		want     int
	}{
		"the peer has nothing that is missing":                       {missing: []int{1, 2}, theirs: bits(9, 0, 3), want: -1},
		"the rarest chunk comes first":                               {missing: []int{0, 1, 8}, theirs: bits(9, 0, 1, 8), others: []Bitmap{bits(9, 0, 1), bits(9, 0)}, want: 8},
		"what is under way waits":                                    {missing: []int{0, 1}, underWay: map[int]int{0: 1}, theirs: bits(9, 0, 1), others: []Bitmap{bits(9, 1)}, want: 1},
		"at the end what is under way is asked for too":              {missing: []int{0}, underWay: map[int]int{0: 1}, theirs: bits(9, 0), want: 0},
		"what may not be asked for twice is not":                     {missing: []int{0}, underWay: map[int]int{0: -1}, theirs: bits(9, 0), want: -1},
		"a bitmap that is too short means not there":                 {missing: []int{8}, theirs: Bitmap{0xff}, want: -1},
		"a chunk that is needed now comes before the rarest":         {missing: []int{0, 1, 2}, theirs: bits(9, 0, 1, 2), others: []Bitmap{bits(9, 1, 2)}, first: map[int]int{2: 0, 1: 1}, want: 2},
		"what is needed now and under way is not doubled":            {missing: []int{0, 1, 2}, underWay: map[int]int{2: 1}, theirs: bits(9, 0, 1, 2), first: map[int]int{2: 0}, want: 0},
		"of equally rare ones that which is offered":                 {missing: []int{0, 1, 2}, theirs: bits(9, 0, 1, 2), offers: []int{2}, want: 2},
		"an offer of what others have too is no reason":              {missing: []int{0, 1, 2}, theirs: bits(9, 0, 1, 2), others: []Bitmap{bits(9, 2)}, offers: []int{2}, want: 0},
		"an offer of a chunk that the peer does not have is ignored": {missing: []int{0, 3}, theirs: bits(9, 0), offers: []int{3}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := Question{Missing: c.missing, Theirs: c.theirs, First: c.first, Offers: c.offers, Lot: first,
				Waits: func(n int) int { return c.underWay[n] },
				Holders: func(n int) (sum int) {
					for _, b := range append(c.others, c.theirs) {
						if b.Has(n) {
							sum++
						}
					}
					return sum
				}}
			if got := Pick(q); got != c.want {
				t.Fatalf("got %d, want %d", got, c.want)
			}
		})
	}
}
