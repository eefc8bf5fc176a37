package pin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/model"
)

// Done only if nothing at all is left: counts never make up for each other.
func TestDone(t *testing.T) {
	t.Parallel()
	one := []model.PinSetImage{{Name: "a:1"}}
	for name, tc := range map[string]struct {
		d    Decision
		done bool
	}{
		"nothing":                    {Decision{Loaded: 3, Unpin: []string{"x"}}, true},
		"one to load":                {Decision{Load: one}, false},
		"one to pin":                 {Decision{Pin: one}, false},
		"one to release":             {Decision{Release: []string{"a"}}, false},
		"one to load and one to pin": {Decision{Load: one, Pin: one}, false},
		"one of each":                {Decision{Load: one, Pin: one, Release: []string{"a"}}, false},
		"one to pin, one to release": {Decision{Pin: one, Release: []string{"a"}}, false},
	} {
		if got := tc.d.Done(); got != tc.done {
			t.Errorf("%s: done %t", name, got)
		}
	}
}

func TestRepository(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"r.example/a:1": "r.example/a", "r.example:5000/a": "r.example:5000/a", "r.example:5000/a:1": "r.example:5000/a", "r.example/a@sha256:1": "r.example/a",
		"r.example/a:1@sha256:1": "r.example/a:1", "a": "a", "": "", "@sha256:1": "", ":1": "", "a/:1": "a/",
	} {
		if got := Repository(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// What is there counts under its own name and digest alone; images of registries
// are counted apart; what is let go is in order, once, and nothing that is needed.
func TestDecideWhole(t *testing.T) {
	t.Parallel()
	a := model.PinSetImage{Name: "r.example/a:1", Digest: "sha256:1"}
	b := model.PinSetImage{Name: "r.example/b:1", Digest: "sha256:2"}
	reg := model.PinSetImage{Name: "r.example/c:1", Digest: "sha256:3", Registry: true}
	loose := model.PinSetImage{Name: "r.example/d:1", Digest: "sha256:4", Registry: true}
	have := []RuntimeImage{
		{Tags: []string{"r.example/a:1"}, Digests: []string{"r.example/a@sha256:1"}, Pinned: true},
		{Tags: []string{"r.example/b:1"}, Digests: []string{"r.example/b@sha256:9", "r.example/other@sha256:2"}, Pinned: true},
		{Tags: []string{"r.example/c:1"}, Digests: []string{"r.example/c@sha256:3"}, Pinned: true},
		{Tags: []string{"r.example/d:1"}, Digests: []string{"r.example/d@sha256:4"}},
	}
	own := OwnPins{Key(a): {"n1"}, Key(reg): {"n2"}, "z": {"n1", "n9"}, "y": {"n9", "n8"}}
	want := Decision{Load: []model.PinSetImage{b}, Pin: []model.PinSetImage{loose}, Release: []string{"y", "z"}, Unpin: []string{"n8", "n9"}, Loaded: 1, Pinned: 1, Fetched: 1}
	for range 20 { // for any order of the map
		if diff := cmp.Diff(want, Decide([]model.PinSetImage{a, b, reg, loose}, have, own)); diff != "" {
			t.Fatal(diff)
		}
	}
	gone := model.PinSetImage{Name: "r.example/e:1", Digest: ""}
	if d := Decide([]model.PinSetImage{gone}, []RuntimeImage{{Tags: []string{"x"}, Digests: []string{"r.example/e@"}}}, nil); len(d.Load) != 1 {
		t.Errorf("%+v", d)
	}
}
