package track

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at puts an image behind a tag of its own, so that several are candidates at once.
func at(tag string, i Image) Image {
	i.Tag = tag
	return i
}

func approvals(as ...Approval) func(*Track) {
	return func(t *Track) { t.Approvals = as }
}

// decisions lists "letter decision" of the candidates in order.
func decisions(cs []Candidate) string {
	var out []string
	for _, c := range cs {
		out = append(out, strings.TrimPrefix(c.Digest, "sha256:")[:1]+" "+string(c.Decision))
	}
	return strings.Join(out, ", ")
}

// Two candidates and two approvals: an approval is for its digest alone, of two
// for one digest the later serial counts, and who goes first is decided.
func TestTwoCandidates(t *testing.T) {
	t.Parallel()
	a := image("a", "2.6.2-rev1-b5.1")
	b, c := at("2.6.2-rev1", image("b", "2.6.2-rev1-b5.2")), at("2.6.3-rev1", image("c", "2.6.3-rev1-b1.1"))
	for name, tc := range map[string]struct {
		auto   []Class
		change func(*Track)
		before string
		taken  string // letter, "" for none
		after  string
	}{
		"none is approved":                     {nil, func(*Track) {}, "b NeedsApproval, c NeedsApproval", "", "b NeedsApproval, c NeedsApproval"},
		"the first is approved":                {nil, approvals(Approval{Digest: d("b"), Serial: 9}), "b Approved, c NeedsApproval", "b", "c NeedsApproval"},
		"the second is approved":               {nil, approvals(Approval{Digest: d("c"), Serial: 9}), "c Approved, b NeedsApproval", "c", "b NeedsApproval"},
		"an approval of none of them":          {nil, approvals(Approval{Digest: d("e"), Serial: 9}), "b NeedsApproval, c NeedsApproval", "", "b NeedsApproval, c NeedsApproval"},
		"an approval without a digest":         {nil, approvals(Approval{Serial: 9}), "b NeedsApproval, c NeedsApproval", "", "b NeedsApproval, c NeedsApproval"},
		"one moves by itself, one is approved": {[]Class{Rebuild}, approvals(Approval{Digest: d("c"), Serial: 9}), "c Approved, b Automatic", "c", "b Automatic"},
		"the same the other way round":         {[]Class{NewVersion}, approvals(Approval{Digest: d("b"), Serial: 9}), "b Approved, c Automatic", "b", "c Automatic"},
		"both move by themselves: the newer":   {[]Class{NewVersion, Rebuild}, func(*Track) {}, "c Automatic, b Automatic", "c", "b Automatic"},
		"both are approved: the later serial":  {nil, approvals(Approval{Digest: d("b"), Serial: 9}, Approval{Digest: d("c"), Serial: 9}), "c Approved, b Approved", "c", "b Approved"},
		"frozen, one approved":                 {nil, func(x *Track) { x.Freeze = true; approvals(Approval{Digest: d("b"), Serial: 9})(x) }, "c NeedsApproval, b Waits", "", "c NeedsApproval, b Waits"},
		"of two approvals the later serial":    {nil, approvals(Approval{Digest: d("b"), Serial: 1}, Approval{Digest: d("b"), Serial: 9}), "b Approved, c NeedsApproval", "b", "c NeedsApproval"},
		"also when the earlier comes last":     {nil, approvals(Approval{Digest: d("b"), Serial: 9}, Approval{Digest: d("b"), Serial: 1}), "b Approved, c NeedsApproval", "b", "c NeedsApproval"},
		"both approvals are too early":         {nil, approvals(Approval{Digest: d("b"), Serial: 1}, Approval{Digest: d("b"), Serial: 1}), "b NeedsApproval, c NeedsApproval", "", "b NeedsApproval, c NeedsApproval"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := rev(tc.auto...)
			tc.change(&x)
			for _, images := range [][]Image{{b, c}, {c, b}} {
				s := Observe(runs(a), Observation{Images: []Image{b, c}}, noon)
				if images[0].Digest == c.Digest { // the order of the pointers does not matter
					slices.Reverse(s.Pointers)
				}
				got := decisions(candidates(x, s, Found{}, noon))
				if x.Freeze || tc.taken != "" || tc.auto != nil {
					if got != tc.before {
						t.Errorf("%s, want %s", got, tc.before)
					}
				}
				next, left := Decide(x, s, Found{}, noon)
				want := tc.taken
				if want == "" {
					want = "a"
				}
				if next.Approved.Digest != d(want) {
					t.Errorf("taken %s, want %s", next.Approved.Name(), want)
				}
				if len(left) != len(strings.Split(tc.after, ", ")) {
					t.Errorf("left %s, want %s", decisions(left), tc.after)
				}
			}
		})
	}
}

