package track

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/imagetag"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func scheme(name string) imagetag.Scheme {
	s, err := imagetag.ByName(name)
	if err != nil {
		panic(err)
	}
	return s
}

// d makes a digest of a letter.
func d(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

func rev(auto ...Class) Track {
	t := Track{Repository: "r.example/app", Scheme: scheme("rev"), Tag: "2.6.2-rev1", Auto: map[Class]bool{}}
	for _, c := range auto {
		t.Auto[c] = true
	}
	return t
}

// image behind tag 2.6.2-rev1, unless another one is given.
func image(letter, long string, change ...func(*Image)) Image {
	i := Image{Digest: d(letter), Tag: "2.6.2-rev1", Long: long}
	for _, c := range change {
		c(&i)
	}
	return i
}

// secure is the label of a security rebuild, vouched for or not.
func secure(vouched bool) func(*Image) {
	return func(i *Image) { i.Security, i.Vouched = true, vouched }
}

// critical is a track of a workload that its node needs.
func critical(auto ...Class) Track {
	t := rev(auto...)
	t.Critical = true
	return t
}

// runs is the state of a track that runs an image.
func runs(i Image) State {
	return State{Serial: 1, Pointers: []Pointer{{Image: i, Serial: 1}}, Approved: &i}
}

// look takes an image in, and decides.
func look(t Track, s State, f Found, now time.Time, images ...Image) (State, []Candidate) {
	return Decide(t, Observe(s, Observation{Images: images}, now), f, now)
}

func record(r imagetag.ReleaseRecord) func(*Image) { return func(i *Image) { i.AddRecord(r) } }

// Records add up: the stricter severity stays, fixes are named once, and not without end.
func TestRecordsAddUp(t *testing.T) {
	t.Parallel()
	var i Image
	many := make([]string, 2*maxFixes)
	for n := range many {
		many[n] = fmt.Sprint("CVE-2026-", n)
	}
	for _, r := range []imagetag.ReleaseRecord{{Severity: Recommended, Fixes: []string{"CVE-1", "CVE-1"}}, {Severity: Disruptive, ManifestsChange: true}, {Severity: Recommended, Fixes: []string{"CVE-1", "CVE-2"}}, {Severity: "security"}} {
		i.AddRecord(r)
	}
	if i.Severity != Disruptive || !i.ManifestsChange || i.Security || len(i.Fixes) != 2 {
		t.Errorf("%+v", i)
	}
	if i.AddRecord(imagetag.ReleaseRecord{Fixes: many}); len(i.Fixes) != maxFixes {
		t.Errorf("%d fixes", len(i.Fixes))
	}
}

// Which change is of which class, and who decides.
func TestDecide(t *testing.T) {
	a := image("a", "2.6.2-rev1-b5.1")
	for name, c := range map[string]struct {
		track Track
		now   Image
		// want: class and decision of what is new, whether it is taken, a word of why.
		class    Class
		decision Decision
		taken    bool
		says     string
	}{
		"a rebuild moves by itself where that is allowed":             {rev(Rebuild), image("b", "2.6.2-rev1-b5.2"), Rebuild, Automatic, true, ""},
		"a rebuild waits for a person where it is not":                {rev(), image("b", "2.6.2-rev1-b5.2"), Rebuild, NeedsApproval, false, "spec.automatic"},
		"b10 is above b9, unlike in the alphabet":                     {rev(Rebuild), image("b", "2.6.2-rev1-b10.1"), Rebuild, Automatic, true, ""},
		"a vouched rebuild for security is a class of its own":        {rev(Security), image("b", "2.6.2-rev1-b5.2", secure(true)), Security, Automatic, true, ""},
		"a label alone lifts no approval":                             {rev(Security), image("b", "2.6.2-rev1-b5.2", secure(false)), Security, NeedsApproval, false, "label alone"},
		"a label alone counts as a rebuild":                           {rev(Rebuild), image("b", "2.6.2-rev1-b5.2", secure(false)), Security, Automatic, true, ""},
		"a node needs the workload: a label alone does not move it":   {critical(Security, Rebuild), image("b", "2.6.2-rev1-b5.2", secure(false)), Security, NeedsApproval, false, "node needs"},
		"a node needs the workload: a vouched security rebuild moves": {critical(Security), image("b", "2.6.2-rev1-b5.2", secure(true)), Security, Automatic, true, ""},
		"manifests change with it, says its release record":           {rev(Rebuild), image("b", "2.6.2-rev1-b5.2", record(imagetag.ReleaseRecord{ManifestsChange: true})), Rebuild, NeedsApproval, false, "manifests change"},
		"its release record calls it disruptive":                      {rev(Rebuild), image("b", "2.6.2-rev1-b5.2", record(imagetag.ReleaseRecord{Severity: Disruptive})), Rebuild, NeedsApproval, false, "disruptive"},
		"a release record of security gives no right":                 {rev(Security), image("b", "2.6.2-rev1-b5.2", record(imagetag.ReleaseRecord{Severity: "security"})), Rebuild, NeedsApproval, false, "spec.automatic"},
		"a fixed definition waits for a person":                       {rev(Rebuild), image("b", "2.6.2-rev2-b1.1", func(i *Image) { i.Tag = "2.6.2-rev2" }), ImageFix, NeedsApproval, false, ""},
		"a new version waits for a person":                            {rev(Rebuild), image("b", "2.7.0-rev1-b1.1", func(i *Image) { i.Tag = "2.7.0-rev1" }), NewVersion, NeedsApproval, false, ""},
		"a version mismatch is blocked":                               {rev(Rebuild), image("b", "2.6.2-rev1-b5.2", func(i *Image) { i.App = "2.6.3" }), TagVersionMismatch, Blocked, false, "2.6.3"},
		"a tag may name a part of the version":                        {rev(Rebuild), image("b", "2.6.2-rev1-b5.2", func(i *Image) { i.App = "2.6.2.15" }), Rebuild, Automatic, true, ""},
		"an older build does not come by itself":                      {rev(Rebuild), image("b", "2.6.2-rev1-b4.9"), Backwards, Blocked, false, "--any-order"},
		"without a long tag the order is unknown":                     {rev(Rebuild), image("b", ""), Unordered, Blocked, false, "no long tag"},
		"a long tag that was overwritten":                             {rev(Rebuild), image("b", "2.6.2-rev1-b5.1"), Unordered, Blocked, false, "overwrote"},
		"a node needs the workload: a rebuild waits for a person": {func() Track { x := rev(Rebuild); x.Critical = true; return x }(),
			image("b", "2.6.2-rev1-b5.2"), Rebuild, NeedsApproval, false, "node needs"},
		"a frozen track waits": {func() Track { x := rev(Rebuild); x.Freeze = true; return x }(), image("b", "2.6.2-rev1-b5.2"), Rebuild, Waits, false, "frozen"},
		"what is too young waits": {func() Track { x := rev(Rebuild); x.MinAge = time.Hour; return x }(),
			image("b", "2.6.2-rev1-b5.2"), Rebuild, Waits, false, "13:00:00Z"},
		"a refused digest is not taken": {func() Track { x := rev(Rebuild); x.Refused = map[string]string{d("b"): "loses mail"}; return x }(),
			image("b", "2.6.2-rev1-b5.2"), Rebuild, Blocked, false, "loses mail"},
		"an approval for it as it was seen": {func() Track { x := rev(); x.Approvals = []Approval{{Digest: d("b"), Serial: 2}}; return x }(),
			image("b", "2.6.2-rev1-b5.2"), Rebuild, Approved, true, ""},
		"an approval from before the tag moved is dead": {func() Track { x := rev(); x.Approvals = []Approval{{Digest: d("b"), Serial: 1}}; return x }(),
			image("b", "2.6.2-rev1-b5.2"), Rebuild, NeedsApproval, false, "approve again"},
		"backwards, and a person means it": {func() Track {
			x := rev()
			x.Approvals = []Approval{{Digest: d("b"), Serial: 2, AnyOrder: true}}
			return x
		}(),
			image("b", "2.6.2-rev1-b4.9"), Backwards, Approved, true, ""},
		"backwards, and a person did not say that it is meant": {func() Track {
			x := rev()
			x.Approvals = []Approval{{Digest: d("b"), Serial: 2, AnyOrder: false}}
			return x
		}(),
			image("b", "2.6.2-rev1-b4.9"), Backwards, Blocked, false, "--any-order"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Observe(runs(a), Observation{Images: []Image{c.now}}, noon)
			cs := candidates(c.track, s, Found{}, noon)
			if len(cs) != 1 || cs[0].Class != c.class || cs[0].Decision != c.decision || !strings.Contains(cs[0].Why, c.says) {
				t.Fatalf("want %s %s with %q, got %+v", c.class, c.decision, c.says, cs)
			}
			s, left := Decide(c.track, s, Found{}, noon)
			if (s.Approved.Digest == c.now.Digest) != c.taken || len(left) == 1 == c.taken {
				t.Fatalf("taken %v, want %v; left %+v", s.Approved.Digest == c.now.Digest, c.taken, left)
			}
			if c.taken && (len(s.History) != 1 || s.History[0].Digest != a.Digest) {
				t.Fatalf("what ran before is forgotten: %+v", s.History)
			}
		})
	}
}

