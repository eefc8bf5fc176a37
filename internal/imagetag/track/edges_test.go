package track

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/test/results"

	"github.com/google/go-cmp/cmp"
)

// Which long tags may name the image behind a pointer, by version, variant and
// revision.
func TestLongTagsByVariant(t *testing.T) {
	t.Parallel()
	listed := []string{"2.6.2-rev1-b1", "2.6.2-rev2-b1", "2.6.2-alpine-rev1-b1", "2.6.20-rev1-b1", "2.7.0-rev1-b1", "edge-rev1-b1", "edge-rev1-b2", "2.6.2-rev0-b1", "2.6.2-rev1", "2.6.2"}
	var got []string
	for _, pointer := range []string{"2.6.2", "2.6.2-alpine", "2.6.2-rev1", "2.6.2-alpine-rev1", "2.6", "v2.6.2", "2.6-alpine", "edge", "latest", "2.6.2-rev0"} {
		got = append(got, strings.TrimSpace(pointer+": "+strings.Join(LongTags(Track{Scheme: scheme("rev:alpine")}, pointer, listed), " ")))
	}
	results.CompareGolden(t, "testdata/long-tags-by-variant.golden", got, *update)
	x := Track{Scheme: scheme("semver")}
	listed = []string{"2.6.2", "2.6.3", "2.7.0", "v2.6.4", "x"}
	for pointer, want := range map[string]string{"2.6": "2.6.3 2.6.2", "2": "2.7.0 2.6.3 2.6.2", "stable": "2.7.0 v2.6.4 2.6.3 2.6.2"} {
		if got := strings.Join(LongTags(x, pointer, listed), " "); got != want {
			t.Errorf("%s: %s, want %s", pointer, got, want)
		}
	}
	var many []string
	for n := range 20 {
		many = append(many, fmt.Sprintf("2.6.2-rev1-b%d", n+1))
	}
	if got := LongTags(rev(), "2.6.2-rev1", many); len(got) != 12 || got[0] != "2.6.2-rev1-b20" || got[11] != "2.6.2-rev1-b9" {
		t.Errorf("the newest twelve: %v", got)
	}
}