// A step back that a person approved is remembered: what was left does not come
// back by itself, look after look.
func TestAnApprovedStepBackStays(t *testing.T) {
	t.Parallel()
	old, now := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2")
	x := rev(Rebuild)
	x.Approvals = []Approval{{Digest: old.Digest, Serial: 3, AnyOrder: true, By: "ann", Reason: "b5.2 loses mail"}}
	s := State{Serial: 2, Approved: &now, Pointers: []Pointer{{Image: at("2.6.2", now), Serial: 1}, {Image: at("2.6.2-rev1", old), Serial: 2}}}
	s, left := Decide(x, s, Found{}, noon)
	want := RolledBack{Digest: now.Digest, To: old.Digest, By: "approval", Serial: 3, At: noon}
	if s.Approved.Digest != old.Digest || !s.Approved.At.Equal(noon) || s.Serial != 3 || cmp.Diff([]RolledBack{want}, s.RolledBack) != "" || len(left) != 0 {
		t.Fatalf("%+v, left %s", s, decisions(left))
	}
	if s.Selection == nil || s.Selection.By != "ann: b5.2 loses mail" || s.Selection.From.Digest != now.Digest || s.Selection.Class != Backwards {
		t.Errorf("%+v", s.Selection)
	}
	for range 5 {
		next, cs := look(x, s, Found{}, noon.Add(time.Hour), at("2.6.2", now), at("2.6.2-rev1", old))
		if next.Approved.Digest != old.Digest || decisions(cs) != "b Blocked" || !strings.Contains(cs[0].Why, "rolled back") {
			t.Fatalf("%s, approved %s", decisions(cs), next.Approved.Name())
		}
		next.Selection = s.Selection
		s = next
	}
}

// A frozen track takes nothing: not what is approved, and no name either.
func TestAFrozenTrackTakesNothing(t *testing.T) {
	t.Parallel()
	a, b := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2")
	x := rev(Rebuild)
	x.Freeze = true
	x.Approvals = []Approval{{Digest: b.Digest, Serial: 9}}
	if s, cs := look(x, runs(a), Found{}, noon, b); s.Approved.Digest != a.Digest || decisions(cs) != "b Waits" || !strings.Contains(cs[0].Why, "frozen") {
		t.Errorf("approved: %s", decisions(cs))
	}
	if s, cs := look(x, State{}, Found{}, noon, a); s.Approved != nil || decisions(cs) != "a Waits" || cs[0].Class != Adopt {
		t.Errorf("adopt: %+v", cs)
	}
	x.Freeze = false
	if s, _ := look(x, State{}, Found{}, noon, a); s.Approved == nil {
		t.Error("not frozen, it adopts")
	}
}

