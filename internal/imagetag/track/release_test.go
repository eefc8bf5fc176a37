package track

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What was rolled, when, from which digest to which, by whom, and what came of it.
func TestRecord(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	row := func(states ...string) (out []Row) {
		for _, s := range states {
			out = append(out, Row{Key: "Deployment/shop/app", State: s, Message: "why"})
		}
		return out
	}
	at := func(name, long string, when time.Time) *Image { i := image(name, long); i.At = when; return &i }
	a, b, c := at("a", "1-rev1-b1.1", minute(0)), at("b", "1-rev1-b1.2", minute(10)), at("c", "1-rev1-b1.3", minute(20))

	var list []Release
	step := func(what string, s State, rows []Row, now time.Time, want ...Release) {
		t.Helper()
		before := list
		list = RecordRelease(list, s, rows, now)
		if d := cmp.Diff(want, list); d != "" {
			t.Fatalf("%s: %s", what, d)
		}
		if again := RecordRelease(list, State{Approved: s.Approved, RolledBack: s.RolledBack}, rows, now.Add(time.Minute)); !cmp.Equal(again, list) {
			t.Fatalf("%s: an equal observation changes it: %s", what, cmp.Diff(list, again))
		}
		if len(before) > 0 && cmp.Equal(before, list) {
			t.Fatalf("%s: nothing was recorded", what)
		}
	}
	first := Release{Digest: a.Digest, Long: a.Long, Class: Adopt, By: "automatic", SelectedAt: minute(0), Result: ResultRolling}
	step("taken, the nodes are to hold it", State{Approved: a, Selection: &Selection{Class: Adopt, By: "automatic"}}, row(Preloading, Waiting), minute(0), first)
	first.StartedAt = minute(1)
	step("the first target starts", State{Approved: a}, row(Rolling, Waiting), minute(1), first)
	first.Result, first.Message = ResultHalted, "Deployment/shop/app: why"
	step("one may not be written", State{Approved: a}, row(Current, Stopped), minute(2), first)
	first.Result, first.Message, first.EndedAt = ResultDone, "", minute(3)
	step("all have it", State{Approved: a}, row(Current, OnNextRun), minute(3), first)

	second := Release{Digest: b.Digest, Long: b.Long, From: a.Digest, FromLong: a.Long, Class: Rebuild, By: "ann: CVE", SelectedAt: minute(10), StartedAt: minute(10), Result: ResultRolling}
	step("another is approved", State{Approved: b, History: []Image{*a}, Selection: &Selection{Class: Rebuild, By: "ann: CVE", From: a}}, row(Rolling), minute(10), second, first)
	second.Result, second.EndedAt = ResultReplaced, minute(20)
	third := Release{Digest: c.Digest, Long: c.Long, From: b.Digest, FromLong: b.Long, Class: Rebuild, By: "automatic", SelectedAt: minute(20), Result: ResultDone, EndedAt: minute(20)}
	step("it is replaced before it is done", State{Approved: c, Selection: &Selection{Class: Rebuild, By: "automatic", From: b}}, row(Current), minute(20), third, second, first)
	third.Result, third.EndedAt, third.Message = ResultRolledBack, minute(30), "left by Deployment/shop/app"
	back := *a
	back.At = minute(30)
	fourth := Release{Digest: a.Digest, Long: a.Long, From: c.Digest, FromLong: c.Long, By: "Deployment/shop/app", SelectedAt: minute(30), StartedAt: minute(30), Result: ResultRolling}
	left := []RolledBack{{Digest: c.Digest, To: a.Digest, By: "Deployment/shop/app"}}
	step("a user rolls back by hand", State{Approved: &back, RolledBack: left, Selection: &Selection{By: "Deployment/shop/app", From: c}}, row(Rolling), minute(30), fourth, third, second, first)
	fourth.Result = ResultProposed
	step("what is left belongs to others", State{Approved: &back, RolledBack: left}, row(Current, Proposed), minute(31), fourth, third, second, first)

	for n := range 2 * maxReleases {
		x := at("d", "1-rev1-b2.1", minute(100+n))
		list = RecordRelease(list, State{Approved: x, Selection: &Selection{By: "automatic"}}, row(Current), minute(100+n))
	}
	if len(list) != maxReleases || !list[0].SelectedAt.Equal(minute(100+2*maxReleases-1)) {
		t.Fatalf("%d records, the latest of %s", len(list), list[0].SelectedAt)
	}
}