// A range that cannot be read has nothing, and neither has what is no version.
func TestFollowByRange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		versions, tag string
		want          string
	}{
		"a range":                    {"~2.6", "", "2.6.2"},
		"a range that is none":       {"~x.y.z!", "", ""},
		"an approved image, no tag":  {"", "-", "2.7.0"},
		"an approved one, with tag":  {"", "2.6.1", "2.6.1 2.7.0"},
		"an approved one that broke": {"", "2.6.1-rev0", "2.6.1-rev0 2.7.0"},
	} {
		x := Track{Scheme: scheme("rev"), Tier: "short", Versions: c.versions}
		s := State{}
		if c.tag != "" {
			s.Approved = &Image{Tag: strings.Trim(c.tag, "-")}
		}
		listed := []string{"2.6.1", "2.6.2", "2.7.0", "2.9.0-rev0", "2.8.0-rev1", "latest"}
		if got := strings.Join(Follow(x, s, listed), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if err := CheckVersions(c.versions); (err != nil) != (name == "a range that is none") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for app, want := range map[string]bool{"2.6.2": true, "2.7.0": false, "main": false, "2.6": true} {
		if got := inRange("~2.6", app); got != want {
			t.Errorf("%s in ~2.6: %t", app, got)
		}
	}
}

// By whom an image was taken, as the records have it.
func TestTakenBy(t *testing.T) {
	t.Parallel()
	b := image("b", "2.6.2-rev1-b5.2")
	for want, c := range map[string]struct {
		auto     []Class
		approval *Approval
	}{
		"automatic":                  {[]Class{Rebuild}, nil},
		"automatic, an old approval": {[]Class{Rebuild}, &Approval{Digest: d("c"), Serial: 9, By: "ann"}},
		"ann":                        {nil, &Approval{Digest: d("b"), Serial: 9, By: "ann"}},
		"ann: CVE":                   {nil, &Approval{Digest: d("b"), Serial: 9, By: "ann", Reason: "CVE"}},
		"an unnamed user":            {nil, &Approval{Digest: d("b"), Serial: 9}},
		"an unnamed user: CVE":       {nil, &Approval{Digest: d("b"), Serial: 9, Reason: "CVE"}},
	} {
		x := rev(c.auto...)
		if c.approval != nil {
			x.Approvals = []Approval{*c.approval}
		}
		s, _ := look(x, runs(image("a", "2.6.2-rev1-b5.1")), Found{}, noon, b)
		want, _, _ = strings.Cut(want, ",")
		if s.Selection == nil || s.Selection.By != want || s.Selection.From.Digest != d("a") || s.Selection.Class != Rebuild {
			t.Errorf("%s: %+v", want, s.Selection)
		}
	}
	stale := rev(Rebuild)
	stale.Approvals = []Approval{{Digest: d("b"), Serial: 1, By: "ann"}}
	if s := (Candidate{Image: b, Decision: Automatic}); stale.actor(s) != "automatic" {
		t.Errorf("an approval that did not count: %s", stale.actor(s))
	}
}

// A refused image gives way to the latest of the past that is neither refused
// nor left.
func TestBackPastWhatIsRefused(t *testing.T) {
	t.Parallel()
	a, b, c, e := image("a", "1-rev1-b1"), image("b", "1-rev1-b2"), image("c", "1-rev1-b3"), image("e", "1-rev1-b4")
	for name, tc := range map[string]struct {
		refused []string
		left    []string
		want    string
	}{
		"the latest":              {[]string{"e"}, nil, "c"},
		"the latest is refused":   {[]string{"e", "c"}, nil, "b"},
		"the latest was left":     {[]string{"e"}, []string{"c"}, "b"},
		"refused and left":        {[]string{"e", "c"}, []string{"c"}, "b"},
		"one refused, one left":   {[]string{"e", "c"}, []string{"b"}, "a"},
		"all are refused or left": {[]string{"e", "c", "b"}, []string{"a"}, "e"},
	} {
		x := rev()
		x.Refused = map[string]string{}
		for _, r := range tc.refused {
			x.Refused[d(r)] = "slow"
		}
		s := State{Serial: 5, Approved: &e, History: []Image{c, b, a}}
		for _, l := range tc.left {
			s.RolledBack = append(s.RolledBack, RolledBack{Digest: d(l), Serial: 2})
		}
		next, _ := Decide(x, s, Found{}, noon)
		if next.Approved.Digest != d(tc.want) {
			t.Errorf("%s: %s", name, next.Approved.Name())
		}
		if tc.want == "e" {
			continue
		}
		for _, h := range next.History {
			if h.Digest == next.Approved.Digest {
				t.Errorf("%s: the approved one is in the past too", name)
			}
		}
		if len(next.History) != 2 || next.Serial != 6 || next.Selection.By != "spec.refused" || next.Selection.From.Digest != d("e") {
			t.Errorf("%s: %+v", name, next)
		}
	}
}

// A digest that was taken out of a workload leaves a trace: a new serial, the
// past, and one entry of what was left.
func TestLetGoIsRemembered(t *testing.T) {
	t.Parallel()
	a, b := image("a", "1-rev1-b1"), image("b", "1-rev1-b2")
	s := State{Serial: 5, Approved: &b, History: []Image{a}, RolledBack: []RolledBack{{Digest: b.Digest, Serial: 1}}}
	next, _ := Decide(rev(), s, Found{Workloads: []Workload{{Key: "w", Before: b.Digest}}}, noon)
	want := State{Serial: 6, History: []Image{b, a}, RolledBack: []RolledBack{{Digest: b.Digest, By: "w", Serial: 6, At: noon}}}
	if diff := cmp.Diff(want, next); diff != "" {
		t.Error(diff)
	}
}

// An approved image behind a known tag learns what later looks find, and two tags
// of one digest are one candidate.
func TestLearnedAndShared(t *testing.T) {
	t.Parallel()
	a := image("a", "")
	for name, c := range map[string]struct{ before, found, want bool }{"never": {false, false, false}, "later": {false, true, true}, "once": {true, false, true}, "always": {true, true, true}} {
		i, f := a, a
		i.Vouched, i.Security, f.Vouched, f.Security = c.before, c.before, c.found, c.found
		s := Observe(runs(i), Observation{Images: []Image{f}}, noon)
		if s.Approved.Vouched != c.want || s.Pointers[0].Vouched != c.want || s.Approved.Security != c.want {
			t.Errorf("%s: %+v", name, s.Approved)
		}
	}
	b := image("b", "2.6.2-rev1-b5.2")
	s := Observe(runs(image("a", "2.6.2-rev1-b5.1")), Observation{Images: []Image{b, at("2.6.2", b), at("latest", b)}}, noon)
	if cs := candidates(rev(), s, Found{}, noon); len(cs) != 1 || cs[0].Tag != "2.6.2" {
		t.Errorf("%+v", cs)
	}
	if s := Observe(State{}, Observation{Images: []Image{{Tag: "x"}}}, noon); len(s.Pointers) != 1 || s.Serial != 1 || !s.Pointers[0].At.Equal(noon) {
		t.Errorf("a tag that was never seen is new: %+v", s)
	}
}

// The records without an approved image, without a Taken, and at their limit.
func TestRecordEdges(t *testing.T) {
	t.Parallel()
	a, b := image("a", "1-rev1-b1"), image("b", "1-rev1-b2")
	a.At, b.At = noon, noon.Add(time.Hour)
	rows := func(states ...string) (out []Row) {
		for i, s := range states {
			out = append(out, Row{Key: fmt.Sprint("w", i), State: s, Message: "a reason"})
		}
		return out
	}
	if got := RecordRelease(nil, State{}, rows(Current), noon); len(got) != 0 {
		t.Errorf("nothing is approved: %+v", got)
	}
	got := RecordRelease(nil, State{Approved: &b, History: []Image{a}}, rows(Rolling), noon)
	want := []Release{{Digest: b.Digest, Long: b.Long, From: a.Digest, FromLong: a.Long, By: "unknown: it was taken before records were kept", SelectedAt: b.At, StartedAt: noon, Result: ResultRolling}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	left := RecordRelease(got, State{}, nil, noon)
	if len(left) != 1 || left[0].Result != ResultReplaced || !left[0].EndedAt.Equal(noon) || got[0].Result != ResultRolling {
		t.Errorf("none is approved any more: %+v", left)
	}
	again := b
	again.At = noon.Add(2 * time.Hour)
	other := a
	other.At = b.At
	for name, i := range map[string]Image{"the same digest, taken again": again, "another digest at the same time": other} {
		if list := RecordRelease(got, State{Approved: &i}, rows(Rolling), noon); len(list) != 2 || list[0].Digest != i.Digest || list[1].Result != ResultReplaced {
			t.Errorf("%s: %+v", name, list)
		}
	}
	for states, want := range map[string]string{
		"Blocked Rolling": "Rolling ", "Blocked Preloading": "Rolling ", "Blocked Waiting": "Halted w0: a reason", "Blocked Current": "Halted w0: a reason", "Current Blocked Blocked": "Halted w1: a reason",
		"Blocked Rolling Preloading": "Rolling ", "Waiting": "Rolling ", "Proposed": "Proposed ", "Proposed Waiting": "Rolling ", "Proposed Preloading": "Rolling ", "Current OnNextRun": "Done ", "Current Proposed": "Proposed ",
	} {
		r := Release{Result: ResultHalted, Message: "before"}
		r.updateResult(rows(strings.Fields(states)...), noon)
		if got := r.Result + " " + r.Message; got != want {
			t.Errorf("%s: %s, want %s", states, got, want)
		}
	}
	var list []Release
	for n := range 25 {
		i := a
		i.At = noon.Add(time.Duration(n) * time.Minute)
		list = RecordRelease(list, State{Approved: &i}, rows(Current), noon)
	}
	if len(list) != 20 {
		t.Errorf("%d records", len(list))
	}
}

// The patch of a Deployment names each container that changes, and no other.
func TestPatchOfADeployment(t *testing.T) {
	t.Parallel()
	w := target(Deployment, "a", func(w *Target) {
		same := "r.example/app:2.6.2-rev1@" + d("b")
		w.Containers = append(w.Containers, Container{Name: "same", Image: same}, Container{Name: "second", Image: "r.example/app"}, Container{Name: "init-same", Init: true, Image: same})
	})
	image := "r.example/app:2.6.2-rev1@" + d("b")
	want := "# 2.6.2-rev1-b5.2 (sha256:bbbbbbbbbbbb)\nspec:\n  template:\n    spec:\n      containers:\n" +
		"      - name: app\n        image: " + image + "\n      - name: second\n        image: " + image + "\n"
	if diff := cmp.Diff(want, Patch(&w, approved)); diff != "" {
		t.Error(diff)
	}
}

// The sequence of targets: ordinary ones, DaemonSets, critical ones, static pods.
func TestSequence(t *testing.T) {
	t.Parallel()
	critical := func(w *Target) { w.Critical = true }
	ordinary := staticTarget(func(w *Target) { w.Name, w.Critical = "a", false })
	list := []Target{ordinary, staticTarget(), target(StatefulSet, "z", critical), target(DaemonSet, "b", critical), target(DaemonSet, "c"), target(CronJob, "d"), target(Deployment, "e"), target(DaemonSet, "a")}
	var got []string
	for _, i := range sequence(list) {
		got = append(got, list[i].Key())
	}
	want := []string{"CronJob/shop/d", "Deployment/shop/e", "DaemonSet/shop/a", "DaemonSet/shop/c", "DaemonSet/shop/b", "StatefulSet/shop/z", "StaticPod/kube-system/a", "StaticPod/kube-system/proxy"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
