package skew_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/bootimage/skew"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func n(i int) *int { return &i }

// The rules, one sentence each. want lists
// "rule kind", with ~ before what was waived.
func TestRules(t *testing.T) {
	t.Parallel()
	cpuV3 := skew.Rule{Name: "cpu", MinimumFacts: map[string]string{"cpu": "x86-64-v3"}}
	loader := skew.Rule{Name: "loader", MinimumFacts: map[string]string{"shim": "15.8", "grub": "2.06"}}
	minimum := skew.Rule{Name: "min", MinimumRelease: "4.13.0", MinimumOS: "9.2"}
	for name, tc := range map[string]struct {
		source  skew.Source
		target  skew.Target
		rules   []skew.Rule
		waivers []skew.Waiver
		want    string
	}{
		"new enough by release":                           {skew.Source{Release: "4.13.0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, ""},
		"too old by release":                              {skew.Source{Release: "4.12.9"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, "min TooOld"},
		"the release decides if both are there":           {skew.Source{Release: "4.19.0", OS: "9.0.20230101-0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, ""},
		"the OS decides if there is no release":           {skew.Source{OS: "9.0.20230101-0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, "min TooOld"},
		"an OS build of the minimum minor is enough":      {skew.Source{OS: "9.2.20230101-0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, ""},
		"a legacy version says its release":               {skew.Source{OS: "412.86.202301311551-0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, "min TooOld"},
		"an OS version of a scheme that does not fit":     {skew.Source{OS: "20250115"}, skew.Target{Release: "4.19.0"}, []skew.Rule{minimum}, nil, "min Unknown"},
		"a rule that cannot be read closes":               {skew.Source{Release: "4.19.0"}, skew.Target{Release: "4.19.0"}, []skew.Rule{{Name: "bad", MinimumRelease: "latest"}}, nil, "bad RuleUnusable"},
		"a rule for another target says nothing":          {skew.Source{Release: "1.30.0"}, skew.Target{Kubernetes: "v1.36.3"}, []skew.Rule{{Name: "r", Targets: []string{"1.37"}, MinimumRelease: "1.35.0"}}, nil, ""},
		"a rule for this target":                          {skew.Source{Release: "1.30.0"}, skew.Target{Kubernetes: "v1.37.0"}, []skew.Rule{{Name: "r", Targets: []string{"1.37"}, MinimumRelease: "1.35.0"}}, nil, "r TooOld"},
		"a target that cannot be read matches":            {skew.Source{Release: "1.30.0"}, skew.Target{Kubernetes: "next"}, []skew.Rule{{Name: "r", Targets: []string{"1.37"}, MinimumRelease: "1.35.0"}}, nil, "r TooOld"},
		"two minors behind are fine":                      {skew.Source{Release: "1.34.1"}, skew.Target{Kubernetes: "v1.36.3"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, nil, ""},
		"three are not":                                   {skew.Source{Release: "1.33.1"}, skew.Target{Kubernetes: "v1.36.3"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, nil, "d TooOld"},
		"minors of Kubernetes and of a platform":          {skew.Source{Release: "1.33.1"}, skew.Target{Kubernetes: "v1.36.3", Release: "4.23.0"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, nil, "d TooOld"},
		"minors that count differently":                   {skew.Source{Release: "4.19.0"}, skew.Target{Kubernetes: "v1.36.3"}, []skew.Rule{{Name: "d", MinorsBehind: n(2)}}, nil, "d Unknown"},
		"one major step is possible without any rule":     {skew.Source{OS: "9.6.20251023-0"}, skew.Target{OS: "10.0.20260501-0"}, nil, nil, ""},
		"two are not":                                     {skew.Source{OS: "48.84.202208021106-0"}, skew.Target{OS: "10.0.20260501-0"}, nil, nil, "one-major-step MajorStep"},
		"nor two back":                                    {skew.Source{OS: "10.0.20260501-0"}, skew.Target{OS: "8.10.20260501-0"}, nil, nil, "one-major-step MajorStep"},
		"a rule may allow none":                           {skew.Source{OS: "9.6.20251023-0"}, skew.Target{OS: "10.0.20260501-0"}, []skew.Rule{{Name: "same", MajorSteps: n(0)}}, nil, "same MajorStep"},
		"the OS of the image must be known for a step":    {skew.Source{Release: "4.19.0"}, skew.Target{OS: "10.0.20260501-0"}, nil, nil, "one-major-step Unknown"},
		"a runtime that is gone":                          {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"runtime": "runc"}}, skew.Target{OS: "10.0.20260501-0"}, []skew.Rule{{Name: "runc", Incompatible: &skew.Incompatible{Facts: map[string]string{"runtime": "runc"}, TargetMajors: []int{10}}}}, nil, "runc Incompatible"},
		"the same runtime at an OS that has it":           {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"runtime": "runc"}}, skew.Target{OS: "9.8.20260501-0"}, []skew.Rule{{Name: "runc", Incompatible: &skew.Incompatible{Facts: map[string]string{"runtime": "runc"}, TargetMajors: []int{10}}}}, nil, ""},
		"another runtime":                                 {skew.Source{OS: "9.6.20251023-0", Facts: map[string]string{"runtime": "crun"}}, skew.Target{OS: "10.0.20260501-0"}, []skew.Rule{{Name: "runc", Incompatible: &skew.Incompatible{Facts: map[string]string{"runtime": "runc"}}}}, nil, ""},
		"an image must have soaked":                       {skew.Source{OS: "9.6.20261119-0"}, skew.Target{}, []skew.Rule{{Name: "soak", MinAge: 7 * 24 * time.Hour}}, nil, "soak TooFresh"},
		"an image that soaked":                            {skew.Source{OS: "9.6.20261101-0"}, skew.Target{}, []skew.Rule{{Name: "soak", MinAge: 7 * 24 * time.Hour}}, nil, ""},
		"an image that is too old by its day":             {skew.Source{OS: "9.6.20251023-0"}, skew.Target{}, []skew.Rule{{Name: "age", MaxAge: 180 * 24 * time.Hour}}, nil, "age TooOld"},
		"an unknown age":                                  {skew.Source{Release: "1.36.3"}, skew.Target{}, []skew.Rule{{Name: "age", MaxAge: 180 * 24 * time.Hour}}, nil, "age Unknown"},
		"a published day counts before the build's":       {skew.Source{OS: "9.6.20251023-0", Published: now.Add(-time.Hour)}, skew.Target{}, []skew.Rule{{Name: "age", MaxAge: 180 * 24 * time.Hour}}, nil, ""},
		"an OS stream that the release still has":         {skew.Source{OS: "9.6.20251023-0", OSStream: "rhel-9"}, skew.Target{Release: "4.22.0", Known: true, OSStreams: []string{"rhel-10", "rhel-9"}}, nil, nil, ""},
		"an OS stream that the release has retired":       {skew.Source{OS: "9.6.20251023-0", OSStream: "rhel-9"}, skew.Target{Release: "4.23.0", Known: true, OSStreams: []string{"rhel-10"}}, nil, nil, "os-stream-there Incompatible"},
		"the default OS stream is always there":           {skew.Source{OS: "9.6.20251023-0"}, skew.Target{Release: "4.23.0", Known: true}, nil, nil, ""},
		"a release whose images are unknown":              {skew.Source{OS: "9.6.20251023-0", OSStream: "rhel-9"}, skew.Target{Kubernetes: "1.40.0"}, nil, nil, ""},
		"a processor that is new enough":                  {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "cpu", Least: "x86-64-v3", Example: "n1"}}}, skew.Target{}, []skew.Rule{cpuV3}, nil, ""},
		"a processor that is not":                         {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "cpu", Least: "x86-64-v2", Example: "n1"}}}, skew.Target{}, []skew.Rule{cpuV3}, nil, "cpu Incompatible"},
		"a node that does not say its processor":          {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "cpu", Least: "x86-64-v3", NotReporting: 1}}}, skew.Target{}, []skew.Rule{cpuV3}, nil, "cpu Unknown"},
		"no node says it":                                 {skew.Source{Release: "1.36.3"}, skew.Target{}, []skew.Rule{cpuV3}, nil, "cpu Unknown"},
		"no node yet, and it is declared":                 {skew.Source{Release: "1.36.3", Facts: map[string]string{"cpu": "x86-64-v3"}}, skew.Target{}, []skew.Rule{cpuV3}, nil, ""},
		"what a node says counts before what is declared": {skew.Source{Release: "1.36.3", Facts: map[string]string{"cpu": "x86-64-v3"}, Machines: []skew.MachineFact{{Name: "cpu", Least: "x86-64-v1"}}}, skew.Target{}, []skew.Rule{cpuV3}, nil, "cpu Incompatible"},
		"a rule about another architecture":               {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "cpu", Least: "arm64"}}}, skew.Target{}, []skew.Rule{cpuV3}, nil, ""},
		"an old boot loader":                              {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "shim", Least: "15.4"}, {Name: "grub", Least: "2.06"}}}, skew.Target{}, []skew.Rule{loader}, nil, "loader Incompatible"},
		"a boot loader that is new enough":                {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "shim", Least: "15.10"}, {Name: "grub", Least: "2.12"}}}, skew.Target{}, []skew.Rule{loader}, nil, ""},
		"a boot loader that cannot be read":               {skew.Source{Release: "1.36.3", Machines: []skew.MachineFact{{Name: "shim", Least: "new"}, {Name: "grub", Least: "2.12"}}}, skew.Target{}, []skew.Rule{loader}, nil, "loader Unknown"},
		"nothing is known":                                {skew.Source{}, skew.Target{}, nil, nil, "image-known Unknown"},
		"a custom image is unknown under any name":        {skew.Source{Unknown: "a custom image", OS: "9.6.20251023-0"}, skew.Target{}, []skew.Rule{minimum}, nil, "image-known Unknown, min Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.source.Name, tc.source.Mode = "pool", skew.Automatic
			got := skew.Evaluate(skew.Input{Source: tc.source, Target: tc.target, Rules: tc.rules, Waivers: tc.waivers, Now: now})
			if s := say(got); s != tc.want {
				t.Errorf("%q, want %q: %+v", s, tc.want, got)
			}
			if skew.Blocks(got) != (tc.want != "") {
				t.Error("blocks:", skew.Blocks(got))
			}
		})
	}
}

