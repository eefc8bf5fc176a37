package bootimages

import (
	"context"
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
	x := w.problems[p.Name]
	if x.Machines = w.machines.Unread; len(x.Unread) > 0 {
		st.Failures = w.failures(p, strings.Join(x.Unread, "; "))
	}
	ready, stalled := convert.PolicyConditions(p, &st, x)
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

// failures returns the failed checks of a policy with this one. Those of another spec do not count.
func (w *machineSnapshot) failures(p *v1alpha1.BootImagePolicy, message string) *v1alpha1.CheckFailures {
	if p.Status.ObservedGeneration != p.Generation {
		return convert.AddFailure(nil, message, w.now)
	}
	return convert.AddFailure(p.Status.Failures, message, w.now)
}

// addInvalid records an entry of a policy that a person must correct.
func (w *machineSnapshot) addInvalid(p *v1alpha1.BootImagePolicy, what string) {
	x := w.problems[p.Name]
	x.Invalid = append(x.Invalid, what)
	w.problems[p.Name], w.partial = x, true
}

// addUnread records a kind that could not be listed.
func (w *machineSnapshot) addUnread(p *v1alpha1.BootImagePolicy, err error) {
	x := w.problems[p.Name]
	if what := err.Error(); !slices.Contains(x.Unread, what) {
		x.Unread = append(x.Unread, what)
	}
	w.problems[p.Name], w.partial = x, true
}

// staysRecorded reports whether a candidate was decided without a kind that could not be listed,
// and stays as it was recorded, because that may be a blip.
func (c *candidate) staysRecorded(w *machineSnapshot) bool {
	if w.kinds.Unread == nil {
		return false
	}
	w.addUnread(c.policy, w.kinds.Unread)
	return c.source != nil && len(c.source.Status.Conditions) > 0 && convert.ToleratesUnread(c.policy, w.failures(c.policy, ""))
}
