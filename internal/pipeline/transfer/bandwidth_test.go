package transfer

import (
	"testing"

	"pgregory.net/rapid"
)

func TestShare(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		b     Bandwidth
		nodes int
		want  int64
	}{
		"no limit":                              {Bandwidth{}, 8, 0},
		"each node alone":                       {Bandwidth{Node: 5 * mib}, 8, 5 * mib},
		"the site's is divided":                 {Bandwidth{Site: 80 * mib}, 8, 10 * mib},
		"the smaller one counts":                {Bandwidth{Node: 5 * mib, Site: 80 * mib}, 8, 5 * mib},
		"the smaller one counts, the other way": {Bandwidth{Node: 20 * mib, Site: 80 * mib}, 8, 10 * mib},
		"no node yet":                           {Bandwidth{Site: 80 * mib}, 0, 80 * mib},
		"enough for a chunk in any case":        {Bandwidth{Site: 1}, 1000, LeastBandwidth},
		"one node more among many changes none": {Bandwidth{Site: 1200 * mib}, 1101, mib},
	} {
		if got := c.b.Share(c.nodes); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// All together keep the site's limit, unless it is less than each must have.
func TestSharesKeepTheSitesLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 40000).Draw(t, "nodes")
		b := Bandwidth{Node: rapid.Int64Range(0, 1<<30).Draw(t, "node"), Site: rapid.Int64Range(1, 1<<40).Draw(t, "site")}
		share := b.Share(nodes)
		if share > LeastBandwidth && (share*int64(nodes) > b.Site || b.Node > 0 && share > b.Node) {
			t.Fatalf("%d nodes with %d each: more than %+v", nodes, share, b)
		}
		if share < LeastBandwidth {
			t.Fatalf("a node is left %d", share)
		}
	})
}
