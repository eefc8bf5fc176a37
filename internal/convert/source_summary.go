package convert

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// EffectiveSettings describes the settings of a policy with defaults filled in.
func EffectiveSettings(p *v1alpha1.BootImagePolicy) []string {
	var out []string
	for _, m := range p.Spec.Managers {
		word := cmp.Or(m.Select, "All")
		if word == "Partial" {
			word = "Partial " + metav1.FormatLabelSelector(m.Selector)
		}
		out = append(out, fmt.Sprintf("%s.%s: %s, %s", m.Kind, m.Group, word, cmp.Or(m.Mode, v1alpha1.BootImageObserve)))
	}
	return out
}

// CountSource adds a source to a policy's counts.
func CountSource(st *v1alpha1.BootImagePolicyStatus, s *v1alpha1.MachineSource) {
	st.Sources++
	switch s.Status.State {
	case v1alpha1.SourceCurrent, v1alpha1.SourceDeclared:
		st.Current++
	case v1alpha1.SourceOutdated:
		st.Outdated++
	case v1alpha1.SourceSkipped:
		st.Skipped++
	case v1alpha1.SourceExcluded:
		st.Excluded++
	case v1alpha1.SourceContested:
		st.Contested++
	default:
		st.Unknown++
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionNewEnough); c != nil && c.Status == metav1.ConditionFalse {
		st.TooOld++
	}
}

// SourceSummary is the counts as a sentence. It says "all" only if it holds for all.
func SourceSummary(st *v1alpha1.BootImagePolicyStatus) string {
	if st.Sources == 0 {
		return "no source of machines is selected"
	}
	if st.Current == st.Sources {
		return fmt.Sprintf("all %d sources are current", st.Sources)
	}
	text := fmt.Sprintf("%d of %d sources are current", st.Current, st.Sources)
	for _, part := range []struct {
		n    int32
		text string
	}{{st.Outdated, "%d outdated"}, {st.Skipped, "%d left unchanged (foreign, custom, newer or rolled back)"}, {st.Contested, "%d undone by others"}, {st.Unknown, "%d cannot be evaluated"},
		{st.Excluded, "%d excluded on purpose: their images are not known"}, {st.TooOld, "%d not known to be new enough for the running release"}} {
		if part.n > 0 {
			text += ", " + fmt.Sprintf(part.text, part.n)
		}
	}
	return text
}
