package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/model"
)

// sum is a digest that is made of a word.
func sum(word string) string {
	return "sha256:" + (fmt.Sprintf("%x", word) + strings.Repeat("0", 64))[:64]
}

// image of version 2.6.2 with one definition, base and package.
func image(word string, change ...func(*Image)) Image {
	i := Image{Digest: sum(word), Version: "2.6.2", Release: "3.1", Definition: "def-1", Base: sum("base-1"), Layers: []string{"base-1", "app-1"}, Platforms: []string{"linux/amd64", "linux/arm64"}}
	for _, c := range change {
		c(&i)
	}
	return i
}

func version(v string) func(*Image)    { return func(i *Image) { i.Version = v } }
func release(r string) func(*Image)    { return func(i *Image) { i.Release = r } }
func definition(d string) func(*Image) { return func(i *Image) { i.Definition = d } }
func config(c string) func(*Image)     { return func(i *Image) { i.Definition, i.Config = "", c } }
func base(b string) func(*Image) {
	return func(i *Image) { i.Base, i.Layers = sum(b), []string{b, "app-1"} }
}
func platforms(p ...string) func(*Image) {
	return func(i *Image) { i.Platforms = p }
}

// repository of two lines: 2.5.9 and 2.6.2, the newer with a revision and a rebuild.
func repository() Published {
	p := Published{Repository: "registry.example/app", Scheme: "rev", Tags: map[string]string{}, Images: map[string]Image{}}
	add := func(i Image, tags ...string) {
		p.Images[i.Digest] = i
		for _, t := range tags {
			p.Tags[t] = i.Digest
		}
	}
	add(image("old", version("2.5.9")), "2.5.9-rev1-b7.1", "2.5.9-rev1", "2.5.9", "2.5")
	add(image("one", definition("def-0")), "2.6.2-rev1-b4.1", "2.6.2-rev1")
	add(image("two", base("base-0")), "2.6.2-rev2-b5.9")
	add(image("three"), "2.6.2-rev2-b5.10", "2.6.2-rev2", "2.6.2", "2.6", "2", "latest")
	return p
}

// movement is what happens to one tag: new, moves, stays (not there before and
// after is "-").
func movement(p Published, plan Plan, text string) string {
	for _, s := range plan.Steps {
		if s.Tag == text {
			return map[string]string{Create: "new", Move: "moves"}[s.Verb]
		}
	}
	if p.Tags[text] == "" {
		return "-"
	}
	return "stays"
}