// At the beginning nothing is approved: what runs is compared with.
func TestTheFirstLook(t *testing.T) {
	old, now := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2")
	for name, c := range map[string]struct {
		running  []string
		history  []Image
		class    Class
		decision Decision
	}{
		"what the tag names runs everywhere: it gets its digest": {[]string{d("b")}, nil, Adopt, Automatic},
		"nothing runs":                                 {nil, nil, Adopt, Automatic},
		"an older build runs on some nodes":            {[]string{d("b"), d("a")}, []Image{old}, Rebuild, NeedsApproval},
		"an unknown image runs: a person must approve": {[]string{d("c")}, nil, Unordered, Blocked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Observe(State{History: c.history}, Observation{Images: []Image{now}}, noon)
			cs := candidates(rev(), s, Found{Running: c.running}, noon)
			if len(cs) != 1 || cs[0].Class != c.class || cs[0].Decision != c.decision {
				t.Fatalf("%+v", cs)
			}
		})
	}
}

// After a rollback of any kind, no observation selects the digest again. A newer image, or a
// later approval, ends this.
func TestRollback(t *testing.T) {
	a, b, c := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2"), image("c", "2.6.2-rev1-b5.3")
	auto := rev(Rebuild)
	onB, _ := look(auto, runs(a), Found{}, noon, b)
	if onB.Approved.Digest != b.Digest {
		t.Fatal("the story does not begin")
	}
	undone := Found{Workloads: []Workload{{Key: "Deployment/shop/app", Named: a.Digest, Before: b.Digest}}}
	for name, c1 := range map[string]struct {
		track Track
		found Found
		by    string
	}{
		"by refusing what runs":   {func() Track { x := auto; x.Refused = map[string]string{b.Digest: "slow"}; return x }(), Found{}, "spec.refused"},
		"by kubectl rollout undo": {auto, undone, "Deployment/shop/app"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := look(c1.track, onB, c1.found, noon, b)
			if s.Approved.Digest != a.Digest || len(s.RolledBack) != 1 || s.RolledBack[0].By != c1.by || s.RolledBack[0].To != a.Digest {
				t.Fatalf("%+v", s)
			}
			settled := Found{Workloads: []Workload{{Key: "Deployment/shop/app", Named: a.Digest, Before: a.Digest}}}
			again := s
			for range 5 {
				next, cs := look(c1.track, again, settled, noon.Add(time.Hour), b)
				if d := cmp.Diff(again, next); d != "" || len(cs) != 1 || cs[0].Decision != Blocked {
					t.Fatalf("a look changed it: %s %+v", d, cs)
				}
				again = next
			}
			newer, _ := look(c1.track, again, settled, noon, c)
			if newer.Approved.Digest != c.Digest {
				t.Fatalf("the newer one does not come: %+v", newer)
			}
			word := c1.track
			word.Refused, word.Approvals = nil, []Approval{{Digest: b.Digest, Serial: again.Serial}}
			lifted, _ := look(word, again, settled, noon, b)
			if lifted.Approved.Digest != b.Digest || len(lifted.RolledBack) != 0 {
				t.Fatalf("a person's later word does not count: %+v", lifted)
			}
			word.Approvals[0].Serial = s.Serial - 1
			early, _ := look(word, again, settled, noon, b)
			if early.Approved.Digest != a.Digest {
				t.Fatal("a word from before the roll-back counts")
			}
		})
	}
	t.Run("a digest that a user removed is not restored", func(t *testing.T) {
		t.Parallel()
		s, cs := look(auto, onB, Found{Workloads: []Workload{{Key: "Deployment/shop/app", Before: b.Digest}}, Running: []string{a.Digest}}, noon, b)
		if s.Approved != nil || len(cs) != 1 || cs[0].Decision != Blocked {
			t.Fatalf("%+v %+v", s.Approved, cs)
		}
		again, _ := look(auto, s, Found{Running: []string{a.Digest}}, noon, b)
		if d := cmp.Diff(s, again); d != "" {
			t.Fatalf("a look changed it: %s", d)
		}
		if newer, _ := look(auto, again, Found{Running: []string{a.Digest}}, noon, c); newer.Approved == nil || newer.Approved.Digest != c.Digest {
			t.Fatal("the newer one does not come")
		}
	})
	t.Run("without an earlier image it stays", func(t *testing.T) {
		t.Parallel()
		x := auto
		x.Refused = map[string]string{a.Digest: "slow"}
		if s, _ := look(x, runs(a), Found{}, noon, a); s.Approved.Digest != a.Digest || len(s.RolledBack) != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// An approval is for the digest as it was seen: a tag that moves away and back
// has moved.
func TestAnApprovalDiesWhenTheTagMoves(t *testing.T) {
	a, b, c := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2"), image("c", "2.6.2-rev1-b5.3")
	x := rev()
	s, cs := look(x, runs(a), Found{}, noon, b)
	approval := Approval{Digest: b.Digest, Serial: cs[0].Serial}
	s, _ = look(x, s, Found{}, noon, c)
	x.Approvals = []Approval{approval}
	s, cs = look(x, s, Found{}, noon, b)
	if s.Approved.Digest != a.Digest || cs[0].Decision != NeedsApproval || !strings.Contains(cs[0].Why, "approve again") {
		t.Fatalf("%+v %+v", s.Approved, cs)
	}
	x.Approvals = []Approval{{Digest: b.Digest, Serial: cs[0].Serial}}
	if s, _ = look(x, s, Found{}, noon, b); s.Approved.Digest != b.Digest {
		t.Fatal("approved anew it is not taken")
	}
}

// What is polled and in which order nothing newer is ever left for something
// older by itself, and nothing that was left comes back without a word.
func TestNeverBackwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rev(Rebuild, Security, ImageFix, NewVersion)
		x.Tag, x.Tier = "", imagetag.Intermediate
		s := State{}
		left := map[string]bool{}
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			app, r, b := rapid.IntRange(0, 2).Draw(t, "app"), rapid.IntRange(1, 3).Draw(t, "rev"), rapid.IntRange(1, 12).Draw(t, "build")
			pointer := fmt.Sprintf("2.%d.0-rev%d", app, r)
			i := Image{Tag: pointer, Long: fmt.Sprintf("%s-b%d", pointer, b), Digest: d(string("0123456789abcdef"[(app*36+(r-1)*12+b-1)%16])) + fmt.Sprint(app, r, b)}
			if rapid.IntRange(0, 9).Draw(t, "unnamed") == 0 {
				i.Long = ""
			}
			f := Found{}
			if s.Approved != nil && len(s.History) > 0 && rapid.IntRange(0, 4).Draw(t, "undo") == 0 {
				f.Workloads = []Workload{{Key: "w", Before: s.Approved.Digest, Named: s.History[0].Digest}}
			}
			before := s.Approved
			serial := s.Serial
			next, _ := Decide(x, Observe(s, Observation{Images: []Image{i}}, noon), f, noon.Add(time.Duration(step)*time.Minute))
			if next.Serial < serial {
				t.Fatal("the serial decreased")
			}
			undone := len(next.RolledBack) > 0 && next.RolledBack[len(next.RolledBack)-1].Serial > serial
			if undone { // a person left the one for the other
				left[before.Digest] = true
				delete(left, f.Workloads[0].Named)
			}
			if next.Approved != nil && (before == nil || next.Approved.Digest != before.Digest) {
				if left[next.Approved.Digest] {
					t.Fatalf("%s was left, and came back by a look", next.Approved.Name())
				}
				if before != nil && !undone {
					if o, why := x.Scheme.Compare(next.Approved.Long, before.Long); o != imagetag.Newer && next.Approved.Long != "" && before.Long != "" {
						t.Fatalf("from %s to %s: %s (%s)", before.Name(), next.Approved.Name(), o, why)
					}
				}
			}
			s = next
		}
	})
}

