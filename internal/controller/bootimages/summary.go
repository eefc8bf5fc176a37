package bootimages

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/controller/ssa"
)

func (w *world) sorted() []*v1alpha1.MachineSource {
	var out []*v1alpha1.MachineSource
	for _, s := range w.sources {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// summary writes a policy's status: every source counted once.
func (r *Reconciler) summary(ctx context.Context, w *world, p *v1alpha1.BootImagePolicy) error {
	st := v1alpha1.BootImagePolicyStatus{ObservedGeneration: p.Generation, Conditions: slices.Clone(p.Status.Conditions), Effective: effective(p)}
	if s := bootstreams.Newest(w.streams, p.Spec.Streams, w.running); s != nil {
		st.Stream, st.Release = s.Name, s.Release
	}
	for _, s := range w.sources {
		if s.Status.Policy == p.Name {
			count(&st, s)
		}
	}
	st.Blocked = w.blocks(p)
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

// effective says in words what counts: the defaults are filled in.
func effective(p *v1alpha1.BootImagePolicy) []string {
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

func count(st *v1alpha1.BootImagePolicyStatus, s *v1alpha1.MachineSource) {
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

// conditions: nothing is ever said of all sources unless it is true of all of
// them, those that are excluded on purpose among them (A14).
func (w *world) conditions(p *v1alpha1.BootImagePolicy, st *v1alpha1.BootImagePolicyStatus) (ready, stalled metav1.Condition) {
	ready = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: numbers(st)}
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
	if problems := w.problems[p.Name]; len(problems) > 0 {
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, v1alpha1.ReasonBootImageUnknown, clip(strings.Join(problems, "; "))
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonBootImageUnknown, clip("not all could be looked at: "+strings.Join(problems, "; "))
	}
	return ready, stalled
}

func numbers(st *v1alpha1.BootImagePolicyStatus) string {
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
	}{{st.Outdated, "%d outdated"}, {st.Skipped, "%d left alone, of others, custom or newer"}, {st.Contested, "%d undone by others"}, {st.Unknown, "%d cannot be judged"},
		{st.Excluded, "%d excluded on purpose: their images are not known"}, {st.TooOld, "%d not known to be new enough for what runs"}} {
		if part.n > 0 {
			text += ", " + fmt.Sprintf(part.text, part.n)
		}
	}
	return text
}
