package transfer

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestPickFetcher(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Candidate
		working, fetching := 0, 0
		for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
			fetches, failed := rapid.Bool().Draw(t, "fetches"), rapid.Bool().Draw(t, "failed")
			nodes = append(nodes, Candidate{Node: fmt.Sprint("n", i), Fetches: fetches, Failed: func() bool { return failed }})
			if !failed {
				working++
			}
			if fetches {
				fetching++
			}
		}
		got := PickFetcher("sha256:a", nodes)
		switch {
		case (got < 0) != (len(nodes) == 0):
			t.Fatalf("%d of %d nodes", got, len(nodes))
		case got < 0:
			return
		case working > 0 && nodes[got].Failed():
			t.Fatalf("%s failed, and another node works", nodes[got].Node)
		case working == 0 && fetching > 0 && !nodes[got].Fetches:
			t.Fatal("the task moves although all nodes failed")
		}
		// The node that was picked stays, and the order of the list does not matter.
		for i := range nodes {
			nodes[i].Fetches = i == got
		}
		picked := nodes[got].Node
		for i, j := 0, len(nodes)-1; i < j; i, j = i+1, j-1 {
			nodes[i], nodes[j] = nodes[j], nodes[i]
		}
		if again := nodes[PickFetcher("sha256:a", nodes)].Node; again != picked {
			t.Fatalf("%s, then %s", picked, again)
		}
	})
}

// One node after another is tried, each once, while the registry answers none of them.
func TestPickFetcherTriesEveryNode(t *testing.T) {
	t.Parallel()
	const count = 5
	failed := map[string]bool{}
	nodes := make([]Candidate, count)
	for i := range nodes {
		name := fmt.Sprint("n", i)
		nodes[i] = Candidate{Node: name, Failed: func() bool { return failed[name] }}
	}
	for range count {
		i := PickFetcher("sha256:b", nodes)
		if failed[nodes[i].Node] {
			t.Fatalf("%s again, after %v", nodes[i].Node, failed)
		}
		for k := range nodes {
			nodes[k].Fetches = k == i
		}
		failed[nodes[i].Node] = true
	}
}
