package publish

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/imagetag"
)

// key is an image's place, kept by the test from what it pushed and never read
// back from a tag.
type key struct {
	patch, rev, build int
}

func (k key) above(o key) bool {
	return slices.Compare([]int{k.patch, k.rev, k.build}, []int{o.patch, o.rev, o.build}) > 0
}

// repositoryModel is a repository with everything that was ever pushed to it.
type repositoryModel struct {
	pub  Published
	keys map[string]key // digest to its place
	n    int
}

func newRepository() *repositoryModel {
	return &repositoryModel{pub: Published{Repository: "r.example/app", Scheme: "rev", Tags: map[string]string{}, Images: map[string]Image{}}, keys: map[string]key{}}
}

// event draws what a pipeline may do, right or wrong.
func (w *repositoryModel) event(t *rapid.T) (Event, key) {
	w.n++
	k := key{rapid.IntRange(1, 4).Draw(t, "patch"), rapid.IntRange(1, 3).Draw(t, "rev"), rapid.IntRange(1, 12).Draw(t, "build")}
	small := func(name string) string { return fmt.Sprint(rapid.IntRange(1, 3).Draw(t, name)) }
	i := Image{Digest: sum(fmt.Sprint(w.n)), Version: fmt.Sprintf("2.6.%d", k.patch), Release: small("release"), Definition: fmt.Sprint("def-", k.rev), Base: sum(small("base")), Platforms: []string{"linux/amd64"}}
	e := Event{Image: i, Rev: uint64(k.rev), Build: fmt.Sprint(k.build)}
	switch rapid.IntRange(0, 9).Draw(t, "twist") {
	case 0:
		e.App = "2.6.1"
	case 1:
		e.Image.Definition = "another"
	case 2:
		e.Want = []string{rapid.SampledFrom([]string{"latest", "2.6", "2.6.1", "2.6.2-rev1", "2.6.2-rev1-b1", "2.6+1"}).Draw(t, "want")}
	case 3:
		e.Floating = []string{"latest"}
	case 4:
		e.Build = "next"
	case 5: // the same bytes again
		if all := slices.Sorted(maps.Keys(w.pub.Images)); len(all) > 0 {
			e.Image = w.pub.Images[rapid.SampledFrom(all).Draw(t, "again")]
		}
	}
	return e, k
}

func (w *repositoryModel) apply(t *rapid.T, e Event, k key, steps []Step) {
	for _, s := range steps {
		parsed, err := mustScheme(t).Parse(s.Tag)
		if imagetag.Legal(s.Tag) != nil || err != nil {
			t.Fatalf("planned tag %q is not legal: %v", s.Tag, err)
		}
		if s.From != w.pub.Tags[s.Tag] {
			t.Fatalf("%s should be at %q, it is at %q", s.Tag, s.From, w.pub.Tags[s.Tag])
		}
		if s.From != "" {
			was, is := w.keys[s.From], w.keys[s.To]
			if parsed.Point() || s.Verb != Move || was.above(is) || was == is {
				t.Fatalf("%+v goes from %v to %v", s, was, is)
			}
		} else if parsed.Point() {
			w.pub.Images[s.To], w.keys[s.To] = e.Image, k
		}
		w.pub.Tags[s.Tag] = s.To
	}
}

func mustScheme(t *rapid.T) imagetag.Scheme {
	s, err := imagetag.ByName("rev")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// For any events, pointers move only forward, points never move, planned tags are legal, and
// every image stays reachable. A push that was interrupted at any step reaches the same end.
func TestNoHistoryMovesAPointerBack(t *testing.T) {
	t.Parallel()
	done := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newRepository()
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			e, k := w.event(t)
			plan := MakePlan(w.pub, e, Rules{})
			if plan.Refused() {
				if len(plan.Steps) > 0 {
					t.Fatalf("refused, and steps are planned: %+v", plan)
				}
				continue
			}
			if long, err := mustScheme(t).Parse(plan.Long); err == nil {
				k.rev, k.build = int(long.Rev), int(long.Build[0])
			}
			if again := MakePlan(w.pub, e, Rules{}); !cmp.Equal(plan, again) {
				t.Fatal("two plans of one thing differ")
			}
			done++
			end := maps.Clone(w.pub.Tags)
			for _, s := range plan.Steps {
				end[s.Tag] = s.To
			}
			w.apply(t, e, k, plan.Steps[:rapid.IntRange(0, len(plan.Steps)).Draw(t, "broke off after")])
			rest := MakePlan(w.pub, e, Rules{})
			if rest.Refused() {
				t.Fatalf("a started plan is refused: %v", rest.Refusals)
			}
			w.apply(t, e, k, rest.Steps)
			if d := cmp.Diff(end, w.pub.Tags); d != "" {
				t.Fatalf("it ends elsewhere after a break: %s", d)
			}
			if last := MakePlan(w.pub, e, Rules{}); last.Refused() || len(last.Steps) > 0 || last.Case != NoChange {
				t.Fatalf("done, and the plan is %+v", last)
			}
			w.check(t)
		}
	})
	if done < 100 {
		t.Errorf("only %d plans were carried out: the histories show little", done)
	}
}

// check compares the pointers with what was pushed.
func (w *repositoryModel) check(t *rapid.T) {
	named := map[string]bool{}
	newest := map[string]string{} // pointer to digest
	up := func(pointer, digest string) {
		if was, ok := newest[pointer]; !ok || w.keys[digest].above(w.keys[was]) {
			newest[pointer] = digest
		}
	}
	for digest, k := range w.keys {
		long := fmt.Sprintf("2.6.%d-rev%d-b%d", k.patch, k.rev, k.build)
		named[digest] = w.pub.Tags[long] == digest
		up(fmt.Sprintf("2.6.%d-rev%d", k.patch, k.rev), digest)
		up(fmt.Sprintf("2.6.%d", k.patch), digest)
		up("latest", digest)
	}
	for digest, ok := range named {
		if !ok {
			t.Fatalf("nothing names %s for good", digest)
		}
	}
	for pointer, digest := range newest {
		if at, ok := w.pub.Tags[pointer]; (ok || pointer != "latest") && at != digest {
			t.Fatalf("%s names %v, the newest is %v", pointer, w.keys[at], w.keys[digest])
		}
	}
}
