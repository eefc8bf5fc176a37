package interlocks

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func held(by string) map[string]string {
	a, _ := hold(nil, by, wants(""))
	return a
}

// Which objects are held, and which are restored.
func TestDecide(t *testing.T) {
	on := map[string]bool{"u1": true}
	long, soon := noon.Add(50*time.Minute), noon.Add(10*time.Minute)
	cases := map[string]struct {
		in   Input
		want []string
	}{
		"nothing runs, nothing is held":          {Input{}, nil},
		"a marked node is held":                  {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1"}}}, []string{"hold Node n1"}},
		"one that is held already is left":       {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1", Annotations: held("u1")}}}, nil},
		"its Machine and NodePool go with it":    {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1", Annotations: held("u1"), Machine: "a/m1"}}}, []string{"hold Machine a/m1"}},
		"a mark that stands for long is left":    {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1", Annotations: held("u1"), Machine: "a/m1"}}, Machines: []Object{{Key: "a/m1", By: "u1", Until: long}}}, nil},
		"one that runs out soon is renewed":      {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1", Annotations: held("u1"), Machine: "a/m1"}}, Machines: []Object{{Key: "a/m1", By: "u1", Until: soon}}}, []string{"hold Machine a/m1"}},
		"a node whose mark is gone is restored":  {Input{Running: on, Nodes: []Node{{Name: "n1", Annotations: held("u1")}}, Machines: []Object{{Key: "a/m1", By: "u1", Until: long}}}, []string{"restore Node n1", "restore Machine a/m1"}},
		"an update that ended owns nothing":      {Input{Nodes: []Node{{Name: "n1", MarkedBy: "u1", Annotations: held("u1"), Machine: "a/m1"}}, Machines: []Object{{Key: "a/m1", By: "u1", Until: long}}}, []string{"restore Node n1", "restore Machine a/m1"}},
		"but a node that still runs its steps":   {Input{Nodes: []Node{{Name: "n1", MarkedBy: "u1", Busy: true, Annotations: held("u1"), Machine: "a/m1"}}, Machines: []Object{{Key: "a/m1", By: "u1", Until: long}}}, nil},
		"a NodePool is held with its first node": {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1", NodePool: "np", Annotations: map[string]string{v1alpha1.AnnotationInterlock: "{}"}}}}, []string{"hold Node n1", "hold NodePool np"}},
		"it stays held between two nodes":        {Input{Running: on, NodePools: []Object{{Key: "np", By: "u1"}}}, nil},
		"and is restored when the update ends":   {Input{NodePools: []Object{{Key: "np", By: "u1"}}}, []string{"restore NodePool np"}},
		"what another update held is taken over": {Input{Running: on, Nodes: []Node{{Name: "n1", MarkedBy: "u1", NodePool: "np", Annotations: held("u0")}}, NodePools: []Object{{Key: "np", By: "u0"}}}, []string{"hold Node n1", "hold NodePool np"}},
		"a person's own annotation is not ours":  {Input{Nodes: []Node{{Name: "n1", Annotations: map[string]string{scaleDownDisabled: "true"}}}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.in.Now = noon
			var got []string
			for _, a := range Decide(tc.in) {
				got = append(got, a.Verb+" "+a.Kind+" "+a.Key)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			without := Decide(tc.in)
			for i, n := range tc.in.Nodes {
				tc.in.Nodes[i].HeldBy = heldBy(n.Annotations, n.NodePool)
			}
			if diff := cmp.Diff(without, Decide(tc.in)); diff != "" {
				t.Errorf("what is known of a node beforehand decides something else: %s", diff)
			}
		})
	}
}

// With any values of a person on a node, and any changes while it is held: in
// the end his values are there, and nothing of ours.
func TestWhatAPersonSetIsNeverTouched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := map[string]string{}
		for _, key := range []string{scaleDownDisabled, doNotDisrupt, "other"} {
			if rapid.Bool().Draw(t, "has "+key) {
				before[key] = rapid.SampledFrom([]string{"true", "false", ""}).Draw(t, key)
			}
		}
		now := maps.Clone(before)
		want := maps.Clone(before)
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, fmt.Sprint("step ", i)) {
			case 0:
				now, _ = hold(now, rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "by"), wants("np"))
			case 1:
				now, _ = restore(now)
			case 2: // a person decides otherwise, for good
				key := rapid.SampledFrom([]string{scaleDownDisabled, doNotDisrupt}).Draw(t, "key")
				now = maps.Clone(now)
				now[key], want[key] = "never", "never"
			}
		}
		now, _ = restore(now)
		if diff := cmp.Diff(want, now); diff != "" {
			t.Fatalf("-a person's +what is left:\n%s", diff)
		}
	})
}

// Twice is once: what was decided and done leaves nothing to do.
func TestHoldingTwiceIsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, changed := hold(nil, "u1", wants(rapid.SampledFrom([]string{"", "np"}).Draw(t, "pool")))
		if !changed {
			t.Fatal("nothing is held")
		}
		if _, again := hold(a, "u1", wants("")); again {
			t.Fatal("what is held is held again")
		}
		b, _ := restore(a)
		if _, again := restore(b); again || len(b) > 0 {
			t.Fatalf("%v", b)
		}
	})
}
