package osimage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func inputs(change ...func(*Inputs)) Inputs {
	in := Inputs{OSImage: "edge", Base: "r.example/base@sha256:aa", Config: "c1", Repository: "r.example/os/edge"}
	for _, c := range change {
		c(&in)
	}
	return in
}

// The name is the inputs.
func TestName(t *testing.T) {
	base := inputs()
	if base.Name() != inputs(func(i *Inputs) { i.Platforms = []string{} }).Name() {
		t.Error("the same inputs have two names")
	}
	if a, b := inputs(func(i *Inputs) { i.Packages = []string{"a", "b"} }), inputs(func(i *Inputs) { i.Packages = []string{"b", "a"} }); a.Name() != b.Name() {
		t.Error("the order of packages is a difference")
	}
	seen := map[string]string{base.Name(): "nothing"}
	for what, change := range map[string]func(*Inputs){
		"base":          func(i *Inputs) { i.Base = "r.example/base@sha256:bb" },
		"configuration": func(i *Inputs) { i.Config = "c2" },
		"Containerfile": func(i *Inputs) { i.Containerfile = "FROM configs" },
		"context":       func(i *Inputs) { i.Containerfile, i.Context = "FROM configs", "x" },
		"packages":      func(i *Inputs) { i.Packages = []string{"chrony"} },
		"repository":    func(i *Inputs) { i.Repository = "r.example/os/other" },
		"platforms":     func(i *Inputs) { i.Platforms = []string{"linux/arm64"} },
		"output":        func(i *Inputs) { i.Output = "Nodes" },
		"OSImage":       func(i *Inputs) { i.OSImage = "core" },
	} {
		other := inputs(change)
		if who := seen[other.Name()]; who != "" {
			t.Errorf("%s and %s are one build", what, who)
		}
		seen[other.Name()] = what
		if diff := other.ChangedSince(base); !slices.Contains(diff, what) {
			t.Errorf("%s is reported as %v", what, diff)
		}
	}
	for what, change := range map[string]func(*Inputs){
		"arm64": func(i *Inputs) { i.PerArchitecture = map[string]string{"arm64": "FROM configs"} },
		"amd64": func(i *Inputs) { i.PerArchitecture = map[string]string{"amd64": "FROM configs"} },
		"both": func(i *Inputs) {
			i.PerArchitecture = map[string]string{"amd64": "FROM configs", "arm64": "FROM configs"}
		},
	} {
		other := inputs(change)
		if who := seen[other.Name()]; who != "" || !slices.Contains(other.ChangedSince(base), "Containerfile") {
			t.Errorf("%s and %q are one build, or differ in %v", what, who, other.ChangedSince(base))
		}
		seen[other.Name()] = what
	}
	both := inputs(func(i *Inputs) { i.Containerfile, i.PerArchitecture = "all", map[string]string{"arm64": "arm"} })
	if got := []string{both.ContainerfileFor("linux/amd64"), both.ContainerfileFor("linux/arm64"), both.ContainerfileFor("linux/arm64/v8"), both.ContainerfileFor("")}; !slices.Equal(got, []string{"all", "arm", "arm", "all"}) {
		t.Error(got)
	}
	if n := inputs(func(i *Inputs) { i.OSImage = strings.Repeat("a", 49) + ".b" }).Name(); len(n) > 63 || strings.Contains(n, ".-") {
		t.Error(n)
	}
}

func TestChoose(t *testing.T) {
	for want, in := range map[Builder]Inputs{Append: inputs(), Containerfile: inputs(func(i *Inputs) { i.Packages = []string{"vim"} })} {
		if b, why := in.ChooseBuilder(); b != want || why == "" {
			t.Error(b, why)
		}
	}
}

func build(in Inputs, phase Phase, change ...func(*Build)) Build {
	b := Build{Name: in.Name(), Inputs: in, Phase: phase, Message: "RUN false ended with 1"}
	if phase == Succeeded {
		b.Digest = "sha256:" + in.Config
	}
	for _, c := range change {
		c(&b)
	}
	return b
}