// A pointer that goes is kept, and comes back as what it was; what was not known
// of an image is learned, what was is kept.
func TestPointersGoAndComeBack(t *testing.T) {
	t.Parallel()
	a := image("a", "2.6.2-rev1-b5.1")
	s := Observe(State{}, Observation{Images: []Image{at("z", image("b", "")), a}}, noon)
	if s.Serial != 2 || s.Pointers[0].Tag != "2.6.2-rev1" || s.Pointers[0].Serial != 2 || !s.Pointers[0].At.Equal(noon) || s.Pointers[1].Tag != "z" {
		t.Fatalf("%+v", s)
	}
	gone := Observe(s, Observation{Gone: []string{"2.6.2-rev1", "never"}}, noon.Add(time.Hour))
	if len(gone.Pointers) != 1 || !gone.Pointers[0].Gone || gone.Pointers[0].Digest != a.Digest || gone.Serial != 2 {
		t.Fatalf("%+v", gone)
	}
	if cs := candidates(rev(Rebuild), gone, Found{}, noon); len(cs) != 0 {
		t.Errorf("a tag that is gone names a candidate: %+v", cs)
	}
	richer := image("a", "other", func(i *Image) { i.App, i.Same, i.Size, i.Security = "2.6.2", []string{d("e")}, 7, true })
	back := Observe(gone, Observation{Images: []Image{richer}}, noon.Add(2*time.Hour))
	want := Pointer{Image: Image{Digest: a.Digest, Tag: a.Tag, Long: a.Long, App: "2.6.2", Same: []string{d("e")}, Size: 7, Security: true, At: noon}, Serial: 2}
	if diff := cmp.Diff([]Pointer{want}, back.Pointers); diff != "" || back.Serial != 2 {
		t.Error(diff)
	}
	poorer := Observe(back, Observation{Images: []Image{image("a", "")}}, noon.Add(3*time.Hour))
	if diff := cmp.Diff(back.Pointers, poorer.Pointers); diff != "" {
		t.Error("what was known is forgotten: ", diff)
	}
	keeps := Observe(back, Observation{Images: []Image{image("a", "", func(i *Image) { i.Same, i.App, i.Size = []string{d("f")}, "9", 3 })}}, noon)
	if diff := cmp.Diff(back.Pointers, keeps.Pointers); diff != "" {
		t.Error("what was known is replaced: ", diff)
	}
	approved := Image{Digest: a.Digest, Tag: a.Tag}
	s = Observe(State{Approved: &approved}, Observation{Images: []Image{at("z", image("b", "b-long")), richer}}, noon)
	if s.Approved.App != "2.6.2" || s.Approved.Long != "other" || approved.App != "" {
		t.Errorf("what runs learns of its own digest alone: %+v (before %+v)", s.Approved, approved)
	}
	if moved := Observe(s, Observation{Images: []Image{image("e", "")}}, noon); moved.Serial != s.Serial+1 || moved.Pointers[0].Serial != s.Serial+1 {
		t.Errorf("%+v", moved)
	}
}

// Who moves by itself: each class, vouched for or not, on a track whose workloads
// nodes need or not.
func TestWhoMovesByItself(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		track    Track
		class    Class
		vouched  bool
		decision Decision
		says     string
	}{
		"a rebuild where rebuilds may":               {rev(Rebuild), Rebuild, false, Automatic, ""},
		"a rebuild where only security rebuilds may": {rev(Security), Rebuild, true, NeedsApproval, "Rebuild does not move by itself"},
		"a new version where none may":               {rev(Rebuild), NewVersion, true, NeedsApproval, "NewVersion does not move by itself"},
		"a new version, not vouched for":             {rev(Rebuild), NewVersion, false, NeedsApproval, "NewVersion does not move by itself"},
		"security where rebuilds may":                {rev(Rebuild), Security, false, Automatic, ""},
		"security, vouched for, where nothing may":   {rev(), Security, true, NeedsApproval, "SecurityRebuild does not move by itself"},
		"security, vouched for, where it may":        {rev(Security), Security, true, Automatic, ""},
		"security, a label alone":                    {rev(Security), Security, false, NeedsApproval, "a label alone"},
		"a node needs it: a vouched rebuild":         {critical(Rebuild), Rebuild, true, NeedsApproval, "a node needs"},
		"a node needs it: a vouched security":        {critical(Security), Security, true, Automatic, ""},
		"a node needs it: security, a label alone":   {critical(Rebuild, Security), Security, false, NeedsApproval, "a node needs"},
	} {
		d, why := decideAutomatic(tc.track, &Candidate{Image: Image{Vouched: tc.vouched}, Class: tc.class}, noon)
		if d != tc.decision || !strings.Contains(why, tc.says) {
			t.Errorf("%s: %s (%s)", name, d, why)
		}
	}
}

