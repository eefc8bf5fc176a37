package pin

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/model"
)

func img(name, digest string) model.PinSetImage { return model.PinSetImage{Name: name, Digest: digest} }

func TestDecide(t *testing.T) {
	a := img("reg:5000/x/a:1", "sha256:a")
	pinned := RuntimeImage{Tags: []string{a.Name}, Digests: []string{"reg:5000/x/a@sha256:a"}, Pinned: true}
	free := pinned
	free.Pinned = false
	for name, c := range map[string]struct {
		want []model.PinSetImage
		have []RuntimeImage
		own  OwnPins
		out  Decision
	}{
		"what is not there is loaded":                         {want: []model.PinSetImage{a}, out: Decision{Load: []model.PinSetImage{a}}},
		"a tag with another digest is loaded":                 {want: []model.PinSetImage{a}, have: []RuntimeImage{{Tags: []string{a.Name}, Digests: []string{"reg:5000/x/a@sha256:old"}, Pinned: true}}, out: Decision{Load: []model.PinSetImage{a}}},
		"a tag without its digest name is loaded":             {want: []model.PinSetImage{a}, have: []RuntimeImage{{Tags: []string{a.Name}}}, out: Decision{Load: []model.PinSetImage{a}}},
		"there and pinned by us: nothing to do":               {want: []model.PinSetImage{a}, have: []RuntimeImage{pinned}, own: OwnPins{Key(a): {"n"}}, out: Decision{Loaded: 1, Pinned: 1}},
		"there, not pinned":                                   {want: []model.PinSetImage{a}, have: []RuntimeImage{free}, own: OwnPins{Key(a): {"n"}}, out: Decision{Pin: []model.PinSetImage{a}, Loaded: 1}},
		"pinned only by another tool: add our pin":            {want: []model.PinSetImage{a}, have: []RuntimeImage{pinned}, out: Decision{Pin: []model.PinSetImage{a}, Loaded: 1, Pinned: 1}},
		"wanted no more: our pins go, others stay":            {have: []RuntimeImage{pinned}, own: OwnPins{Key(a): {"n", "id"}}, out: Decision{Release: []string{Key(a)}, Unpin: []string{"id", "n"}}},
		"a name that another held image shares keeps its pin": {want: []model.PinSetImage{a}, have: []RuntimeImage{pinned}, own: OwnPins{Key(a): {"n", "id"}, "b:1@sha256:a": {"m", "id"}}, out: Decision{Loaded: 1, Pinned: 1, Release: []string{"b:1@sha256:a"}, Unpin: []string{"m"}}},
		"never pinned by us: never unpinned":                  {have: []RuntimeImage{pinned}, out: Decision{}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.out, Decide(c.want, c.have, c.own)); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// Applied twice is applied once; nothing that is held loses its
// pin; nothing foreign loses one.
func TestDecideConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a:1", "b:1", "c:1", "d:1"}
		pinnedBy := map[string]map[string]bool{} // record -> has our label
		foreign := map[string]bool{}
		present := map[string]bool{}
		own := OwnPins{}
		for _, n := range names {
			present[n] = rapid.Bool().Draw(t, "present "+n)
			foreign[n] = present[n] && rapid.Bool().Draw(t, "foreign "+n)
		}
		for round := range rapid.IntRange(1, 5).Draw(t, "rounds") {
			var want []model.PinSetImage
			for _, n := range names {
				if rapid.Bool().Draw(t, fmt.Sprint("want ", n, round)) {
					want = append(want, img(n, "sha256:1"))
				}
			}
			view := func() (out []RuntimeImage) {
				for _, n := range names {
					if present[n] {
						out = append(out, RuntimeImage{Tags: []string{n}, Digests: []string{Repository(n) + "@sha256:1"}, Pinned: foreign[n] || len(pinnedBy[n]) > 0})
					}
				}
				return out
			}
			apply := func() Decision {
				d := Decide(want, view(), own)
				for _, i := range slices.Concat(d.Load, d.Pin) {
					present[i.Name] = true
					own[Key(i)] = []string{i.Name, "sha256:id"}
					pinnedBy[i.Name] = map[string]bool{i.Name: true}
				}
				for _, n := range d.Unpin {
					delete(pinnedBy, n)
				}
				for _, k := range d.Release {
					delete(own, k)
				}
				return d
			}
			apply()
			if d := Decide(want, view(), own); !d.Done() || d.Pinned != len(want) {
				t.Fatalf("after one pass: %+v", d)
			}
			for _, n := range names {
				if foreign[n] && !present[n] {
					t.Fatal("a foreign image vanished")
				}
			}
		}
	})
}