func TestDecide(t *testing.T) {
	wanted := inputs()
	older := inputs(func(i *Inputs) { i.Config = "c0" })
	running := build(older, Building)
	for name, c := range map[string]struct {
		s    Situation
		verb Verb
		says string
	}{
		"no build yet": {Situation{}, Make, "no image of these inputs"},
		"another build exists, and the reason names the change": {Situation{Builds: []Build{build(older, Succeeded)}, Current: older.Name()}, Make, "changed since " + older.Name() + ": configuration"},
		"newer inputs interrupt":                                {Situation{Builds: []Build{running}}, Make, "interrupts " + older.Name()},
		"it is building":                                        {Situation{Builds: []Build{build(wanted, Building)}}, Wait, "is building"},
		"a restart finds it and makes no other":                 {Situation{Builds: []Build{build(wanted, Prepared)}}, Wait, "is prepared"},
		"the base is on no node yet":                            {Situation{NoBase: "insert a bundle"}, Wait, "insert a bundle"},
		"the base is not needed for what was made":              {Situation{NoBase: "insert a bundle", Builds: []Build{build(wanted, Succeeded)}, Registry: Present}, Use, ""},
		"nor is what was made taken away before":                {Situation{NoBase: "insert a bundle", Builds: []Build{build(wanted, Interrupted)}}, Wait, "insert a bundle"},
		"it was built before":                                   {Situation{Builds: []Build{build(wanted, Succeeded)}, Registry: Present}, Use, "made it"},
		"first the registry is asked":                           {Situation{Builds: []Build{build(wanted, Succeeded)}}, Ask, "still there?"},
		"absent":                                                {Situation{Builds: []Build{build(wanted, Succeeded)}, Registry: Absent}, Remake, "any more"},
		"denied is not absent":                                  {Situation{Builds: []Build{build(wanted, Succeeded)}, Registry: Denied}, Wait, "the registry denies refit access"},
		"away is not absent":                                    {Situation{Builds: []Build{build(wanted, Succeeded)}, Registry: Unreachable}, Wait, "does not answer"},
		"failed, with the log":                                  {Situation{Builds: []Build{build(wanted, Failed)}}, Stuck, "RUN false"},
		"failed, and a person asks again":                       {Situation{Builds: []Build{build(wanted, Failed)}, RetryRequested: true}, Remake, "asked for it again"},
		"asking again does not redo what succeeded":             {Situation{Builds: []Build{build(wanted, Succeeded)}, Registry: Present, RetryRequested: true}, Use, ""},
		"interrupted, and wanted again":                         {Situation{Builds: []Build{build(wanted, Interrupted)}}, Remake, "interrupted"},
		"it is being deleted":                                   {Situation{Builds: []Build{build(wanted, Succeeded, func(b *Build) { b.Deleting = true })}}, Wait, "being deleted"},
		"what cannot be":                                        {Situation{Refused: "the base is not there", Builds: []Build{running}}, Stuck, "the base is not there"},
		"only live changes":                                     {Situation{Builds: []Build{build(older, Succeeded)}, Current: older.Name(), Live: true, LiveWhy: "file /etc/motd", Registry: Present}, Keep, "file /etc/motd"},
		"only live changes, but there is no image yet":          {Situation{Live: true}, Make, ""},
		"only live changes, and the image is gone":              {Situation{Builds: []Build{build(older, Succeeded)}, Current: older.Name(), Live: true, Registry: Absent}, Make, "changed since"},
		"held on what was built before":                         {Situation{HeldBuild: older.Name(), Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: wanted.Name(), Registry: Present}, Use, "held on build " + older.Name()},
		"held, and first the registry is asked":                 {Situation{HeldBuild: older.Name(), Builds: []Build{build(older, Succeeded)}}, Ask, "still there?"},
		"held, and what is wanted today cannot be":              {Situation{HeldBuild: older.Name(), Builds: []Build{build(older, Succeeded)}, Registry: Present, Refused: "a conflict"}, Use, "held on build"},
		"held on an unknown build":                              {Situation{HeldBuild: "edge-1"}, Stuck, "has none of that name"},
		"held on a build that failed":                           {Situation{HeldBuild: older.Name(), Builds: []Build{build(older, Failed)}}, Stuck, "made no image"},
		"held, and its image is gone: it is not remade":         {Situation{HeldBuild: older.Name(), Builds: []Build{build(older, Succeeded)}, Registry: Absent}, Stuck, "has its image no more"},
		"returning to an earlier build makes no new one":        {Situation{Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: older.Name(), Live: true, Registry: Present}, Use, ""},
		"the image differs only in what agents write":           {Situation{Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: older.Name(), BootNotNeeded: "2 files", Registry: Present}, Keep, "2 files"},
		"it does, and the registry lost it":                     {Situation{Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: older.Name(), BootNotNeeded: "2 files", Registry: Absent}, Remake, ""},
		"it does, and the pool's own build is gone":             {Situation{Builds: []Build{build(wanted, Succeeded)}, Current: older.Name(), BootNotNeeded: "2 files", Registry: Present}, Use, ""},
		"it does, and a person holds the pool on it":            {Situation{HeldBuild: wanted.Name(), Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: older.Name(), BootNotNeeded: "2 files", Registry: Present}, Use, "held on"},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Wanted = wanted
			d := Decide(c.s)
			got := d.Why
			if len(d.Interrupt) > 0 {
				got += " interrupts " + strings.Join(d.Interrupt, " ")
			}
			if d.Verb != c.verb || !strings.Contains(got, c.says) {
				t.Errorf("%s: %q", d.Verb, got)
			}
			if (d.Verb == Wait || d.Verb == Stuck) != (d.Reason != "") {
				t.Errorf("reason %q of %s", d.Reason, d.Verb)
			}
		})
	}
}

