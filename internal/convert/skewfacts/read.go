// Package skewfacts makes the values of package skew from refit's objects, for the
// controller, which writes them, and for the command line, which may be given a
// dump of them.
//
// Promise: reads only. Both callers judge by the same facts: what is in the
// MachineSource and the policy, nothing else.
//
// Inputs: MachineSource, BootImagePolicy, rules. Output: skew.Source, findings.
package skewfacts

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/osversion"
)

// Rules makes values of rules.
func Rules(in []v1alpha1.SkewRule) []skew.Rule {
	var out []skew.Rule
	for _, r := range in {
		v := skew.Rule{Name: r.Name, Targets: r.Targets, MinimumRelease: r.MinimumRelease, MinimumOS: r.MinimumOS, MinorsBehind: number(r.MinorsBehind), MajorSteps: number(r.MajorSteps),
			MinAge: days(r.MinAgeDays), MaxAge: days(r.MaxAgeDays), MinimumFacts: r.MinimumFacts, Why: r.Why}
		if i := r.Incompatible; i != nil {
			v.Incompatible = &skew.Incompatible{Facts: i.Facts}
			for _, m := range i.TargetMajors {
				v.Incompatible.TargetMajors = append(v.Incompatible.TargetMajors, int(m))
			}
		}
		out = append(out, v)
	}
	return out
}

func number(p *int32) *int {
	if p == nil {
		return nil
	}
	n := int(*p)
	return &n
}

func days(p *int32) time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(*p) * 24 * time.Hour
}

// Waivers makes values of waivers.
func Waivers(in []v1alpha1.SkewWaiver) []skew.Waiver {
	var out []skew.Waiver
	for _, w := range in {
		out = append(out, skew.Waiver{Source: w.Source, Rule: w.Rule, Reason: w.Reason, Until: w.Until.Time})
	}
	return out
}

// Source makes the value of a source. facts are those of the policy.
func Source(s *v1alpha1.MachineSource) skew.Source {
	out := skew.Source{Name: s.Name, Mode: cmp.Or(s.Status.SkewMode, skew.Manual), OSStream: s.Status.OSStream, Facts: map[string]string{}}
	maps.Copy(out.Facts, s.Status.Facts)
	maps.Copy(out.Facts, s.Spec.Facts)
	for _, m := range s.Status.Machines {
		out.Machines = append(out.Machines, skew.MachineFact{Name: m.Name, Least: m.Least, Example: "node " + m.Example, Silent: int(m.Silent)})
		if m.Least != "" && out.Facts[m.Name] == "" {
			out.Facts[m.Name] = m.Least // for rules about what does not go together
		}
	}
	known := s.Status.Referenced
	if known != nil {
		out.Release, out.OS = known.Release, known.OS
	}
	if d := s.Spec.Declared; d != nil && (out.Mode != skew.Automatic || out.OS == "" && out.Release == "") {
		out.Release, out.OS = d.Release, d.OS
	}
	out.Unknown = unknown(s, out)
	return out
}

func unknown(s *v1alpha1.MachineSource, v skew.Source) string {
	switch known := s.Status.Referenced; {
	case s.Status.Contradiction != "":
		return s.Status.Contradiction
	case s.Spec.Declared == nil && s.Status.State == v1alpha1.SourceExcluded:
		return "it is excluded, and nobody has declared its image"
	case v.Release == "" && v.OS == "" && known != nil && known.Image != "":
		return "image " + known.Image + " is of no stream, and nobody has declared its version"
	}
	return ""
}

// Judge says which rules do not hold for a source at a target.
func Judge(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, rules []v1alpha1.SkewRule, target skew.Target, now time.Time) []skew.Finding {
	in := skew.Input{Source: Source(s), Target: target, Rules: Rules(rules), Now: now}
	if p != nil {
		in.Rules = append(in.Rules, Rules(p.Spec.Skew.Rules)...)
		in.Waivers = Waivers(p.Spec.Skew.Waivers)
	}
	return skew.Judge(in)
}

// Release is what a stream says of the release it is for.
type Release struct {
	Release, Kubernetes, OS string
	// OSStreams that it has images of, besides the default one.
	OSStreams []string
}

// Target is a version as a target: the release that brings it, and the OS that
// nodes run then, if a stream or the policy says so. The policy's word is for
// what comes next only.
func Target(version string, releases []Release, p *v1alpha1.BootImagePolicy, s *v1alpha1.MachineSource, next bool) skew.Target {
	t := skew.Target{Kubernetes: version}
	want := minor(version)
	if want == "" {
		return t
	}
	for _, r := range releases {
		switch want {
		case minor(r.Kubernetes): // the version is Kubernetes' own
			t = skew.Target{Kubernetes: version, Release: r.Release, OS: r.OS}
		case minor(r.Release): // or the platform's
			t = skew.Target{Kubernetes: cmp.Or(r.Kubernetes, version), Release: r.Release, OS: r.OS}
		default:
			continue
		}
		t.Known, t.OSStreams = true, r.OSStreams
		if t.OS == "" && s.Status.Wanted != nil {
			t.OS = s.Status.Wanted.OS // a stream of several majors: the pool's own
		}
	}
	if next && p != nil {
		t.OS = cmp.Or(p.Spec.Skew.TargetOS, t.OS)
	}
	return t
}

// minor of a version, empty if it cannot be read.
func minor(version string) string {
	v, err := osversion.Parse(version)
	if err != nil {
		return ""
	}
	return v.MajorMinor()
}

// Fix is what brings a source to a state that is new enough.
func Fix(s *v1alpha1.MachineSource) string {
	switch {
	case s.Status.Contradiction != "":
		return "declare what its nodes really start from: kubectl edit machinesource " + s.Name
	case s.Spec.Manager == nil:
		return "bring its image up to date and declare it: kubectl edit machinesource " + s.Name
	case s.Status.State == v1alpha1.SourceSkipped, s.Status.State == v1alpha1.SourceContested:
		return "write the wanted image yourself: refit bootimage diff " + s.Name
	case s.Status.State == v1alpha1.SourceOutdated:
		return fmt.Sprintf("let refit write it (mode of %s in BootImagePolicy %s), or do it: refit bootimage diff %s", s.Spec.Manager.Kind, s.Status.Policy, s.Name)
	}
	return "bring its image up to date, or declare it in MachineSource " + s.Name
}