// The order of two candidates, each fact alone, and an approval with its serial.
func TestBefore(t *testing.T) {
	t.Parallel()
	c := func(d Decision, serial int64, long string) Candidate {
		return Candidate{Decision: d, Serial: serial, Image: image(long[len(long)-1:], long)}
	}
	older, newer := "2.6.2-rev1-b5.1", "2.6.2-rev1-b5.2"
	for name, tc := range map[string]struct {
		a, b Candidate
		want bool
	}{
		"approved before automatic":          {c(Approved, 1, older), c(Automatic, 9, newer), true},
		"automatic after approved":           {c(Automatic, 9, newer), c(Approved, 1, older), false},
		"of two approved the later serial":   {c(Approved, 2, older), c(Approved, 1, newer), true},
		"of two approved the earlier serial": {c(Approved, 1, newer), c(Approved, 2, older), false},
		"of two approved at once the newer":  {c(Approved, 1, newer), c(Approved, 1, older), true},
		"of two approved at once the older":  {c(Approved, 1, older), c(Approved, 1, newer), false},
		"of two automatic the newer":         {c(Automatic, 1, newer), c(Automatic, 2, older), true},
		"of two automatic the older":         {c(Automatic, 2, older), c(Automatic, 1, newer), false},
	} {
		if got := preferred(rev(), tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	x := rev()
	x.Approvals = []Approval{{Digest: "a", Serial: -2, By: "first"}, {Digest: "a", Serial: -2, By: "second"}, {Digest: "b", Serial: -1}}
	if a, ok := x.approval("a"); !ok || a.By != "first" {
		t.Errorf("of two that are equal the first: %+v %t", a, ok)
	}
	if _, ok := x.approval("c"); ok {
		t.Error("an approval that was not given")
	}
	backwards := Candidate{Class: Backwards, Image: Image{Digest: "a"}}
	if blocked(x, State{}, &backwards, Approval{AnyOrder: true}, false) == "" {
		t.Error("an approval that is not valid lets a track go backwards")
	}
	zero := Candidate{Class: Rebuild, Image: Image{Digest: "c"}, Serial: 0}
	if decide(x, State{}, &zero, Signature{}, noon); zero.Decision != NeedsApproval {
		t.Errorf("without an approval: %s", zero.Decision)
	}
}

// The state is bounded: ten images to roll back to, sixty-four that must not return.
func TestThePastIsBounded(t *testing.T) {
	t.Parallel()
	s := State{}
	for i := range 80 {
		s.History = append(s.History, Image{Digest: string(rune('A' + i))})
		s.RolledBack = append(s.RolledBack, RolledBack{Digest: string(rune('A' + i))})
	}
	s = s.bounded()
	if len(s.History) != 10 || s.History[0].Digest != "A" || len(s.RolledBack) != 64 || s.RolledBack[63].Digest != string(rune('A'+79)) {
		t.Errorf("%d, %d", len(s.History), len(s.RolledBack))
	}
	h := addToHistory([]Image{{Digest: "a"}, {Digest: "b"}}, Image{Digest: "b", Long: "x"})
	if len(h) != 2 || h[0].Long != "x" || h[1].Digest != "a" {
		t.Errorf("%+v", h)
	}
}

// The most careful class of everything that runs counts.
func TestClassOfWhatRuns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, to Image
		class    Class
		why      string
	}{
		"the same bytes":                            {image("a", ""), image("a", "2.6.2-rev1-b5.1"), Adopt, "these bytes run already"},
		"the same bytes under another name":         {image("b", "", func(i *Image) { i.Same = []string{d("a")} }), image("a", ""), Adopt, "these bytes run already"},
		"a newer build":                             {image("b", "2.6.2-rev1-b5.1"), image("a", "2.6.2-rev1-b5.2"), Rebuild, ""},
		"a newer definition":                        {image("b", "2.6.2-rev1-b5.1"), image("a", "2.6.2-rev2-b1.1"), ImageFix, ""},
		"a newer version":                           {image("b", "2.6.2-rev3-b5.1"), image("a", "2.6.3-rev1-b1.1"), NewVersion, ""},
		"an older version":                          {image("b", "2.6.3-rev1-b1.1"), image("a", "2.6.2-rev3-b5.1"), Backwards, ""},
		"an older definition":                       {image("b", "2.6.2-rev2-b1.1"), image("a", "2.6.2-rev1-b5.1"), Backwards, ""},
		"a long tag on one side, one tag":           {image("b", "2.6.2-rev1-b5.1"), image("a", ""), Unordered, "2.6.2-rev1 names another image than before, and no long tag shows which of the two is newer"},
		"a long tag on the other side":              {image("b", ""), image("a", "2.6.2-rev1-b5.1"), Unordered, "2.6.2-rev1 names another image than before"},
		"no tag is known of what ran":               {Image{Digest: d("b")}, image("a", ""), Unordered, "2.6.2-rev1 names another image than before"},
		"pointers of two definitions":               {at("2.6.2-rev1", image("b", "")), at("2.6.2-rev2", image("a", "")), ImageFix, ""},
		"pointers of two versions":                  {at("2.6.2-rev1", image("b", "")), at("2.6.3-rev1", image("a", "")), NewVersion, ""},
		"pointers backwards":                        {at("2.6.3-rev1", image("b", "")), at("2.6.2-rev1", image("a", "")), Backwards, ""},
		"pointers of two tiers":                     {at("2.6.2", image("b", "")), at("2.6.3-rev1", image("a", "")), Unordered, "2.6.3-rev1 and 2.6.2 cannot be compared, and no long tag names these images"},
		"an unreadable pointer":                     {at("2.6.2-rev1", image("b", "")), at("!", image("a", "")), Unordered, "! and 2.6.2-rev1 cannot be compared"},
		"another unreadable pointer":                {at("!", image("b", "")), at("2.6.2-rev1", image("a", "")), Unordered, "2.6.2-rev1 and ! cannot be compared"},
		"the tag says more than is inside":          {image("b", "2.6.2-rev1-b5.1"), image("a", "2.6.2-rev1-b5.2", func(i *Image) { i.App = "2.6" }), TagVersionMismatch, "tag 2.6.2-rev1-b5.2 says version 2.6.2, the image says that it is 2.6"},
		"inside is a build of it":                   {image("b", "2.6.2-rev1-b5.1"), image("a", "2.6.2-rev1-b5.2", func(i *Image) { i.App = "v2.6.2-rc1" }), Rebuild, ""},
		"inside is a longer number":                 {image("b", "2.6.2-rev1-b5.1"), image("a", "2.6.2-rev1-b5.2", func(i *Image) { i.App = "2.6.21" }), TagVersionMismatch, "tag 2.6.2-rev1-b5.2 says version 2.6.2, the image says that it is 2.6.21"},
		"only the followed tag has another version": {image("b", ""), image("a", "", func(i *Image) { i.App = "2.7.0" }), TagVersionMismatch, "tag 2.6.2-rev1 says version 2.6.2"},
		"a floating tag says nothing":               {at("latest", image("b", "")), at("latest", image("a", "", func(i *Image) { i.App = "2.7.0" })), Unordered, "latest names another image than before"},
	} {
		class, why := Classify(rev(), &tc.from, &tc.to)
		if class != tc.class || !strings.HasPrefix(why, tc.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, class, why, tc.class, tc.why)
		}
	}
}