func say(fs []skew.Finding) string {
	var out []string
	for _, f := range fs {
		w := ""
		if f.Waived != "" {
			w = "~"
		}
		out = append(out, w+f.Rule+" "+f.Kind)
	}
	return strings.Join(out, ", ")
}

// The highest minimum age counts, of the rules that apply and that no waiver covers.
func TestRequiredAge(t *testing.T) {
	t.Parallel()
	const d = 24 * time.Hour
	built := time.Date(2025, 10, 23, 0, 0, 0, 0, time.UTC)
	week, month := skew.Rule{Name: "week", MinAge: 7 * d}, skew.Rule{Name: "month", Targets: []string{"1.36"}, MinAge: 30 * d}
	waiver := func(rule string) []skew.Waiver {
		return []skew.Waiver{{Source: "p", Rule: rule, Reason: "urgent", Until: now.Add(time.Hour)}}
	}
	for name, tc := range map[string]struct {
		os, target string
		mode       string
		rules      []skew.Rule
		waivers    []skew.Waiver
		want       skew.MinimumAge
	}{
		"no rule":                     {"9.6.20251023-0", "1.36.3", "", []skew.Rule{{Name: "max", MaxAge: d}}, nil, skew.MinimumAge{}},
		"the highest":                 {"9.6.20251023-0", "1.36.3", "", []skew.Rule{week, month}, nil, skew.MinimumAge{Rule: "month", Age: 30 * d, Built: built}},
		"in any order":                {"9.6.20251023-0", "1.36.3", "", []skew.Rule{month, week}, nil, skew.MinimumAge{Rule: "month", Age: 30 * d, Built: built}},
		"of another target":           {"9.6.20251023-0", "1.37.0", "", []skew.Rule{week, month}, nil, skew.MinimumAge{Rule: "week", Age: 7 * d, Built: built}},
		"waived":                      {"9.6.20251023-0", "1.36.3", "", []skew.Rule{week, month}, waiver("month"), skew.MinimumAge{Rule: "week", Age: 7 * d, Built: built}},
		"all waived":                  {"9.6.20251023-0", "1.36.3", "", []skew.Rule{week, month}, waiver(""), skew.MinimumAge{}},
		"the risk is accepted":        {"9.6.20251023-0", "1.36.3", skew.None, []skew.Rule{week}, nil, skew.MinimumAge{}},
		"a version without a date":    {"3815.2.0", "1.36.3", "", []skew.Rule{week}, nil, skew.MinimumAge{Rule: "week", Age: 7 * d}},
		"a version that is not known": {"golden", "1.36.3", "", []skew.Rule{week}, nil, skew.MinimumAge{Rule: "week", Age: 7 * d}},
	} {
		got := skew.RequiredAge(skew.Input{Source: skew.Source{Name: "p", Mode: tc.mode, OS: tc.os}, Target: skew.Target{Kubernetes: tc.target}, Rules: tc.rules, Waivers: tc.waivers, Now: now})
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// A8: a version that cannot be read is Unknown and a violation, unless waived.
func TestA8UnparseableVersionIsAViolationUnlessWaived(t *testing.T) {
	t.Parallel()
	in := skew.Input{Source: skew.Source{Name: "pool", Mode: skew.Manual, OS: "golden-image-final-2"}, Now: now,
		Rules: []skew.Rule{{Name: "min", MinimumOS: "9.2"}}}
	fs := skew.Evaluate(in)
	if say(fs) != "image-known Unknown, min Unknown" || !skew.Blocks(fs) || !strings.Contains(fs[0].Message, `"golden-image-final-2"`) {
		t.Fatalf("%+v", fs)
	}
	in.Waivers = []skew.Waiver{{Source: "po*", Reason: "checked by hand", Until: now.Add(time.Hour)}}
	if fs = skew.Evaluate(in); skew.Blocks(fs) || say(fs) != "~image-known Unknown, ~min Unknown" {
		t.Errorf("waived, and still said: %+v", fs)
	}
}

// A10: one major step allowed, two refused; a waiver holds until its end.
func TestA10OneMajorStepAndWaiverWithExpiry(t *testing.T) {
	t.Parallel()
	evaluate := func(os string, ws ...skew.Waiver) []skew.Finding {
		return skew.Evaluate(skew.Input{Source: skew.Source{Name: "workers", Mode: skew.Automatic, OS: os}, Target: skew.Target{Kubernetes: "1.36.3", OS: "10.0.20260501-0"}, Waivers: ws, Now: now})
	}
	if fs := evaluate("9.6.20251023-0"); len(fs) != 0 {
		t.Errorf("9 to 10: %+v", fs)
	}
	fs := evaluate("48.84.202208021106-0")
	if !skew.Blocks(fs) || !strings.Contains(fs[0].Message, "OS 8, the target's is 10") {
		t.Errorf("8 to 10: %+v", fs)
	}
	w := skew.Waiver{Source: "workers", Rule: skew.RuleMajor, Reason: "tested here", Until: now.Add(time.Minute)}
	for name, tc := range map[string]struct {
		change func(*skew.Waiver)
		blocks bool
	}{
		"in force":                  {func(*skew.Waiver) {}, false},
		"ended this very moment":    {func(w *skew.Waiver) { w.Until = now }, true},
		"for another source":        {func(w *skew.Waiver) { w.Source = "workers-b" }, true},
		"for another rule":          {func(w *skew.Waiver) { w.Rule = "min" }, true},
		"without a reason":          {func(w *skew.Waiver) { w.Reason = " " }, true},
		"for every rule":            {func(w *skew.Waiver) { w.Rule = "" }, false},
		"for every source":          {func(w *skew.Waiver) { w.Source = "*" }, false},
		"for sources that begin so": {func(w *skew.Waiver) { w.Source = "work*" }, false},
	} {
		v := w
		tc.change(&v)
		if fs := evaluate("48.84.202208021106-0", v); skew.Blocks(fs) != tc.blocks || len(fs) != 1 {
			t.Errorf("%s: %+v", name, fs)
		}
	}
}

// Opted out, nothing blocks, and it is still said.
func TestNoneIsSaidAndDoesNotBlock(t *testing.T) {
	t.Parallel()
	fs := skew.Evaluate(skew.Input{Source: skew.Source{Name: "p", Mode: skew.None}, Now: now})
	if skew.Blocks(fs) || say(fs) != "~image-known Unknown" {
		t.Errorf("%+v", fs)
	}
}

// An unreadable version never passes a minimum.
func TestUnreadableNeverPasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := skew.Source{Name: "p", Mode: skew.Manual, OS: rapid.StringMatching(`[a-z]{1,8}[-0-9a-z.]{0,12}`).Draw(rt, "os")}
		if strings.HasPrefix(s.OS, "v") {
			return
		}
		if fs := skew.Evaluate(skew.Input{Source: s, Rules: []skew.Rule{{Name: "m", MinimumOS: "9.2"}}, Now: now}); !skew.Blocks(fs) {
			rt.Fatalf("%q passes: %+v", s.OS, fs)
		}
	})
}
