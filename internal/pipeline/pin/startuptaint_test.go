package pin

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDecideTaint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    TaintFacts
		want TaintAction
	}{
		"a new node of a pool that asks is kept out":                  {TaintFacts{PoolAsks: true, New: true}, AddTaint},
		"a new node of a pool that does not ask is left alone":        {TaintFacts{New: true}, LeaveTaint},
		"an old node of a pool that begins to ask is left alone":      {TaintFacts{PoolAsks: true}, LeaveTaint},
		"a kept out node waits":                                       {TaintFacts{PoolAsks: true, Tainted: true, ByPool: true, Key: "k"}, LeaveTaint},
		"it is let in when it has proven what it holds":               {TaintFacts{PoolAsks: true, Tainted: true, ByPool: true, Key: "k", ImagesReady: true}, AdmitNode},
		"a node that registered with the taint waits, in no pool too": {TaintFacts{Tainted: true, Key: "k"}, LeaveTaint},
		"and is let in": {TaintFacts{Tainted: true, Key: "k", ImagesReady: true}, AdmitNode},
		"a pool that no longer asks removes the taint that it added":  {TaintFacts{Tainted: true, ByPool: true}, DropTaint},
		"a node of which nothing is asked is let in without an agent": {TaintFacts{Tainted: true, ImagesReady: true}, AdmitNode},
		"the key of a node that holds all is noted":                   {TaintFacts{PoolAsks: true, ImagesReady: true, Key: "k"}, RecordKey},
		"once": {TaintFacts{PoolAsks: true, ImagesReady: true, Key: "k", AdmittedKey: "k"}, LeaveTaint},
		"an admitted node that misses an image for a while stays":           {TaintFacts{PoolAsks: true, Key: "k", AdmittedKey: "k"}, LeaveTaint},
		"also if it is seen for the first time again":                       {TaintFacts{PoolAsks: true, New: true, Key: "k", AdmittedKey: "k"}, LeaveTaint},
		"a node with another store is kept out again":                       {TaintFacts{PoolAsks: true, Key: "new", AdmittedKey: "k"}, AddTaintAgain},
		"but not one with another key that holds all":                       {TaintFacts{PoolAsks: true, ImagesReady: true, Key: "new", AdmittedKey: "k"}, RecordKey},
		"but not in a pool that does not ask":                               {TaintFacts{Key: "new", AdmittedKey: "k"}, LeaveTaint},
		"but not one that was let in before it had an agent":                {TaintFacts{PoolAsks: true, Key: "k", AdmittedKey: NoAgentKey}, LeaveTaint},
		"a node whose agent has been silent since the boot keeps its state": {TaintFacts{PoolAsks: true, AdmittedKey: "k"}, LeaveTaint},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := DecideTaint(c.f); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Over all facts: a node is admitted only if it has proven its images or if no pool asks.
// A node at work is not tainted for a missing image. After one action, no action is left.
func TestDecideTaintConverges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		keys := rapid.SampledFrom([]string{"", "a", "b"})
		f := TaintFacts{Tainted: flag("tainted"), ByPool: flag("by pool"), PoolAsks: flag("asks"), New: flag("first"), ImagesReady: flag("held"),
			Key: keys.Draw(t, "key"), AdmittedKey: rapid.SampledFrom([]string{"", "a", "b", NoAgentKey}).Draw(t, "admitted")}
		did := DecideTaint(f)
		switch did {
		case AdmitNode:
			if !f.ImagesReady || !f.Tainted {
				t.Fatalf("let in: %+v", f)
			}
			f.Tainted, f.AdmittedKey = false, f.KeyToRecord()
		case DropTaint:
			if f.PoolAsks || !f.ByPool {
				t.Fatalf("dropped: %+v", f)
			}
			f.Tainted = false
		case RecordKey:
			f.AdmittedKey = f.KeyToRecord()
		case AddTaint, AddTaintAgain:
			if !f.PoolAsks || f.ImagesReady || f.Key == f.AdmittedKey && f.Key != "" {
				t.Fatalf("kept out: %+v", f)
			}
			f.Tainted, f.ByPool = true, true
		}
		if next := DecideTaint(f); next != LeaveTaint {
			t.Fatalf("after %q comes %q: %+v", did, next, f)
		}
	})
}