// Deciding and doing what was decided comes to an end, and never makes a second
// build of the same inputs, with any earlier builds.
func TestDecisionsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Situation{Wanted: inputs(), Live: rapid.Bool().Draw(t, "live"), RetryRequested: rapid.Bool().Draw(t, "again")}
		for i := range rapid.IntRange(0, 3).Draw(t, "builds") {
			in := inputs(func(in *Inputs) { in.Config = fmt.Sprint("c", i) })
			s.Builds = append(s.Builds, build(in, rapid.SampledFrom([]Phase{Prepared, Building, Succeeded, Failed, Interrupted}).Draw(t, "phase")))
			if rapid.Bool().Draw(t, "current") {
				s.Current = in.Name()
			}
		}
		s.Registry = rapid.SampledFrom([]Answer{Unasked, Present, Absent}).Draw(t, "registry")
		for range 8 {
			d := Decide(s)
			for i := range s.Builds {
				if slices.Contains(d.Interrupt, s.Builds[i].Name) {
					s.Builds[i].Phase = Interrupted
				}
			}
			switch d.Verb {
			case Use, Keep, Stuck:
				return
			case Ask:
				s.Registry = Present
			case Make, Remake:
				s.Builds = slices.DeleteFunc(s.Builds, func(b Build) bool { return b.Name == d.Build })
				for _, in := range []Inputs{s.Wanted, inputs(func(in *Inputs) { in.Config = "c0" }), inputs(func(in *Inputs) { in.Config = "c2" })} {
					if in.Name() == d.Build {
						s.Builds = append(s.Builds, build(in, Building))
						break
					}
				}
				s.RetryRequested, s.Registry = false, Present
			case Wait:
				for i := range s.Builds {
					if s.Builds[i].Name == d.Build {
						s.Builds[i] = build(s.Builds[i].Inputs, Succeeded)
					}
				}
			}
			seen := map[string]bool{}
			for _, b := range s.Builds {
				if seen[b.Name] {
					t.Fatal("two builds of the same inputs")
				}
				seen[b.Name] = true
			}
		}
		t.Fatalf("no end: %+v", Decide(s))
	})
}
func TestGarbage(t *testing.T) {
	at := func(i int, phase Phase) Build {
		return build(inputs(func(in *Inputs) { in.Config = fmt.Sprint("c", i) }), phase, func(b *Build) {
			b.Name, b.CreatedAt = fmt.Sprint("b", i), time.Date(2026, 11, i, 0, 0, 0, 0, time.UTC)
		})
	}
	builds := []Build{at(1, Succeeded), at(2, Succeeded), at(3, Failed), at(4, Succeeded), at(5, Failed), at(6, Interrupted), at(7, Succeeded), at(8, Building), at(9, Succeeded)}
	builds[0].Manifests = []string{"sha256:m0", "sha256:m1"}
	for name, c := range map[string]struct {
		used, named map[string]bool
		keep        int
		want        []string
	}{
		"the newest two stay, and the newest failure":        {nil, nil, 2, []string{"b1", "b2", "b3", "b4", "b6"}},
		"a node has booted, wants or would roll back to one": {map[string]bool{"sha256:c1": true}, nil, 2, []string{"b2", "b3", "b4", "b6"}},
		"a node says the digest of its platform":             {map[string]bool{"sha256:m1": true}, nil, 2, []string{"b2", "b3", "b4", "b6"}},
		"a pool names one":                                   {nil, map[string]bool{"b2": true}, 1, []string{"b1", "b3", "b4", "b6", "b7"}},
		"what is used does not count among those kept":       {map[string]bool{"sha256:c9": true}, nil, 1, []string{"b1", "b2", "b3", "b4", "b6"}},
		"none are kept but those that are used or runs":      {map[string]bool{"sha256:c9": true}, nil, 0, []string{"b1", "b2", "b3", "b4", "b6", "b7"}},
	} {
		if diff := cmp.Diff(c.want, Garbage(builds, c.used, c.named, c.keep)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
func TestContainerfile(t *testing.T) {
	for name, c := range map[string]struct {
		text, says string
		from       []string
	}{
		"the smallest":                        {"FROM configs\n", "", nil},
		"with stages of its own":              {"FROM golang:1 AS make\nRUN go build\nFROM configs AS final\nCOPY --from=make /x /usr/bin/x\n", "", []string{"golang:1"}},
		"its last stage by way of another":    {"FROM configs AS a\nRUN x\nFROM a\n", "", nil},
		"the stage is not used":               {"FROM fedora:41\nRUN x\n", "does not come from configs", []string{"fedora:41"}},
		"the stage is not the last":           {"FROM configs AS a\nFROM fedora:41\n", "does not come from configs", []string{"fedora:41"}},
		"the stage's name is taken":           {"FROM fedora:41 AS configs\n", "is refit's", []string{"fedora:41"}},
		"no FROM":                             {"ARG a\n", "it has no FROM", nil},
		"an instruction that is none":         {"FROM configs\nRUNN x\n", `line 2: there is no instruction "RUNN"`, nil},
		"an instruction without its argument": {"FROM configs\nCOPY\n", "line 2: COPY needs an argument", nil},
		"something before the first FROM":     {"RUN x\nFROM configs\n", "line 1: RUN comes before", nil},
		"a heredoc":                           {"FROM configs\nRUN <<EOF\nanything at all\nFROM x\nEOF\nRUN y\n", "", nil},
		"two heredocs":                        {"FROM configs\nCOPY <<A <<\"B\" /x/\none\nA\ntwo\nB\nRUN y\n", "", nil},
		"an unquoted LABEL":                   {"FROM configs\nLABEL a=b c d=e\n", "", nil},
		"continued lines with a comment":      {"FROM configs\nRUN a && \\\n  # why\n  b\n", "", nil},
		"a heredoc that does not end":         {"FROM configs\nRUN <<EOF\nx", "", nil},
		"small letters":                       {"from configs as final\nrun x\n", "", nil},
		"a platform":                          {"FROM --platform=linux/amd64 golang:1 AS m\nFROM configs\n", "", []string{"golang:1"}},
		"too large":                           {"FROM configs\n" + strings.Repeat("# ", maxContainerfile), "bytes", nil},
		"a FROM that is none":                 {"FROM configs final\n", "FROM takes an image", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckContainerfile(c.text)
			if (len(got.Problems) == 0) != (c.says == "") || len(got.Problems) > 0 && !strings.Contains(got.Problems[0], c.says) {
				t.Errorf("%q", got.Problems)
			}
			if diff := cmp.Diff(c.from, got.From); diff != "" {
				t.Error(diff)
			}
		})
	}
	// What is generated passes the same check as the base of what a user writes.
	whole := RenderContainerfile("r/x@sha256:aa", []string{"chrony", "vim"}, "FROM configs AS final\nRUN true")
	if !strings.HasPrefix(whole, "FROM r/x@sha256:aa AS configs\nRUN ") || !strings.Contains(whole, "\nFROM configs AS final\nRUN true\nRUN { if command -v rpm >/dev/null;") || !strings.HasSuffix(whole, "|| true\n") {
		t.Error(whole)
	}
	for _, l := range lines(whole) {
		if _, known := instructions[l.word]; !known {
			t.Errorf("%+v", l)
		}
	}
}

func FuzzContainerfile(f *testing.F) {
	f.Add("FROM configs\nRUN <<EOF\nx\nEOF\n")
	f.Add("FROM a \\\n AS b\n#\nRUN x \\")
	f.Fuzz(func(_ *testing.T, text string) { CheckContainerfile(text) })
}

// Compared are only images that nodes could stay on.
func TestComparable(t *testing.T) {
	wanted, older := inputs(), inputs(func(i *Inputs) { i.Config = "c0" })
	use := Decision{Verb: Use, Build: wanted.Name()}
	for name, c := range map[string]struct {
		s    Situation
		d    Decision
		want string
	}{
		"another is used than the pool has": {Situation{Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: older.Name()}, use, older.Name()},
		"the pool has it":                   {Situation{Builds: []Build{build(wanted, Succeeded)}, Current: wanted.Name()}, use, ""},
		"the pool has none":                 {Situation{Builds: []Build{build(wanted, Succeeded)}}, use, ""},
		"a person holds it":                 {Situation{HeldBuild: wanted.Name(), Builds: []Build{build(wanted, Succeeded), build(older, Succeeded)}, Current: older.Name()}, use, ""},
		"it waits":                          {Situation{Builds: []Build{build(older, Succeeded)}, Current: older.Name()}, Decision{Verb: Wait, Build: wanted.Name()}, ""},
		"the pool's is being deleted":       {Situation{Builds: []Build{build(wanted, Succeeded), build(older, Succeeded, func(b *Build) { b.Deleting = true })}, Current: older.Name()}, use, ""},
	} {
		got := ""
		if b := c.s.Comparable(c.d); b != nil {
			got = b.Name
		}
		if got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
