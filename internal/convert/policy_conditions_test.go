package convert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// A kind that could not be listed changes the conditions when that persists, an invalid entry at
// once; both are named in every case.
func TestPolicyConditions(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	failed := func(times int) (f *v1alpha1.CheckFailures) {
		for i := range times {
			f = AddFailure(f, "list awsmachines: timeout", start.Add(time.Duration(i)*time.Minute))
		}
		return f
	}
	unread := []string{"list awsmachines: timeout"}
	for name, tc := range map[string]struct {
		st       v1alpha1.BootImagePolicyStatus
		observed int64
		x        PolicyProblems
		ready    string
		stalled  string
	}{
		"all is read":          {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 2}, 1, PolicyProblems{}, "True AsExpected all 2 sources are current", "False AsExpected every kind can be read"},
		"machines unknown":     {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 2}, 1, PolicyProblems{Machines: "the nodes of machines are unknown"}, "True AsExpected all", "False AsExpected the nodes of machines are unknown"},
		"one failed check":     {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 2, Failures: failed(1)}, 1, PolicyProblems{Unread: unread}, "True AsExpected all 2 sources are current; a check failed 1 of 3 times since 2026-11-28T08:00:00Z: list awsmachines: timeout", "False AsExpected a check failed 1 of 3"},
		"two, of bad images":   {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 1, Outdated: 1, Failures: failed(2)}, 1, PolicyProblems{Unread: unread}, "False BootImageOutdated 1 of 2 sources are current, 1 outdated; a check failed 2 of 3", "False AsExpected a check failed 2 of 3"},
		"three":                {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 2, Failures: failed(3)}, 1, PolicyProblems{Unread: unread}, "False BootImageUnknown some machine managers could not be read: list awsmachines: timeout", "True BootImageUnknown list awsmachines: timeout"},
		"a policy that is new": {v1alpha1.BootImagePolicyStatus{Failures: failed(1)}, 0, PolicyProblems{Unread: unread}, "False BootImageUnknown some machine managers", "True BootImageUnknown"},
		"an invalid entry":     {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 2, Failures: failed(1)}, 1, PolicyProblems{Invalid: []string{"spec.kinds: no"}, Unread: unread}, "False BootImageUnknown some machine managers could not be read: spec.kinds: no; list", "True BootImageUnknown spec.kinds: no"},
		"too old":              {v1alpha1.BootImagePolicyStatus{Sources: 2, Contested: 1, TooOld: 1}, 1, PolicyProblems{}, "False BootImageTooOld", "False"},
		"undone":               {v1alpha1.BootImagePolicyStatus{Sources: 2, Contested: 1, Unknown: 1}, 1, PolicyProblems{}, "False BootImageContested", "False"},
		"unknown":              {v1alpha1.BootImagePolicyStatus{Sources: 2, Unknown: 1, Skipped: 1}, 1, PolicyProblems{}, "False BootImageUnknown 0 of 2", "False"},
		"skipped":              {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 1, Skipped: 1}, 1, PolicyProblems{}, "False BootImageOutdated", "False"},
		"excluded on purpose":  {v1alpha1.BootImagePolicyStatus{Sources: 2, Current: 1, Excluded: 1}, 1, PolicyProblems{}, "True BootImageExcluded", "False"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: v1alpha1.BootImagePolicyStatus{ObservedGeneration: tc.observed}}
			ready, stalled := PolicyConditions(p, &tc.st, tc.x)
			if got := fmt.Sprintf("%s %s %s", ready.Status, ready.Reason, ready.Message); !strings.HasPrefix(got, tc.ready) {
				t.Errorf("Ready is %s, want %s", got, tc.ready)
			}
			if got := fmt.Sprintf("%s %s %s", stalled.Status, stalled.Reason, stalled.Message); !strings.HasPrefix(got, tc.stalled) {
				t.Errorf("Stalled is %s, want %s", got, tc.stalled)
			}
		})
	}
}