// The movement matrix: which tag is new, moves or stays in which
// case, who decides, and how the old image is reached.
func TestMovementMatrix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event     Event
		want      Case
		automatic bool
		tags      map[string]string
		reachable []string
	}{
		"case 1: a new patch release of the newest line": {
			Event{Image: image("new", version("2.6.3")), Build: "1.1"}, NewVersion, false,
			map[string]string{"2.6.3-rev1-b1.1": "new", "2.6.3-rev1": "new", "2.6.3": "new", "2.6": "moves", "2": "moves", "latest": "moves", "2.6.2": "stays", "2.6.2-rev2": "stays", "2.5": "stays"}, nil,
		},
		"case 1: a new line": {
			Event{Image: image("new", version("3.0.0")), Build: "1.1"}, NewVersion, false,
			map[string]string{"3.0.0-rev1-b1.1": "new", "3.0.0-rev1": "new", "3.0.0": "new", "3.0": "new", "3": "new", "latest": "moves", "2": "stays", "2.6": "stays"}, nil,
		},
		"case 1: a new patch release of the older line takes nothing of the newer": {
			Event{Image: image("new", version("2.5.10")), Build: "1.1"}, NewVersion, false,
			map[string]string{"2.5.10-rev1-b1.1": "new", "2.5.10-rev1": "new", "2.5.10": "new", "2.5": "moves", "2": "stays", "latest": "stays"}, nil,
		},
		"case 1: a pre-release moves nothing": {
			Event{Image: image("new", version("2.7.0-rc.1")), Build: "1.1"}, NewVersion, false,
			map[string]string{"2.7.0-rc.1-rev1-b1.1": "new", "2.7.0-rc.1": "new", "2.7": "-", "2": "stays", "latest": "stays"}, nil,
		},
		"case 2: the definition was fixed": {
			Event{Image: image("new", definition("def-3")), Rev: 3, Build: "6.1"}, Fix, false,
			map[string]string{"2.6.2-rev3-b6.1": "new", "2.6.2-rev3": "new", "2.6.2": "moves", "2.6": "moves", "2": "moves", "latest": "moves", "2.6.2-rev2": "stays", "2.6.2-rev2-b5.10": "stays"},
			[]string{"2.6.2-rev2-b5.10", "2.6.2-rev2"},
		},
		"case 3: an automatic rebuild": {
			Event{Image: image("new", base("base-2")), Build: "5.11"}, Rebuild, true,
			map[string]string{"2.6.2-rev2-b5.11": "new", "2.6.2-rev2": "moves", "2.6.2": "moves", "2.6": "moves", "latest": "moves", "2.6.2-rev1": "stays"},
			[]string{"2.6.2-rev2-b5.10"},
		},
		"case 3: a rebuild of the revision before moves only that": {
			Event{Image: image("new", definition("def-0"), base("base-2")), Rev: 1, Build: "4.2"}, Rebuild, true,
			map[string]string{"2.6.2-rev1-b4.2": "new", "2.6.2-rev1": "moves", "2.6.2": "stays", "2.6.2-rev2": "stays", "2.6": "stays", "latest": "stays"},
			[]string{"2.6.2-rev1-b4.1"},
		},
		"case 3: a rebuild of the older line": {
			Event{Image: image("new", version("2.5.9"), base("base-2")), Build: "7.2"}, Rebuild, true,
			map[string]string{"2.5.9-rev1-b7.2": "new", "2.5.9-rev1": "moves", "2.5.9": "moves", "2.5": "moves", "2": "stays", "latest": "stays"},
			[]string{"2.5.9-rev1-b7.1"},
		},
		"case 4a: the package was updated, the version was not": {
			Event{Image: image("new", release("3.2")), Build: "5.11"}, Maintenance, true,
			map[string]string{"2.6.2-rev2-b5.11": "new", "2.6.2-rev2": "moves", "2.6.2": "moves", "latest": "moves"},
			[]string{"2.6.2-rev2-b5.10"},
		},
		"case 4b: the version was updated under the old tag": {
			Event{Image: image("new", version("2.6.3")), App: "2.6.2", Build: "5.11"}, VersionMismatch, false,
			map[string]string{"2.6.2-rev2-b5.11": "-", "2.6.2-rev2": "stays", "2.6.2": "stays", "latest": "stays"}, nil,
		},
		"a reproducible rebuild gave the same bytes": {
			Event{Image: image("three"), Build: "5.12"}, NoChange, true,
			map[string]string{"2.6.2-rev2-b5.12": "-", "2.6.2-rev2": "stays"}, []string{"2.6.2-rev2-b5.9"},
		},
		"the same bytes, to be counted here, need no number": {
			Event{Image: image("three"), Build: "next"}, NoChange, true,
			map[string]string{"2.6.2-rev2-b5.11": "-", "2.6.2-rev2": "stays"}, nil,
		},
		"builds are counted when they are published": {
			Event{Image: image("new", base("base-2")), Build: "next"}, Rebuild, true,
			map[string]string{"2.6.2-rev2-b5.11": "new", "2.6.2-rev2": "moves"}, []string{"2.6.2-rev2-b5.10"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := repository()
			plan := MakePlan(p, c.event, Rules{})
			if plan.Case != c.want || plan.Automatic != c.automatic || plan.Refused() != (c.want == VersionMismatch) {
				t.Errorf("case %s, automatic %v, refusals %v; want %s, %v", plan.Case, plan.Automatic, plan.Refusals, c.want, c.automatic)
			}
			got := map[string]string{}
			for text := range c.tags {
				got[text] = movement(p, plan, text)
			}
			if d := cmp.Diff(c.tags, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.reachable, plan.ReachableBy); d != "" && c.want != NoChange {
				t.Errorf("the old image is reached by: %s", d)
			}
		})
	}
}

