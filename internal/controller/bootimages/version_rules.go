package bootimages

import (
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/text"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/convert"
)

const (
	// minorsAhead is how many minor versions after the running one are evaluated.
	minorsAhead = 2
	maxFindings = 32
	maxFinding  = 500
)

// versionRules evaluates the rules of the current streams.
type versionRules struct {
	Streams map[string]*bootstreams.Stream
	Now     time.Time
}

// Findings returns the rules that a source violates at a version; p may be nil. next is true if
// the version is not the running one.
func (j versionRules) Findings(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string, next bool) []skew.Finding {
	return skew.Evaluate(j.input(s, p, version, next))
}

func (j versionRules) input(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string, next bool) skew.Input {
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
	return convert.SkewInput(s, p, rules, convert.SkewTarget(version, releases, p, s, next), j.Now)
}

// Record records the findings for the running and the next versions, and returns the condition
// for the running one.
func (j versionRules) Record(s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, version string) metav1.Condition {
	s.Status.Skew = nil
	c := metav1.Condition{Type: v1alpha1.ConditionNewEnough, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsExpected, Message: "its image is new enough for the running release"}
	for i, target := range append([]string{version}, nextMinors(version)...) {
		fs := j.Findings(s, p, target, i > 0)
		for _, f := range fs {
			if len(s.Status.Skew) < maxFindings {
				s.Status.Skew = append(s.Status.Skew, v1alpha1.SkewFinding{Target: target, Rule: f.Rule, PoolOnly: f.Kind == skew.Breaks, Message: text.Truncate(f.Message, maxFinding), Waived: text.Truncate(f.Waived, maxFinding)})
			}
		}
		if i > 0 || len(fs) == 0 {
			continue
		}
		if !skew.Blocks(fs) {
			c.Reason, c.Message = v1alpha1.ReasonBootImageWaived, text.Truncate(fs[0].Message+" ("+fs[0].Waived+")", maxMessage)
			continue
		}
		f := firstUnwaived(fs)
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonBootImageTooOld, text.Truncate(f.Message+"; "+convert.SkewFix(s), maxMessage)
		if f.Kind == skew.Unknown || f.Kind == skew.AgeUnknown {
			c.Reason = v1alpha1.ReasonBootImageUnknown
		}
	}
	return c
}

// firstUnwaived returns the first finding without a waiver.
func firstUnwaived(fs []skew.Finding) skew.Finding {
	for _, f := range fs {
		if f.Waived == "" {
			return f
		}
	}
	return skew.Finding{}
}

// nextMinors returns the minor versions after a running one.
func nextMinors(version string) []string {
	v, err := componentversion.ParseOS(version)
	if err != nil {
		return nil
	}
	var out []string
	for i := 1; i <= minorsAhead; i++ {
		out = append(out, fmt.Sprintf("%d.%d.0", v.Major, v.Minor+i))
	}
	return out
}
