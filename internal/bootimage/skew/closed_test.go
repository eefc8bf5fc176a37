package skew_test

import (
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/skew"
)

// What is not known is a finding that blocks, never a pass; every sentence in full.
func TestUnknownBlocks(t *testing.T) {
	t.Parallel()
	behind := []skew.Rule{{Name: "d", MinorsBehind: n(2), Why: "kubelets"}}
	old := skew.Source{Release: "1.30.0"}
	for name, tc := range map[string]struct {
		source skew.Source
		target skew.Target
		rules  []skew.Rule
		want   string // "rule kind: message", joined
	}{
		"minors of an image without a release":     {skew.Source{OS: "9.6.20251023-0"}, skew.Target{Kubernetes: "v1.36.3"}, behind, "d Unknown: at most 2 minor versions behind are wanted (kubelets), and the release of the image is not known"},
		"minors to a target that cannot be read":   {old, skew.Target{Kubernetes: "next"}, behind, `d Unknown: the target's version is unreadable: version "next" is of no known scheme`},
		"minors to no target at all":               {old, skew.Target{}, behind, `d Unknown: the target's version is unreadable`},
		"a major step to an OS that is no version": {skew.Source{OS: "9.6.20251023-0"}, skew.Target{OS: "x"}, nil, "one-major-step Unknown: the OS version of the target is unreadable"},
		"a major step from an unknown OS":          {old, skew.Target{OS: "10.0.20260501-0"}, nil, "one-major-step Unknown: the OS version of its image is not known, so the step to OS 10 cannot be checked"},
		"an image that is custom":                  {skew.Source{Unknown: "excluded by a label"}, skew.Target{OS: "10.0.20260501-0"}, nil, "image-known Unknown: it is not known which image it starts machines from: excluded by a label"},
		"no image at all":                          {skew.Source{}, skew.Target{}, nil, "image-known Unknown: it is not known which image it starts machines from: no stream lists it, and no image is declared"},
		"a release that cannot be read":            {skew.Source{Release: "x"}, skew.Target{}, nil, `image-known Unknown: the version of its image is unreadable: release "x", OS ""`},
		"an OS that cannot be read":                {skew.Source{OS: "x"}, skew.Target{}, nil, `image-known Unknown: the version of its image is unreadable: release "", OS "x"`},
		"a minimum without anything to compare":    {old, skew.Target{}, []skew.Rule{{Name: "m", MinimumOS: "9.2"}}, "m Unknown: at least OS 9.2 is wanted, and the image's is not known"},
		"the same for a release":                   {skew.Source{OS: "9.6.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "1.30.0", Why: "w"}}, "m Unknown: at least release 1.30.0 is wanted (w), and the image's is not known"},
		"the same for both":                        {skew.Source{Unknown: "custom"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "1.30.0", MinimumOS: "9.2"}}, "image-known Unknown: it is not known which image it starts machines from: custom; m Unknown: at least release 1.30.0 OS 9.2 is wanted, and the image's is not known"},
		"a legacy version says its release":        {skew.Source{OS: "412.86.202301311551-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.13.0"}}, "m TooOld: its image is of release 4.12.0, at least 4.13.0 is wanted"},
		"it counts if it is older than the stated": {skew.Source{Release: "4.14.0", OS: "412.86.202301311551-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.13.0"}}, "m TooOld: its image is of release 4.12.0, at least 4.13.0 is wanted"},
		"it has no patch version":                  {skew.Source{Release: "4.12.5", OS: "412.86.202301311551-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.12.3"}}, ""},
		"a stated release that is older counts":    {skew.Source{Release: "4.11.0", OS: "412.86.202301311551-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.12.0"}}, "m TooOld: its image is of release 4.11.0, at least 4.12.0 is wanted"},
		"an older image on a node counts": {skew.Source{Release: "4.19.3", OS: "9.6.20251023-0", Installed: "416.94.202410100000-0", InstalledNode: "n1"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.18.0"}},
			"m TooOld: the image that node n1 was installed from is of release 4.16.0, at least 4.18.0 is wanted"},
		"an older image without a release": {skew.Source{Release: "4.19.3", OS: "9.6.20251023-0", Installed: "9.4.20250101-0", InstalledNode: "n1"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.18.0"}},
			"m Unknown: at least release 4.18.0 is wanted, and the image's is not known"},
		"only a release is declared, and a node contradicts it": {skew.Source{Release: "4.19.3", Installed: "416.94.202410100000-0", InstalledNode: "n1"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.18.0"}},
			"m TooOld: the image that node n1 was installed from is of release 4.16.0, at least 4.18.0 is wanted"},
		"only a release is declared, and a node has the OS": {skew.Source{Release: "4.19.3", Installed: "8.6.20250101-0", InstalledNode: "n1"}, skew.Target{OS: "10.0.20260501-0"}, []skew.Rule{{Name: "m", MinimumRelease: "4.18.0"}},
			"one-major-step MajorStep: the image that node n1 was installed from is of OS 8, the target's is 10; at most 1 major step(s) are possible"},
		"a newer image on a node changes nothing":         {skew.Source{Release: "4.14.0", OS: "9.4.20250101-0", Installed: "9.6.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "4.15.0"}}, "m TooOld: its image is of release 4.14.0, at least 4.15.0 is wanted"},
		"an image on a node of another scheme is no OS":   {skew.Source{OS: "9.4.20250101-0", Installed: "3815.2.0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumOS: "9.4"}}, ""},
		"an image on a node does not make a custom known": {skew.Source{Unknown: "custom", Installed: "9.6.20251023-0"}, skew.Target{}, nil, "image-known Unknown: it is not known which image it starts machines from: custom"},
		"a target that breaks, and cannot be read": {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"runtime": "runc", "a": "b"}}, skew.Target{OS: "x"},
			[]skew.Rule{{Name: "runc", MajorSteps: n(9), Incompatible: &skew.Incompatible{Facts: map[string]string{"runtime": "runc", "a": "b"}, TargetMajors: []int{10}}}},
			"runc Unknown: the OS version of the target is unreadable; runc Incompatible: a=b, runtime=runc does not work at the target"},
		"a target whose OS stays as it is":          {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"a": "b"}}, skew.Target{}, []skew.Rule{{Name: "r", Incompatible: &skew.Incompatible{Facts: map[string]string{"a": "b"}, TargetMajors: []int{10}}}}, ""},
		"facts that break with any target":          {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"a": "b"}}, skew.Target{}, []skew.Rule{{Name: "r", Incompatible: &skew.Incompatible{Facts: map[string]string{"a": "b"}}}}, "r Incompatible: a=b does not work at the target"},
		"one fact of two is not there":              {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"a": "b"}}, skew.Target{}, []skew.Rule{{Name: "r", Incompatible: &skew.Incompatible{Facts: map[string]string{"a": "b", "c": "d"}}}}, ""},
		"both of two facts of machines are unknown": {old, skew.Target{}, []skew.Rule{{Name: "f", MinimumFacts: map[string]string{"shim": "15.8", "grub": "2.06"}}}, unknownFact("grub", "2.06") + "; " + unknownFact("shim", "15.8")},
		"a fact that no node reports is declared":   {skew.Source{Release: "1.30.0", Facts: map[string]string{"shim": "15.8"}, Machines: []skew.MachineFact{{Name: "shim"}}}, skew.Target{}, []skew.Rule{{Name: "f", MinimumFacts: map[string]string{"shim": "15.8"}}}, ""},
		"nodes that do not say it are asked before": {skew.Source{Release: "1.30.0", Facts: map[string]string{"shim": "15.8"}, Machines: []skew.MachineFact{{Name: "shim", NotReporting: 1}}}, skew.Target{}, []skew.Rule{{Name: "f", MinimumFacts: map[string]string{"shim": "15.8"}}}, "f Unknown: shim of at least 15.8 is wanted, and that of its machines is not known"},
		"declared too low":                          {skew.Source{Release: "1.30.0", Facts: map[string]string{"shim": "15.7"}}, skew.Target{}, []skew.Rule{{Name: "f", MinimumFacts: map[string]string{"shim": "15.8"}}}, "f Incompatible: the declaration has shim 15.7, at least 15.8 is wanted"},
		"a wanted value that cannot be read":        {skew.Source{Release: "1.30.0", Facts: map[string]string{"shim": "15.8"}}, skew.Target{}, []skew.Rule{{Name: "f", MinimumFacts: map[string]string{"shim": "new"}}}, `f Unknown: shim: "15.8" and "new" cannot be compared: numbers between dots are wanted`},
		"a value of dots only":                      {skew.Source{Release: "1.30.0", Facts: map[string]string{"shim": ".."}}, skew.Target{}, []skew.Rule{{Name: "f", MinimumFacts: map[string]string{"shim": "0"}}}, `f Unknown: shim: ".." and "0" cannot be compared`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.source.Name, tc.source.Mode = "pool", skew.Automatic
			got := skew.Evaluate(skew.Input{Source: tc.source, Target: tc.target, Rules: tc.rules, Now: now})
			said(t, got, tc.want)
			if skew.Blocks(got) != (tc.want != "") {
				t.Error("blocks:", skew.Blocks(got))
			}
		})
	}
}