// Every bad move is refused, with its reason word and a fix.
func TestBadMovesAreRefused(t *testing.T) {
	t.Parallel()
	rebuild := image("new", base("base-2"))
	for name, c := range map[string]struct {
		event  Event
		rules  Rules
		change func(*Published)
		reason string
	}{
		"a tag of another version":                         {Event{Image: image("new", version("2.6.3")), App: "2.6.2", Build: "5.11"}, Rules{}, nil, reasonTagVersionMismatch},
		"a long tag is overwritten":                        {Event{Image: rebuild, Build: "5.10"}, Rules{}, nil, reasonTagTaken},
		"the revision was not bumped":                      {Event{Image: image("new", definition("def-3")), Build: "5.11"}, Rules{}, nil, reasonRevNotBumped},
		"a container starts otherwise, revision as before": {Event{Image: image("new", config("b")), Build: "5.11"}, Rules{}, func(p *Published) { p.Images[sum("three")] = image("three", config("a")) }, reasonRevNotBumped},
		"the build is not greater":                         {Event{Image: rebuild, Build: "5.2"}, Rules{}, nil, reasonBuildNotGreater},
		"the build is below all of its revision":           {Event{Image: rebuild, Build: "1"}, Rules{}, nil, reasonBuildNotGreater},
		"the build was counted elsewhere":                  {Event{Image: rebuild, Build: "99", Project: "devel"}, Rules{}, func(p *Published) { p.Project = "product" }, reasonBuildNotGreater},
		"an old line wants latest":                         {Event{Image: image("new", version("2.5.10")), Build: "1", Want: []string{"latest"}}, Rules{}, nil, reasonTagWouldRegress},
		"an old line wants the aggregate":                  {Event{Image: image("new", version("2.5.10")), Build: "1", Want: []string{"2"}}, Rules{}, nil, reasonTagWouldRegress},
		"an old revision wants the short tag":              {Event{Image: image("new", definition("def-0"), base("base-2")), Rev: 1, Build: "4.2", Want: []string{"2.6.2"}}, Rules{}, nil, reasonTagWouldRegress},
		"another version's tag":                            {Event{Image: rebuild, Build: "5.11", Want: []string{"2.6.1"}}, Rules{}, nil, reasonTagVersionMismatch},
		"an illegal tag":                                   {Event{Image: rebuild, Build: "5.11", Want: []string{"2.6.2-rev2+5.11"}}, Rules{}, nil, reasonTagIllegal},
		"a version that no tag may have":                   {Event{Image: image("new", version("2.6.3+7")), Build: "1"}, Rules{}, nil, reasonTagIllegal},
		"a build that is no number":                        {Event{Image: rebuild, Build: "5.x"}, Rules{}, nil, reasonTagIllegal},
		"no build":                                         {Event{Image: rebuild}, Rules{}, nil, reasonTagIllegal},
		"a tag that does not follow":                       {Event{Image: rebuild, Build: "5.11", Want: []string{"stable"}}, Rules{}, nil, reasonTagNotPlanned},
		"another build's long tag":                         {Event{Image: rebuild, Build: "5.11", Want: []string{"2.6.2-rev2-b5.9"}}, Rules{}, nil, reasonTagTaken},
		"a platform is missing":                            {Event{Image: image("new", base("base-2"), platforms("linux/amd64")), Build: "5.11"}, Rules{}, nil, reasonPlatformsLost},
		"a case that is not the one":                       {Event{Image: image("new", version("2.6.3")), Build: "1", Case: Rebuild}, Rules{}, nil, reasonCaseDiffers},
		"the image says no version":                        {Event{Image: image("new", version("")), Build: "5.11"}, Rules{}, nil, reasonVersionUnknown},
		"an unapproved digest":                             {Event{Image: rebuild, Build: "5.11"}, Rules{Gate: true, Approved: []string{sum("three")}}, nil, reasonImageUnapproved},
		"an old digest under a new number":                 {Event{Image: image("two", base("base-0")), Build: "5.12"}, Rules{}, nil, reasonReleaseWouldRegress},
		"an old digest, to be counted here":                {Event{Image: image("two", base("base-0")), Build: "next"}, Rules{}, nil, reasonReleaseWouldRegress},
		"an older package":                                 {Event{Image: image("new", release("2.9")), Build: "5.11"}, Rules{}, nil, reasonReleaseWouldRegress},
		"an older version under an aggregate": {Event{Image: image("new", version("2.6.2")), App: "2.6", Build: "2"}, Rules{}, func(p *Published) {
			p.Tags = map[string]string{"2.6-rev1-b1": sum("x")}
			p.Images[sum("x")] = image("x", version("2.6.3"))
		}, reasonReleaseWouldRegress},
		"an unknown pointer":                      {Event{Image: rebuild, Build: "5.11"}, Rules{}, func(p *Published) { p.Tags["2.6.2"] = sum("hand") }, reasonPointerUnknown},
		"unknown content":                         {Event{Image: rebuild, Build: "5.11"}, Rules{}, func(p *Published) { delete(p.Images, sum("three")) }, reasonFactUnknown},
		"an unknown scheme":                       {Event{Image: rebuild, Build: "5.11"}, Rules{}, func(p *Published) { p.Scheme = "mine" }, reasonSchemeUnfit},
		"a scheme that is only read":              {Event{Image: rebuild, Build: "5.11"}, Rules{}, func(p *Published) { p.Scheme = `regexp:(?P<app>.+)` }, reasonSchemeUnfit},
		"a rebuild under a scheme without builds": {Event{Image: rebuild}, Rules{}, func(p *Published) { p.Scheme, p.Tags = "semver", map[string]string{"2.6.2": sum("three")} }, reasonTagTaken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := repository()
			if c.change != nil {
				c.change(&p)
			}
			plan := MakePlan(p, c.event, c.rules)
			if !slices.ContainsFunc(plan.Refusals, func(v model.Blocker) bool { return v.Reason == c.reason }) || len(plan.Steps) > 0 || plan.Automatic {
				t.Fatalf("want %s: %+v", c.reason, plan)
			}
			for _, v := range plan.Refusals {
				if v.Message == "" || v.Fix == "" || v.Object != p.Repository {
					t.Errorf("a refusal without sentence, fix or place: %+v", v)
				}
			}
		})
	}
}

