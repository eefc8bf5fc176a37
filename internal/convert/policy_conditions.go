package convert

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/text"
)

// maxConditionMessage is the longest message of a condition, in bytes.
const maxConditionMessage = 1000

// PolicyProblems is what one check of a BootImagePolicy could not do.
type PolicyProblems struct {
	// Invalid entries of the policy count at once: a person must correct them.
	Invalid []string
	// Unread are the kinds that could not be listed: they count when that persists.
	Unread []string
	// Machines is why not all machines are known, empty if they are.
	Machines string
}

// ToleratesUnread reports whether a kind that cannot be listed in this check leaves the
// conditions and the sources as they were: the policy was evaluated before, and the failure does
// not persist.
func ToleratesUnread(p *v1alpha1.BootImagePolicy, failures *v1alpha1.CheckFailures) bool {
	return p.Generation == p.Status.ObservedGeneration && !Persistent(failures)
}

// PolicyConditions returns Ready and Stalled of a policy; st has the counts and the failures of
// this check. Ready never claims something about all sources unless it holds for all, including
// those excluded on purpose.
func PolicyConditions(p *v1alpha1.BootImagePolicy, st *v1alpha1.BootImagePolicyStatus, x PolicyProblems) (ready, stalled metav1.Condition) {
	ready = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: SourceSummary(st)}
	stalled = metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAsExpected, Message: "every kind can be read"}
	ready.Status, ready.Reason = readyOfCounts(st)
	if x.Machines != "" {
		stalled.Message = x.Machines
	}
	switch problems := strings.Join(slices.Concat(x.Invalid, x.Unread), "; "); {
	case problems == "":
	case len(x.Invalid) == 0 && ToleratesUnread(p, st.Failures):
		stalled.Message = "a check " + Failures(st.Failures).String()
		ready.Message += "; a check " + Failures(st.Failures).String()
	default:
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, v1alpha1.ReasonBootImageUnknown, problems
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonBootImageUnknown, "some machine managers could not be read: "+problems
	}
	ready.Message, stalled.Message = text.Truncate(ready.Message, maxConditionMessage), text.Truncate(stalled.Message, maxConditionMessage)
	return ready, stalled
}

// readyOfCounts is the worst that the counts tell.
func readyOfCounts(st *v1alpha1.BootImagePolicyStatus) (metav1.ConditionStatus, string) {
	switch {
	case st.TooOld > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonBootImageTooOld
	case st.Contested > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonBootImageContested
	case st.Unknown > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonBootImageUnknown
	case st.Outdated > 0 || st.Skipped > 0:
		return metav1.ConditionFalse, v1alpha1.ReasonBootImageOutdated
	case st.Excluded > 0:
		return metav1.ConditionTrue, v1alpha1.ReasonBootImageExcluded
	}
	return metav1.ConditionTrue, v1alpha1.ReasonAsExpected
}
