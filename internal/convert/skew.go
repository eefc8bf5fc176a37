package convert

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/componentversion"
)

// SkewRules converts rules.
func SkewRules(in []v1alpha1.SkewRule) []skew.Rule {
	var out []skew.Rule
	for _, r := range in {
		v := skew.Rule{Name: r.Name, Targets: r.Targets, MinimumRelease: r.MinimumRelease, MinimumOS: r.MinimumOS, MinorsBehind: intOf(r.MinorsBehind), MajorSteps: intOf(r.MajorSteps),
			MinAge: daysOf(r.MinAgeDays), MaxAge: daysOf(r.MaxAgeDays), MinimumFacts: r.MinimumFacts, Why: r.Why}
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

func intOf(p *int32) *int {
	if p == nil {
		return nil
	}
	n := int(*p)
	return &n
}

func daysOf(p *int32) time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(*p) * 24 * time.Hour
}

// SkewWaivers converts waivers.
func SkewWaivers(in []v1alpha1.SkewWaiver) []skew.Waiver {
	var out []skew.Waiver
	for _, w := range in {
		out = append(out, skew.Waiver{Source: w.Source, Rule: w.Rule, Reason: w.Reason, Until: w.Until.Time})
	}
	return out
}

// SkewMode returns the mode in which the skew of a source is enforced. The setting of a person
// counts. Without one it is None where no image can become too old (natural), and Automatic only
// where refit writes the images of all objects of a kind.
func SkewMode(set string, natural, writesAll bool) string {
	switch {
	case set != "":
		return set
	case natural:
		return skew.None
	case writesAll:
		return skew.Automatic
	}
	return skew.Manual
}

// SkewSource converts a source. Facts of the source override those of the policy.
func SkewSource(s *v1alpha1.MachineSource) skew.Source {
	out := skew.Source{Name: s.Name, Mode: cmp.Or(s.Status.SkewMode, skew.Manual), OSStream: s.Status.OSStream, Facts: map[string]string{}}
	maps.Copy(out.Facts, s.Status.Facts)
	maps.Copy(out.Facts, s.Spec.Facts)
	for _, m := range s.Status.Machines {
		out.Machines = append(out.Machines, skew.MachineFact{Name: m.Name, Least: m.Least, Example: "node " + m.Example, NotReporting: int(m.Silent)})
		if m.Least != "" && out.Facts[m.Name] == "" {
			out.Facts[m.Name] = m.Least // for rules about incompatible facts
		}
	}
	known := s.Status.Referenced
	if known != nil {
		out.Release, out.OS = known.Release, known.OS
	}
	if d := s.Spec.Declared; d != nil && (out.Mode != skew.Automatic || out.OS == "" && out.Release == "") {
		out.Release, out.OS = d.Release, d.OS
		if o := s.Status.OldestInstalled; o != nil {
			out.Installed, out.InstalledNode = o.OS, o.Example
		}
	}
	out.Unknown = unknownImage(s, out)
	return out
}

func unknownImage(s *v1alpha1.MachineSource, v skew.Source) string {
	switch known := s.Status.Referenced; {
	case s.Status.Contradiction != "":
		return s.Status.Contradiction
	case s.Spec.Declared == nil && s.Status.State == v1alpha1.SourceExcluded:
		return "it is excluded, and its image is not declared"
	case v.Release == "" && v.OS == "" && known != nil && known.Image != "":
		return "image " + known.Image + " is in no stream, and its version is not declared"
	}
	return ""
}

// EvaluateSkew returns the rules that a source violates at a target.
func EvaluateSkew(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, rules []v1alpha1.SkewRule, target skew.Target, now time.Time) []skew.Finding {
	return skew.Evaluate(SkewInput(s, p, rules, target, now))
}

// SkewInput converts a source with the rules of its streams and of its policy.
func SkewInput(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, rules []v1alpha1.SkewRule, target skew.Target, now time.Time) skew.Input {
	in := skew.Input{Source: SkewSource(s), Target: target, Rules: SkewRules(rules), Now: now}
	if p != nil {
		in.Rules = append(in.Rules, SkewRules(p.Spec.Skew.Rules)...)
		in.Waivers = SkewWaivers(p.Spec.Skew.Waivers)
	}
	return in
}

// StreamRelease is the release that a stream is for.
type StreamRelease struct {
	Release, Kubernetes, OS string
	// OSStreams are those of its images, in addition to the default one.
	OSStreams []string
}

// SkewTarget converts a version to a target: the release with it, and the OS that nodes run
// then, if a stream or the policy declares it. The policy's OS is only for later versions.
func SkewTarget(version string, releases []StreamRelease, p *v1alpha1.BootImagePolicy, s *v1alpha1.MachineSource, next bool) skew.Target {
	t := skew.Target{Kubernetes: version}
	want := majorMinor(version)
	if want == "" {
		return t
	}
	for _, r := range releases {
		switch want {
		case majorMinor(r.Kubernetes): // the version is one of Kubernetes
			t = skew.Target{Kubernetes: version, Release: r.Release, OS: r.OS}
		case majorMinor(r.Release): // or one of the platform
			t = skew.Target{Kubernetes: cmp.Or(r.Kubernetes, version), Release: r.Release, OS: r.OS}
		default:
			continue
		}
		t.Known, t.OSStreams = true, r.OSStreams
		if t.OS == "" && s.Status.Wanted != nil {
			t.OS = s.Status.Wanted.OS // the stream has several majors: take the pool's
		}
	}
	if next && p != nil {
		t.OS = cmp.Or(p.Spec.Skew.TargetOS, t.OS)
	}
	return t
}

// majorMinor returns the minor version, empty if it cannot be parsed.
func majorMinor(version string) string {
	v, err := componentversion.ParseOS(version)
	if err != nil {
		return ""
	}
	return v.MajorMinor()
}

// SkewFix returns how to make a source new enough.
func SkewFix(s *v1alpha1.MachineSource) string {
	switch {
	case s.Status.Contradiction != "":
		return "declare the image that its nodes start from: kubectl edit machinesource " + s.Name
	case s.Spec.Manager == nil:
		return "update its image and declare it: kubectl edit machinesource " + s.Name
	case s.Spec.Rollback != nil && s.Status.State == v1alpha1.SourceSkipped:
		return "end its rollback: refit bootimage rollback " + s.Name + " --end"
	case s.Status.State == v1alpha1.SourceSkipped, s.Status.State == v1alpha1.SourceContested:
		return "write the wanted image yourself: refit bootimage diff " + s.Name
	case s.Status.State == v1alpha1.SourceOutdated:
		return fmt.Sprintf("let refit write it (mode of %s in BootImagePolicy %s), or write it: refit bootimage diff %s", s.Spec.Manager.Kind, s.Status.Policy, s.Name)
	}
	return "update its image, or declare it in MachineSource " + s.Name
}