// Which builds may be behind a pointer.
func TestLongTagsBelong(t *testing.T) {
	t.Parallel()
	listed := []string{"2.6.2-rev1-b5.1", "2.6.2-rev1-b10.1", "2.6.2-rev2-b1.1", "2.6.21-rev1-b1.1", "2.7.0-rev1-b1.1", "2.6.2-rev1", "junk!"}
	for pointer, want := range map[string]string{
		"2.6.2-rev1":       "2.6.2-rev1-b10.1 2.6.2-rev1-b5.1",
		"2.6.2-rev2":       "2.6.2-rev2-b1.1",
		"2.6.2":            "2.6.2-rev2-b1.1 2.6.2-rev1-b10.1 2.6.2-rev1-b5.1",
		"2.6":              "2.6.21-rev1-b1.1 2.6.2-rev2-b1.1 2.6.2-rev1-b10.1 2.6.2-rev1-b5.1",
		"2.6.2-rev1-b10.1": "2.6.2-rev1-b10.1",
		"latest":           "2.7.0-rev1-b1.1 2.6.21-rev1-b1.1 2.6.2-rev2-b1.1 2.6.2-rev1-b10.1 2.6.2-rev1-b5.1",
		"!":                "",
	} {
		if got := strings.Join(LongTags(rev(), pointer, listed), " "); got != want {
			t.Errorf("%s: %s, want %s", pointer, got, want)
		}
	}
	for text, want := range map[string]bool{"": false, "0": true, "9": true, "/": false, ":": false, "v1": true, "v": false, "a1": false} {
		if beginsWithDigit(text) != want {
			t.Error(text)
		}
	}
}