// Limits, with the value that is still good and the next.
func TestLimits(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		source skew.Source
		target skew.Target
		rules  []skew.Rule
		want   string
	}{
		"as old as it may be":                          {skew.Source{OS: "9.6.20251023-0", Published: now.Add(-180 * day)}, skew.Target{}, []skew.Rule{{Name: "a", MaxAge: 180 * day}}, ""},
		"a second older":                               {skew.Source{OS: "9.6.20251023-0", Published: now.Add(-180*day - time.Second)}, skew.Target{}, []skew.Rule{{Name: "a", MaxAge: 180 * day}}, "a TooOld: its image of 2026-05-24 is older than 180 days"},
		"as young as it may be":                        {skew.Source{OS: "9.6.20251023-0", Published: now.Add(-7 * day)}, skew.Target{}, []skew.Rule{{Name: "a", MinAge: 7 * day}}, ""},
		"a second younger":                             {skew.Source{OS: "9.6.20251023-0", Published: now.Add(-7*day + time.Second)}, skew.Target{}, []skew.Rule{{Name: "a", MinAge: 7 * day}}, "a TooFresh: its image of 2026-11-13 is younger than 7 days"},
		"published in a time to come":                  {skew.Source{OS: "9.6.20251023-0", Published: now.Add(day)}, skew.Target{}, []skew.Rule{{Name: "a", MaxAge: 7 * day}}, ""},
		"a rule of one nanosecond":                     {skew.Source{OS: "9.6.20251023-0", Published: now.Add(-2)}, skew.Target{}, []skew.Rule{{Name: "a", MinAge: 1, MaxAge: 1}}, "a TooOld: its image of 2026-11-20 is older than 0 days"},
		"the age of an image that is custom":           {skew.Source{OS: "9.6.20251023-0", Unknown: "custom"}, skew.Target{}, []skew.Rule{{Name: "a", MaxAge: 7 * day}}, "image-known Unknown: it is not known which image it starts machines from: custom; a Unknown: the age of its image is not known"},
		"published this very moment":                   {skew.Source{OS: "9.6.20251023-0", Published: now}, skew.Target{}, []skew.Rule{{Name: "a", MinAge: 1}}, "a TooFresh: its image of 2026-11-20 is younger than 0 days"},
		"a rule of one nanosecond, and no age":         {skew.Source{Release: "1.30.0"}, skew.Target{}, []skew.Rule{{Name: "a", MinAge: 1}}, "a AgeUnknown: the age of its image is not known"},
		"two steps, and a rule that allows two":        {skew.Source{OS: "48.84.202208021106-0"}, skew.Target{OS: "10.0.20260501-0"}, []skew.Rule{{Name: "two", MajorSteps: n(2)}}, ""},
		"two steps, and a rule for another target":     {skew.Source{OS: "48.84.202208021106-0"}, skew.Target{OS: "10.0.20260501-0", Kubernetes: "1.36.0"}, []skew.Rule{{Name: "two", MajorSteps: n(2), Targets: []string{"1.37"}}}, "one-major-step MajorStep: its image is of OS 8, the target's is 10; at most 1 major step(s) are possible (no release is tested over a larger step)"},
		"two steps, and a rule about something else":   {skew.Source{OS: "48.84.202208021106-0"}, skew.Target{OS: "10.0.20260501-0"}, []skew.Rule{{Name: "e", MaxAge: 100000 * day}}, "one-major-step MajorStep"},
		"one step back":                                {skew.Source{OS: "10.0.20260501-0"}, skew.Target{OS: "9.6.20251023-0"}, nil, ""},
		"minors of a platform":                         {skew.Source{Release: "4.17.0"}, skew.Target{Release: "4.19.0", Kubernetes: "1.32.0"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, ""},
		"one minor too many of a platform":             {skew.Source{Release: "4.16.0"}, skew.Target{Release: "4.19.0", Kubernetes: "1.32.0"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, "d TooOld: its image is of release 4.16.0, 3 minor versions behind 4.19; at most 2 are wanted"},
		"minors of a platform that cannot be compared": {skew.Source{Release: "3.16.0"}, skew.Target{Release: "4.19.0", Kubernetes: "1.32.0"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, "d Unknown: release 3.16.0 of the image and 4.19.0 of the target count differently"},
		"the same, Kubernetes cannot be read":          {skew.Source{Release: "1.31.0"}, skew.Target{Release: "4.19.0", Kubernetes: "next"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, "d Unknown: release 1.31.0 of the image and 4.19.0 of the target count differently"},
		"newer than the target":                        {skew.Source{Release: "1.39.0"}, skew.Target{Kubernetes: "1.36.0"}, []skew.Rule{{Name: "d", MinorsBehind: n(0)}}, ""},
		"a platform's release with no Kubernetes":      {skew.Source{Release: "1.31.0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, "d Unknown: release 1.31.0 of the image and 4.19.0 of the target count differently"},
		"a minimum of the same scheme":                 {skew.Source{OS: "9.6.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumOS: "9.6.20251024-0"}}, "m TooOld: its image is of OS 9.6.20251023-0, at least 9.6.20251024-0 is wanted"},
		"a short minimum of builds":                    {skew.Source{OS: "9.1.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumOS: "9.2"}}, "m TooOld"},
		"a short minimum of a major":                   {skew.Source{OS: "10.0.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumOS: "9.2"}}, ""},
		"a release against a short minimum":            {skew.Source{Release: "1.30.1"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumRelease: "1.30"}}, ""},
		"a whole version against builds":               {skew.Source{OS: "9.1.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "m", MinimumOS: "412.86.202301311551-0"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.source.Name, tc.source.Mode = "pool", skew.Automatic
			said(t, skew.Evaluate(skew.Input{Source: tc.source, Target: tc.target, Rules: tc.rules, Now: now}), tc.want)
		})
	}
}

// said compares the findings with "rule kind: message; ..." by their beginnings.
func said(t *testing.T, got []skew.Finding, want string) {
	t.Helper()
	rest := want
	for i, f := range got {
		text := f.Rule + " " + f.Kind + ": " + f.Message
		next := rest
		if i+1 < len(got) {
			next = cutAt(rest, "; "+got[i+1].Rule+" "+got[i+1].Kind)
		}
		if next == "" || len(text) < len(next) || text[:len(next)] != next {
			t.Errorf("finding %d is %q, want %q", i, text, next)
		}
		rest = rest[min(len(rest), len(next)+2):]
	}
	if rest != "" {
		t.Errorf("missing: %q; found: %+v", rest, got)
	}
}

func cutAt(s, at string) string {
	for i := range s {
		if len(s)-i >= len(at) && s[i:i+len(at)] == at {
			return s[:i]
		}
	}
	return s
}

func TestCompareFact(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, a, b string
		order      int
		same, bad  bool
	}{
		{"cpu", "x86-64-v3", "x86-64-v2", 1, true, false}, {"cpu", "x86-64-v2", "x86-64-v2", 0, true, false}, {"cpu", "x86-64", "x86-64-v1", -1, true, false},
		{"cpu", "arm64", "x86-64-v1", 0, false, false}, {"cpu", "arm64", "arm64", 0, true, false}, {"cpu", "-v3", "-v2", 0, false, false}, {"cpu", "a-vx", "a-vx", 0, true, false},
		{"shim", "15.8", "15.8.0", 0, true, false}, {"shim", "15.8.0", "15.8", 0, true, false}, {"shim", "15", "15.8", -1, true, false}, {"shim", "15.8", "15", 1, true, false},
		{"shim", "15.8", "15.8.1", -1, true, false}, {"loaderBuilt", "2026-05-01", "2026-04-30", 1, true, false}, {"grub", "", "1", 0, true, true}, {"grub", "1", "", 0, true, true}, {"grub", "x", "1", 0, true, true},
	} {
		order, same, err := skew.CompareFact(tc.name, tc.a, tc.b)
		if order != tc.order || same != tc.same || (err != nil) != tc.bad {
			t.Errorf("%s %q %q: %d %t %v", tc.name, tc.a, tc.b, order, same, err)
		}
	}
}

// The first waiver in force is named.
func TestFirstWaiver(t *testing.T) {
	t.Parallel()
	until := now.Add(time.Hour)
	fs := skew.Evaluate(skew.Input{Source: skew.Source{Name: "p", Mode: skew.Manual}, Now: now, Waivers: []skew.Waiver{{Source: "q", Reason: "other", Until: until}, {Source: "p", Reason: "first", Until: until}, {Source: "p", Reason: "second", Until: until}}})
	if len(fs) != 1 || fs[0].Waived != "until 2026-11-20T13:00:00Z: first" {
		t.Errorf("%+v", fs)
	}
	if fs := skew.Evaluate(skew.Input{Source: skew.Source{Name: "p", Mode: skew.None}, Now: now, Waivers: []skew.Waiver{{Source: "p", Reason: "first", Until: until}}}); fs[0].Waived != "the administrator accepted the risk: skew is not enforced for this source" {
		t.Errorf("%+v", fs)
	}
}

func unknownFact(name, least string) string {
	return "f Unknown: " + name + " of at least " + least + " is wanted, and that of its machines is not known"
}
