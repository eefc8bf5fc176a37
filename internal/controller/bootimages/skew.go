package bootimages

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/osversion"
	"github.com/refit-dev/refit/internal/source/bootimage"
	"github.com/refit-dev/refit/internal/source/skew"
	"github.com/refit-dev/refit/internal/source/skew/read"
)

// ahead is how many minor versions after the one that runs are judged.
const ahead = 2

func groupKind(group, kind string) schema.GroupKind {
	return schema.GroupKind{Group: group, Kind: kind}
}

func clip(s string) string {
	if len(s) > 1000 {
		return s[:1000] + "..."
	}
	return s
}

// rules of all streams that a policy names: the next release brings its own, and
// they count for what is to come before its images are used.
func (w *world) rules(p *v1alpha1.BootImagePolicy) []v1alpha1.SkewRule {
	if p == nil {
		return nil
	}
	var out []v1alpha1.SkewRule
	for _, n := range p.Spec.Streams {
		if s := w.streams[n]; s != nil {
			out = append(out, s.Rules...)
		}
	}
	return out
}

// targetOf a version, as the streams of a policy know it.
func (w *world) targetOf(p *v1alpha1.BootImagePolicy, s *v1alpha1.MachineSource, version string, next bool) skew.Target {
	var releases []read.Release
	if p != nil {
		for _, n := range p.Spec.Streams {
			if st := w.streams[n]; st != nil {
				releases = append(releases, read.Release{Release: st.Release, Kubernetes: st.Kubernetes, OS: st.Data.OS(), OSStreams: st.Data.OSStreams()})
			}
		}
	}
	return read.Target(version, releases, p, s, next)
}

// next minor versions of one that runs.
func next(version string) []string {
	v, err := osversion.Parse(version)
	if err != nil {
		return nil
	}
	var out []string
	for i := 1; i <= ahead; i++ {
		out = append(out, fmt.Sprintf("%d.%d.0", v.Major, v.Minor+i))
	}
	return out
}

// judge fills in what does not hold for what runs and what comes next, and
// returns the condition for what runs.
func (w *world) judge(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string) metav1.Condition {
	s.Status.Skew = nil
	c := metav1.Condition{Type: v1alpha1.ConditionNewEnough, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsExpected, Message: "its image is new enough for what runs"}
	for i, target := range append([]string{version}, next(version)...) {
		fs := read.Judge(s, p, w.rules(p), w.targetOf(p, s, target, i > 0), w.now)
		for _, f := range fs {
			if len(s.Status.Skew) < 32 {
				s.Status.Skew = append(s.Status.Skew, v1alpha1.SkewFinding{Target: target, Rule: f.Rule, Message: short(f.Message), Waived: short(f.Waived)})
			}
		}
		if i > 0 || len(fs) == 0 {
			continue
		}
		if !skew.Blocks(fs) {
			c.Reason, c.Message = v1alpha1.ReasonBootImageWaived, clip(fs[0].Message+" ("+fs[0].Waived+")")
			continue
		}
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonBootImageTooOld
		if f := first(fs); f.Kind == skew.Unknown {
			c.Reason = v1alpha1.ReasonBootImageUnknown
			c.Message = clip(f.Message + "; " + read.Fix(s))
		} else {
			c.Message = clip(f.Message + "; " + read.Fix(s))
		}
	}
	return c
}

func short(s string) string {
	if len(s) > 500 {
		return s[:500] + "..."
	}
	return s
}

// first finding that nobody waived.
func first(fs []skew.Finding) skew.Finding {
	for _, f := range fs {
		if f.Waived == "" {
			return f
		}
	}
	return skew.Finding{}
}

// blocked says why this candidate may not move to a version: its own image must
// be new enough, which is the wanted one as soon as both are written, and a
// control plane waits for all others. The admission policy lets refit's own
// writes pass, because what it sees of this source is still the old image.
func (c *candidate) blocked(w *world, version string) string {
	if version == "" || c.in.Mode != bootimage.Piggyback || minor(version) == minor(c.facts.Version) {
		return ""
	}
	s := &v1alpha1.MachineSource{}
	if c.source != nil {
		s = c.source.DeepCopy()
	}
	s.Name = c.name
	s.Status.OSStream = cmp.Or(c.facts.OSStream, c.choice.OSStream)
	s.Status.SkewMode, s.Status.Facts, s.Status.State, s.Status.Contradiction = "Automatic", c.choice.Facts, "", ""
	s.Status.Referenced = imageOf(c.in.Wanted)
	if fs := read.Judge(s, c.policy, w.rules(c.policy), w.targetOf(c.policy, s, version, true), w.now); skew.Blocks(fs) {
		return "version " + version + " is refused: " + first(fs).Message
	}
	if c.row.ControlPlane || c.row.Version == "spec.topology.version" {
		return w.others(c.name, version)
	}
	return ""
}

// others are the sources that keep a control plane from a version.
func (w *world) others(than, version string) string {
	for _, o := range w.sorted() {
		if o.Name == than || o.Status.Policy == "" {
			continue
		}
		for _, f := range o.Status.Skew {
			if f.Waived == "" && minor(f.Target) == minor(version) {
				return "version " + version + " is refused: " + o.Name + ": " + f.Message
			}
		}
	}
	return ""
}

// minor of a version, empty if it cannot be read.
func minor(version string) string {
	v, err := osversion.Parse(version)
	if err != nil {
		return ""
	}
	return v.MajorMinor()
}

// blocks are the targets that a policy's sources are too old for.
func (w *world) blocks(p *v1alpha1.BootImagePolicy) []v1alpha1.BlockedTarget {
	var out []v1alpha1.BlockedTarget
	for _, s := range w.sorted() {
		if s.Status.Policy != p.Name || len(out) >= mostBlocked {
			continue
		}
		said := map[string]bool{}
		for _, f := range s.Status.Skew {
			v, err := osversion.Parse(f.Target)
			if err != nil || f.Waived != "" || said[f.Target] || strings.TrimPrefix(f.Target, "v") == "" {
				continue
			}
			said[f.Target] = true
			b := v1alpha1.BlockedTarget{Major: int32(v.Major), Minor: int32(v.Minor), Source: s.Name, Message: clip(s.Name + ": " + f.Message + "; " + read.Fix(s))}
			if m := s.Spec.Manager; m != nil {
				b.Kind, b.Namespace, b.Name = m.Kind, m.Namespace, m.Name
			}
			out = append(out, b)
		}
	}
	return out[:min(len(out), mostBlocked)]
}

// mostBlocked are shown.
const mostBlocked = 100
