package startuptaint

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    Facts
		want Action
	}{
		"a new node of a pool that asks is kept out":                  {Facts{Asks: true, First: true}, KeepOut},
		"a new node of a pool that does not ask is left alone":        {Facts{First: true}, Leave},
		"an old node of a pool that begins to ask is left alone":      {Facts{Asks: true}, Leave},
		"a kept out node waits":                                       {Facts{Asks: true, Tainted: true, ByPool: true, Key: "k"}, Leave},
		"it is let in when it has proven what it holds":               {Facts{Asks: true, Tainted: true, ByPool: true, Key: "k", Held: true}, LetIn},
		"a node that registered with the taint waits, in no pool too": {Facts{Tainted: true, Key: "k"}, Leave},
		"and is let in": {Facts{Tainted: true, Key: "k", Held: true}, LetIn},
		"a pool that asks no more takes back what it put there":       {Facts{Tainted: true, ByPool: true}, Drop},
		"a node of which nothing is asked is let in without an agent": {Facts{Tainted: true, Held: true}, LetIn},
		"the key of a node that holds all is noted":                   {Facts{Asks: true, Held: true, Key: "k"}, Note},
		"once": {Facts{Asks: true, Held: true, Key: "k", Admitted: "k"}, Leave},
		"a node that was let in and lacks something for a while stays":     {Facts{Asks: true, Key: "k", Admitted: "k"}, Leave},
		"also if it is seen for the first time again":                      {Facts{Asks: true, First: true, Key: "k", Admitted: "k"}, Leave},
		"a node with another store is kept out again":                      {Facts{Asks: true, Key: "new", Admitted: "k"}, KeepOutAgain},
		"but not one with another key that holds all":                      {Facts{Asks: true, Held: true, Key: "new", Admitted: "k"}, Note},
		"but not in a pool that does not ask":                              {Facts{Key: "new", Admitted: "k"}, Leave},
		"but not one that was let in before it had an agent":               {Facts{Asks: true, Key: "k", Admitted: NoAgent}, Leave},
		"a node whose agent is silent since it booted is not judged by it": {Facts{Asks: true, Admitted: "k"}, Leave},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Decide(c.f); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Over all facts, no node is let in that has not proven what it holds, unless
// nobody asks; a node at work is not kept out for what it lacks; acted on once,
// nothing is left to do.
func TestDecideConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		keys := rapid.SampledFrom([]string{"", "a", "b"})
		f := Facts{Tainted: flag("tainted"), ByPool: flag("by pool"), Asks: flag("asks"), First: flag("first"), Held: flag("held"),
			Key: keys.Draw(t, "key"), Admitted: rapid.SampledFrom([]string{"", "a", "b", NoAgent}).Draw(t, "admitted")}
		did := Decide(f)
		switch did {
		case LetIn:
			if !f.Held || !f.Tainted {
				t.Fatalf("let in: %+v", f)
			}
			f.Tainted, f.Admitted = false, f.Noted()
		case Drop:
			if f.Asks || !f.ByPool {
				t.Fatalf("dropped: %+v", f)
			}
			f.Tainted = false
		case Note:
			f.Admitted = f.Noted()
		case KeepOut, KeepOutAgain:
			if !f.Asks || f.Held || f.Key == f.Admitted && f.Key != "" {
				t.Fatalf("kept out: %+v", f)
			}
			f.Tainted, f.ByPool = true, true
		}
		if next := Decide(f); next != Leave {
			t.Fatalf("after %q comes %q: %+v", did, next, f)
		}
	})
}