func TestTheLieShowsThePlanThatIsRight(t *testing.T) {
	t.Parallel()
	plan := MakePlan(repository(), Event{Image: image("new", version("2.6.3")), App: "2.6.2", Build: "5.11"}, Rules{})
	if plan.Instead == nil || plan.Instead.Case != NewVersion || plan.Instead.Long != "2.6.3-rev1-b5.11" {
		t.Fatalf("%+v", plan.Instead)
	}
	if !strings.Contains(plan.Refusals[0].Message, "patch release") {
		t.Error(plan.Refusals[0].Message)
	}
	plan = MakePlan(repository(), Event{Image: image("new", version("2.7.0")), App: "2.6.2", Build: "5.11"}, Rules{})
	if !strings.Contains(plan.Refusals[0].Message, "more than a patch release") {
		t.Errorf("%s", plan.Refusals[0].Message)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event Event
		rules Rules
		add   map[string]string
		word  string
	}{
		"the revision was bumped for nothing":     {Event{Image: image("new", base("base-2")), Rev: 3, Build: "1"}, Rules{}, nil, "definition is the same"},
		"revisions were left out":                 {Event{Image: image("new", definition("def-9")), Rev: 9, Build: "1"}, Rules{}, nil, "never published"},
		"a new version with a late revision":      {Event{Image: image("new", version("2.6.3")), Rev: 4, Build: "1"}, Rules{}, nil, "begin with 1"},
		"the definition is not known":             {Event{Image: image("new", definition("")), Build: "5.11"}, Rules{}, nil, "not known"},
		"tags of another scheme":                  {Event{Image: image("new", base("base-2")), Build: "5.11"}, Rules{}, map[string]string{"1.0-rev1-rev2": sum("x")}, "left alone"},
		"a version below one that is published":   {Event{Image: image("new", version("2.6.1")), Build: "1"}, Rules{}, nil, "no pointer of that line moves"},
		"the last name of an image is taken away": {Event{Image: image("new", base("base-2")), Build: "5.11"}, Rules{Adopt: true}, map[string]string{"2.6.2": sum("hand")}, "may delete it"},
	} {
		p := repository()
		maps.Copy(p.Tags, c.add)
		plan := MakePlan(p, c.event, c.rules)
		if plan.Refused() || !slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, c.word) }) {
			t.Errorf("%s: refusals %v, warnings %q", name, plan.Refusals, plan.Warnings)
		}
	}
}

