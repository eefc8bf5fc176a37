package bootimages

import (
	"context"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"

	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/convert"
)

func (w *machineSnapshot) sorted() []*v1alpha1.MachineSource {
	var out []*v1alpha1.MachineSource
	for _, s := range w.sources {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// writeSummary writes a policy's status, with every source counted once.
func (r *Reconciler) writeSummary(ctx context.Context, w *machineSnapshot, p *v1alpha1.BootImagePolicy) error {
	st := v1alpha1.BootImagePolicyStatus{ObservedGeneration: p.Generation, Conditions: slices.Clone(p.Status.Conditions), Effective: convert.EffectiveSettings(p)}
	if s := bootstreams.Newest(w.streams, p.Spec.Streams, w.running); s != nil {
		st.Stream, st.Release = s.Name, s.Release
	}
	for _, s := range w.sources {
		if s.Status.Policy == p.Name {
			convert.CountSource(&st, s)
		}
	}
	st.Blocked = convert.BlockedTargets(p, w.sorted())
	ready, stalled := w.conditions(p, &st)
	for _, c := range []metav1.Condition{ready, stalled} {
		c.ObservedGeneration, c.LastTransitionTime = p.Generation, metav1.NewTime(w.now.Truncate(time.Second))
		meta.SetStatusCondition(&st.Conditions, c)
	}
	if equality.Semantic.DeepEqual(p.Status, st) {
		return nil
	}
	err := ssa.Status(ctx, r.Client, ssa.Object{Kind: "BootImagePolicy", Name: p.Name, UID: string(p.UID)}, &st)
	p.Status = st
	return client.IgnoreNotFound(err)
}

// conditions returns Ready and Stalled. Ready never claims something about all sources unless
// it holds for all, including those excluded on purpose.
func (w *machineSnapshot) conditions(p *v1alpha1.BootImagePolicy, st *v1alpha1.BootImagePolicyStatus) (ready, stalled metav1.Condition) {
	ready = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: convert.SourceSummary(st)}
	stalled = metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAsExpected, Message: "every kind can be read"}
	switch {
	case st.TooOld > 0:
		ready.Reason = v1alpha1.ReasonBootImageTooOld
	case st.Contested > 0:
		ready.Reason = v1alpha1.ReasonBootImageContested
	case st.Unknown > 0:
		ready.Reason = v1alpha1.ReasonBootImageUnknown
	case st.Outdated > 0 || st.Skipped > 0:
		ready.Reason = v1alpha1.ReasonBootImageOutdated
	case st.Excluded > 0:
		ready.Status, ready.Reason = metav1.ConditionTrue, v1alpha1.ReasonBootImageExcluded
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, v1alpha1.ReasonAsExpected
	}
	if w.machines.Unread != "" {
		stalled.Message = text.Truncate(w.machines.Unread, maxMessage)
	}
	if problems := w.problems[p.Name]; len(problems) > 0 {
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, v1alpha1.ReasonBootImageUnknown, text.Truncate(strings.Join(problems, "; "), maxMessage)
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonBootImageUnknown, text.Truncate("some machine managers could not be read: "+strings.Join(problems, "; "), maxMessage)
	}
	return ready, stalled
}