func TestKnownAndIs(t *testing.T) {
	t.Parallel()
	i := Image{Digest: "a", Same: []string{"b"}}
	s := State{Approved: &i, Pointers: []Pointer{{Image: Image{Digest: "c"}}}, History: []Image{{Digest: "e"}}}
	for digest, want := range map[string]string{"a": "a", "b": "a", "c": "c", "e": "e", "f": "", "": ""} {
		got := s.Known(digest)
		if (got != nil) != (want != "") || got != nil && got.Digest != want {
			t.Errorf("%q is %+v", digest, got)
		}
	}
	var none *Image
	if none.Is("a") || (&Image{}).Is("") || !i.Is("b") {
		t.Error("Is")
	}
}

// Each way back to what ran before, with what is remembered of it.
func TestBack(t *testing.T) {
	t.Parallel()
	a, b := image("a", "2.6.2-rev1-b5.1"), image("b", "2.6.2-rev1-b5.2")
	s := State{Serial: 4, Approved: &b, History: []Image{a, image("c", "2.6.2-rev1-b4.1")}, RolledBack: []RolledBack{{Digest: a.Digest}}}
	got := rollBackTo(s, a, "me", noon)
	if got.Serial != 5 || got.Approved.Digest != a.Digest || !got.Approved.At.Equal(noon) || len(got.History) != 1 || got.Selection == nil || got.Selection.By != "me" || got.Selection.From.Digest != b.Digest {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]RolledBack{{Digest: b.Digest, To: a.Digest, By: "me", Serial: 5, At: noon}}, got.RolledBack); diff != "" {
		t.Error(diff)
	}
	for name, w := range map[string]Workload{"it named another before": {Key: "w", Before: a.Digest, Named: a.Digest}, "it still names it": {Key: "w", Before: b.Digest, Named: b.Digest}, "it named nothing": {Key: "w", Named: a.Digest}} {
		if got := followRollback(rev(), s, Found{Workloads: []Workload{w}}, noon); got.Approved.Digest != b.Digest {
			t.Errorf("%s: back to %s", name, got.Approved.Name())
		}
	}
	if got := namedDigests(Found{Workloads: []Workload{{Named: "x"}, {}, {Named: "y"}}}); !slices.Equal(got, []string{"x", "y"}) {
		t.Error(got)
	}
	if CheckVersions("") != nil || CheckVersions(">=1.2") != nil || CheckVersions("nonsense") == nil {
		t.Error("CheckVersions")
	}
	if got := (Summary{}).Sentence(); got != "no images" {
		t.Error(got)
	}
	if got := (Summary{Changed: []Changed{{Class: Security}, {Class: TagVersionMismatch}, {Class: TagVersionMismatch}}}).Sentence(); got != "1 rebuild, 1 of them security, 2 with a version mismatch" {
		t.Error(got)
	}
}