// Steps come in the order in which one that breaks off does no harm, each with
// the digest that its tag must have before.
func TestStepsInOrder(t *testing.T) {
	t.Parallel()
	plan := MakePlan(repository(), Event{Image: image("new", base("base-2")), Build: "5.11", From: "candidates.example/app", Floating: []string{"stable"}}, Rules{})
	var got []string
	for _, s := range plan.Steps {
		got = append(got, strings.TrimSpace(s.Verb+" "+s.Tag+" "+s.From))
		if s.To != sum("new") || s.Why == "" {
			t.Errorf("%+v", s)
		}
	}
	three := " " + sum("three")
	want := []string{"copy  candidates.example/app", "create 2.6.2-rev2-b5.11", "move 2.6.2-rev2" + three, "move 2.6.2" + three, "move 2.6" + three, "move 2" + three, "move latest" + three, "create stable"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestVariantsDoNotTakeEachOthersTags(t *testing.T) {
	t.Parallel()
	p := Published{Repository: "r.example/app", Scheme: "distro-r", Tags: map[string]string{
		"1.2.3-debian-12-r7": sum("d12"), "1.2.3-debian-12": sum("d12"), "1.2.3": sum("d12"), "1.2.3-debian-11-r4": sum("d11"), "1.2.3-debian-11": sum("d11"),
	}, Images: map[string]Image{sum("d12"): {Digest: sum("d12"), Version: "1.2.3"}, sum("d11"): {Digest: sum("d11"), Version: "1.2.3"}}}
	plan := MakePlan(p, Event{Image: Image{Digest: sum("new"), Version: "1.2.3"}, Variant: "debian-11", Build: "5"}, Rules{})
	if plan.Refused() || movement(p, plan, "1.2.3-debian-11") != "moves" || movement(p, plan, "1.2.3") != "stays" || movement(p, plan, "1.2.3-debian-12") != "stays" {
		t.Errorf("%+v", plan)
	}
	plan = MakePlan(p, Event{Image: Image{Digest: sum("new"), Version: "1.2.3"}, Variant: "debian-12", Build: "8"}, Rules{})
	if plan.Refused() || movement(p, plan, "1.2.3-debian-12") != "moves" || movement(p, plan, "1.2.3") != "moves" {
		t.Errorf("%+v", plan)
	}
}

func TestMappedVersion(t *testing.T) {
	t.Parallel()
	plan := MakePlan(repository(), Event{Image: image("new", version("2.6.3+7")), Build: "1"}, Rules{Mapping: imagetag.PlusAsUnderscore()})
	if plan.Refused() || plan.Long != "2.6.3_7-rev1-b1" {
		t.Errorf("%+v", plan)
	}
}

func TestNeedsIsWhatMakeLooksAt(t *testing.T) {
	t.Parallel()
	p := repository()
	p.Tags["stable"] = sum("hand")
	e := Event{Image: image("new", base("base-2")), Build: "5.11"}
	need := Needs(p, e, Rules{})
	if d := cmp.Diff([]string{sum("hand"), sum("three")}, need); d != "" {
		t.Error(d)
	}
	want := MakePlan(p, e, Rules{})
	maps.DeleteFunc(p.Images, func(d string, _ Image) bool { return !slices.Contains(need, d) })
	if d := cmp.Diff(want, MakePlan(p, e, Rules{})); d != "" {
		t.Errorf("content that was not asked for changes the plan: %s", d)
	}
}

func TestEventFromTagAndLabels(t *testing.T) {
	t.Parallel()
	s, err := imagetag.ByName("rev")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		given  Event
		tag    string
		labels map[string]string
		want   Event
	}{
		"a long tag":                       {Event{}, "2.6.2-rev3-b5.1", nil, Event{App: "2.6.2", Rev: 3, Build: "5.1"}},
		"the event goes first":             {Event{App: "2.6.3", Build: "next"}, "2.6.2-rev3-b5.1", nil, Event{App: "2.6.3", Rev: 3, Build: "next"}},
		"a floating tag says nothing":      {Event{}, "candidate", nil, Event{}},
		"a revision by label":              {Event{}, "candidate", map[string]string{LabelRev: "4"}, Event{Rev: 4}},
		"a reference to the build's tag":   {Event{}, "candidate", map[string]string{LabelReference: "r.example/app:2.6.2-rev3-b5.1"}, Event{App: "2.6.2", Rev: 3, Build: "5.1"}},
		"a reference of the base image":    {Event{}, "candidate", map[string]string{LabelReference: "r.example/base:15.6-rev3-b5.1"}, Event{}},
		"a reference without tag is empty": {Event{}, "candidate", map[string]string{LabelReference: "r.example/app", LabelRev: "x"}, Event{}},
	} {
		got := c.given
		got.FromTag(s, c.tag)
		got.FromLabels(s, c.labels, "r.example/candidates", "r.example/app")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	var i Image
	i.Describe(map[string]string{LabelVersion: "1", LabelBase: "b", LabelDefinition: "d", LabelRelease: "r"})
	if d := cmp.Diff(Image{Version: "1", Base: "b", Definition: "d", Release: "r"}, i); d != "" {
		t.Error(d)
	}
}