// Looking twice is looking once.
func TestALookThatFindsNothingNewChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rev(Rebuild)
		s := State{}
		var i Image
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			n := rapid.IntRange(1, 9).Draw(t, "build")
			i = image(fmt.Sprint(n), fmt.Sprintf("2.6.2-rev1-b%d", n))
			s, _ = look(x, s, Found{}, noon, i)
		}
		again, _ := look(x, s, Found{}, noon.Add(time.Hour), i)
		if d := cmp.Diff(s, again); d != "" {
			t.Fatal(d)
		}
	})
}

// What a publisher calls disruptive waits for a person, also where its class moves by itself; a
// recommendation changes nothing. Nodes are marked by what is confirmed.
func TestSeverities(t *testing.T) {
	t.Parallel()
	all := rev(Security, Rebuild, ImageFix, NewVersion)
	a := image("a", "2.6.2-rev1-b5.1")
	for name, c := range map[string]struct {
		label  string
		long   string
		secure bool
		taken  bool
		mark   string
	}{
		"no label":                     {"", "2.6.2-rev1-b5.2", false, true, "available"},
		"a recommended rebuild":        {"recommended", "2.6.2-rev1-b5.2", false, true, "recommended"},
		"a disruptive rebuild":         {"disruptive", "2.6.2-rev1-b5.2", false, false, "disruptive"},
		"a disruptive fix":             {"disruptive", "2.6.2-rev2-b1.1", false, false, "disruptive"},
		"a value that is not known":    {"urgent", "2.6.2-rev1-b5.2", false, true, "available"},
		"a security fix by label only": {"security", "2.6.2-rev1-b5.2", false, true, "available"},
		"a security fix, confirmed":    {"security", "2.6.2-rev1-b5.2", true, true, "security"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := image("b", c.long)
			b.Severity, b.Security, b.Vouched = SeverityOf(map[string]string{SecurityLabel: c.label}), c.label == "security", c.secure
			s, left := look(all, runs(a), Found{}, noon, b)
			next := Pending(s, left)
			if taken := s.Approved.Is(b.Digest); taken != c.taken || next == nil || !next.Is(b.Digest) || next.Mark() != c.mark {
				t.Fatalf("taken %t, next %+v, %+v", taken, next, left)
			}
			all := all
			all.Approvals = []Approval{{Digest: b.Digest, Serial: 9}}
			if s, left = look(all, runs(a), Found{}, noon, b); !s.Approved.Is(b.Digest) {
				t.Fatalf("approved, and not taken: %+v", left)
			}
		})
	}
	blocked := rev()
	blocked.Refused = map[string]string{d("b"): "bad"}
	if s, left := look(blocked, runs(a), Found{}, noon, image("b", "2.6.2-rev1-b5.2")); !Pending(s, left).Is(a.Digest) {
		t.Fatalf("a blocked image is next: %+v", left)
	}
}
