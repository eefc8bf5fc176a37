package sourcestatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/osversion"
)

const (
	// ahead is how many minor versions after the one that runs are judged.
	ahead = 2
	// mostBlocked targets and mostFindings are shown, with so many bytes of a message.
	mostBlocked  = 100
	mostFindings = 32
	longFinding  = 500
	longMessage  = 1000
)

// VersionRules knows the streams of now.
type VersionRules struct {
	Streams map[string]*bootstreams.Stream
	Now     time.Time
}

// Findings are what does not hold for a source at a version; p may be nil. next: it is
// not the version that runs.
func (j VersionRules) Findings(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string, next bool) []skew.Finding {
	var rules []v1alpha1.SkewRule
	var releases []convert.StreamRelease
	if p != nil {
		for _, n := range p.Spec.Streams {
			if st := j.Streams[n]; st != nil {
				rules = append(rules, st.Rules...)
				releases = append(releases, convert.StreamRelease{Release: st.Release, Kubernetes: st.Kubernetes, OS: st.Data.OS(), OSStreams: st.Data.OSStreams()})
			}
		}
	}
	return convert.EvaluateSkew(s, p, rules, convert.SkewTarget(version, releases, p, s, next), j.Now)
}

// Ages are the findings about how long an image has been out, for a source that starts
// machines from it.
func (j VersionRules) Ages(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string) []skew.Finding {
	return slices.DeleteFunc(j.Findings(s, p, version, false), func(f skew.Finding) bool { return f.Kind != skew.TooFresh && f.Kind != skew.AgeUnknown })
}

// Record fills in what does not hold for what runs and what comes next, and returns
// the condition for what runs.
func (j VersionRules) Record(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string) metav1.Condition {
	s.Status.Skew = nil
	c := metav1.Condition{Type: v1alpha1.ConditionNewEnough, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsExpected, Message: "its image is new enough for what runs"}
	for i, target := range append([]string{version}, next(version)...) {
		fs := j.Findings(s, p, target, i > 0)
		for _, f := range fs {
			if len(s.Status.Skew) < mostFindings {
				s.Status.Skew = append(s.Status.Skew, v1alpha1.SkewFinding{Target: target, Rule: f.Rule, Message: text.Truncate(f.Message, longFinding), Waived: text.Truncate(f.Waived, longFinding)})
			}
		}
		if i > 0 || len(fs) == 0 {
			continue
		}
		if !skew.Blocks(fs) {
			c.Reason, c.Message = v1alpha1.ReasonBootImageWaived, text.Truncate(fs[0].Message+" ("+fs[0].Waived+")", longMessage)
			continue
		}
		f := FirstUnwaived(fs)
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonBootImageTooOld, text.Truncate(f.Message+"; "+convert.SkewFix(s), longMessage)
		if f.Kind == skew.Unknown || f.Kind == skew.AgeUnknown {
			c.Reason = v1alpha1.ReasonBootImageUnknown
		}
	}
	return c
}

// FirstUnwaived finding that nobody waived.
func FirstUnwaived(fs []skew.Finding) skew.Finding {
	for _, f := range fs {
		if f.Waived == "" {
			return f
		}
	}
	return skew.Finding{}
}

// BlockedTargets are the targets that a policy's sources, which were judged, are too old for.
func BlockedTargets(p *v1alpha1.BootImagePolicy, sources []*v1alpha1.MachineSource) []v1alpha1.BlockedTarget {
	var out []v1alpha1.BlockedTarget
	for _, s := range sources {
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
			b := v1alpha1.BlockedTarget{Major: int32(v.Major), Minor: int32(v.Minor), Source: s.Name, Message: text.Truncate(s.Name+": "+f.Message+"; "+convert.SkewFix(s), longMessage)}
			if m := s.Spec.Manager; m != nil {
				b.Kind, b.Namespace, b.Name = m.Kind, m.Namespace, m.Name
			}
			out = append(out, b)
		}
	}
	return out[:min(len(out), mostBlocked)]
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
