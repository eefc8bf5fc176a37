package bootimages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/convert"
)

// maxMessage of a condition, in bytes.
const maxMessage = 1000

// oldTemplates is how many unused templates stay for a rollback.
const oldTemplates = 3

// makeSource creates the MachineSource of a manager.
func (r *Reconciler) makeSource(ctx context.Context, w *machineSnapshot, c *candidate) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"manager": map[string]any{
		"group": c.row.Group, "kind": c.row.Kind, "namespace": c.object.GetNamespace(), "name": c.object.GetName()}}}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("MachineSource")
	u.SetName(c.name)
	u.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController})
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("create MachineSource %s: %w", c.name, err)
	}
	s := &v1alpha1.MachineSource{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		return err
	}
	c.source, w.sources[c.name] = s, s
	return nil
}

// record writes the MachineSource of a candidate if its status changed.
func (r *Reconciler) record(ctx context.Context, w *machineSnapshot, c *candidate) error {
	if c.facts.Deleting && c.source == nil {
		return nil
	}
	if c.source == nil {
		if err := r.makeSource(ctx, w, c); err != nil {
			return err
		}
	}
	old := c.source.Status
	st := v1alpha1.MachineSourceStatus{ObservedGeneration: c.source.Generation, Policy: c.policy.Name, Mode: v1alpha1.BootImageMode(c.in.Mode), State: c.decision.State,
		SkewMode: c.skewMode(w), OSStream: cmp.Or(c.facts.OSStream, c.choice.OSStream), Facts: c.choice.Facts, Staged: c.staged, History: c.history(&old), Conditions: slices.Clone(old.Conditions)}
	if c.in.WantedErr == "" && c.stream != nil {
		st.Wanted = imageOf(c.in.Wanted)
	}
	if c.in.Current.Text != "" {
		st.Referenced = imageOf(c.in.Current)
		if c.holder.Name != "" {
			st.Referenced.Object = c.imageObject.GetKind() + "/" + c.imageObject.GetName()
		}
	}
	st.Proposal, st.ProposalObject = c.proposal()
	st.Upload, st.Wait, st.Canary = c.uploadOf(), c.waitOf(), c.recordCanary(w, old.Canary)
	c.keepTemplates(w, &st)
	recordAuthority(&st, &old, c.userDataKey().String(), c.authority, c.policy.Spec.Authority != nil, c.source.Generation, w.now)
	message := c.decision.Message
	if c.decision.Fix != "" {
		message += "; " + c.decision.Fix
	}
	return r.writeSource(ctx, w, c.source, c.policy, &st, readiness{c.decision.State == bootimage.Current, c.decision.Reason, message, c.facts.Version})
}

// uploadOf returns what a person must upload, nil if nothing.
func (c *candidate) uploadOf() *v1alpha1.BootImageUpload {
	u := c.upload
	if u == nil || c.decision.Reason != v1alpha1.ReasonBootImageNotUploaded {
		return nil
	}
	return &v1alpha1.BootImageUpload{File: u.File, SHA256: u.SHA256, Region: u.Region, Payload: u.Payload, Steps: u.Steps()}
}

// waitOf returns what the write of the wanted image waits for, nil if nothing.
func (c *candidate) waitOf() *v1alpha1.BootImageWait {
	d := c.decision.Wait
	if d == (bootimage.Wait{}) {
		return nil
	}
	out := &v1alpha1.BootImageWait{Reason: c.decision.Reason, Image: c.in.Wanted.Text, OS: c.in.Wanted.OS, For: d.For}
	if !d.Until.IsZero() {
		built, until := metav1.NewTime(d.Built), metav1.NewTime(d.Until)
		out.Built, out.Until = &built, &until
	}
	return out
}

func imageOf(i bootimage.Image) *v1alpha1.BootImage {
	return &v1alpha1.BootImage{Image: i.Text, OS: i.OS, Release: i.Release}
}

// skewMode returns the mode in which skew is enforced. A cluster of one node whose machine set has
// no machines does not scale, and images of a release payload are always new.
func (c *candidate) skewMode(w *machineSnapshot) string {
	set := c.policy.Spec.Skew.Mode
	if c.source != nil {
		set = cmp.Or(c.source.Spec.Skew, set)
	}
	single := len(w.nodes) == 1 && c.row.Group == machinekinds.OpenShift && machinekinds.Lookup(c.object.Object, "spec.replicas") == "0"
	writes := c.in.Mode == bootimage.NewMachinesOnly || c.in.Mode == bootimage.Piggyback || c.in.Mode == bootimage.Roll
	return convert.SkewMode(set, single || c.ref.FromRelease, writes && c.choice.Select != "Partial")
}

// keepTemplates marks the templates that are still needed: the referenced one, the staged one,
// and those for a rollback.
func (c *candidate) keepTemplates(w *machineSnapshot, st *v1alpha1.MachineSourceStatus) {
	if c.holder.Name == "" {
		return
	}
	keep := map[string]bool{c.holder.Name: true, c.staged: true}
	for _, h := range slices.Backward(st.History) {
		if len(keep) > oldTemplates {
			break
		}
		keep[h.Object], keep[h.FromObject] = true, true
	}
	for k := range keep {
		w.usedTemplates[c.holder.Row.Kind+"/"+c.object.GetNamespace()+"/"+k] = true
	}
}

// readiness is the Ready condition of a source, and the version that its machines run.
type readiness struct {
	ready                    bool
	reason, message, version string
}

// writeSource adds what all sources have in common, and writes the status if it changed.
func (r *Reconciler) writeSource(ctx context.Context, w *machineSnapshot, s *v1alpha1.MachineSource, p *v1alpha1.BootImagePolicy, st *v1alpha1.MachineSourceStatus, v readiness) error {
	old := s.Status
	recordProvenance(s, st, &old, w.nodes, w.now)
	w.machines.RecordJoining(s, st)
	switch {
	case st.Contradiction != "":
		v.ready, v.reason, v.message = false, v1alpha1.ReasonBootImageDeclared, st.Contradiction
	case len(st.Refused) > 0:
		v.ready, v.reason, v.message = false, v1alpha1.ReasonBootImageTooOld, "machine "+st.Refused[0].Machine+" could not join: "+st.Refused[0].Message
	}
	s.Status = *st
	newEnough := w.versionRules().Record(s, p, v.version)
	at := metav1.NewTime(w.now.Truncate(time.Second))
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: conditionStatus(v.ready), Reason: v.reason, Message: text.Truncate(v.message, maxMessage), ObservedGeneration: s.Generation, LastTransitionTime: at})
	newEnough.ObservedGeneration, newEnough.LastTransitionTime = s.Generation, at
	meta.SetStatusCondition(&s.Status.Conditions, newEnough)
	if equality.Semantic.DeepEqual(old, s.Status) {
		return nil
	}
	return client.IgnoreNotFound(ssa.Status(ctx, r.Client, ssa.Object{Kind: "MachineSource", Name: s.Name, UID: string(s.UID)}, &s.Status))
}

func conditionStatus(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// recordUnclaimed records the sources without a candidate: those that people declared, and
// those whose manager is gone or no longer selected.
func (r *Reconciler) recordUnclaimed(ctx context.Context, w *machineSnapshot) error {
	var names []string
	for name := range w.sources {
		names = append(names, name)
	}
	sort.Strings(names)
	var errs []error
	for _, name := range names {
		s := w.sources[name]
		if w.claimed[name] {
			continue
		}
		if s.Spec.Manager == nil {
			errs = append(errs, r.recordDeclared(ctx, w, s))
			continue
		}
		errs = append(errs, r.recordUnmanaged(ctx, w, s))
	}
	return errors.Join(errs...)
}

// recordDeclared records a source without a manager. The first policy's rules apply to it.
func (r *Reconciler) recordDeclared(ctx context.Context, w *machineSnapshot, s *v1alpha1.MachineSource) error {
	st := v1alpha1.MachineSourceStatus{ObservedGeneration: s.Generation, State: v1alpha1.SourceDeclared, SkewMode: cmp.Or(s.Spec.Skew, "Manual"), Conditions: slices.Clone(s.Status.Conditions)}
	var p *v1alpha1.BootImagePolicy
	if len(w.policies) > 0 {
		p = &w.policies[0]
		st.Policy = p.Name
	}
	d := s.Spec.Declared
	if d == nil {
		d = &v1alpha1.DeclaredImage{}
	}
	st.Referenced = &v1alpha1.BootImage{OS: d.OS, Release: d.Release}
	v := readiness{true, v1alpha1.ReasonAsExpected, "the declared image counts until a joining node reports another one", w.running}
	if p == nil {
		st.PolicyDeleted = w.policyDeleted(s)
		v = v.undecided(s, &st)
	}
	return r.writeSource(ctx, w, s, p, &st, v)
}

// recordUnmanaged records a source whose manager is gone or that no policy selects. If the
// manager is gone, only a record that people have edited stays. A manager that cannot be listed
// is not gone.
func (r *Reconciler) recordUnmanaged(ctx context.Context, w *machineSnapshot, s *v1alpha1.MachineSource) error {
	m := s.Spec.Manager
	l := w.kinds.Lists[schema.GroupKind{Group: m.Group, Kind: m.Kind}]
	if l == nil {
		if row := machinekinds.BuiltIn().Manager(m.Group, m.Kind); row != nil {
			l = w.kinds.List(ctx, m.Group, m.Kind, row.Versions)
		}
	}
	x := w.problems[s.Status.Policy]
	if unknown := l == nil || l.Err != nil; unknown || len(x.Invalid)+len(x.Unread) > 0 {
		return nil // the manager cannot be listed; keep the last status
	}
	gone := l.ByName[m.Namespace+"/"+m.Name] == nil
	if gone && isUntouched(s) {
		return client.IgnoreNotFound(r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID}))
	}
	st := s.Status
	st.ObservedGeneration, st.Conditions, st.PolicyDeleted = s.Generation, slices.Clone(st.Conditions), w.policyDeleted(s)
	st.State, st.Policy, st.Mode, st.SkewMode, st.Proposal, st.ProposalObject, st.InstalledImages, st.Upload, st.Wait, st.Canary = v1alpha1.SourceExcluded, "", "", cmp.Or(s.Spec.Skew, "Manual"), "", "", nil, nil, nil, nil
	recordAuthority(&st, &s.Status, "", nil, false, s.Generation, w.now)
	v := readiness{false, v1alpha1.ReasonBootImageExcluded, "no policy selects it; it keeps its last image", w.running}
	if gone {
		v.message = "its machine manager is gone"
	}
	return r.writeSource(ctx, w, s, nil, &st, v.undecided(s, &st))
}

// policyDeleted returns the policy of a source if it was deleted, else what was recorded before.
func (w *machineSnapshot) policyDeleted(s *v1alpha1.MachineSource) *v1alpha1.DeletedPolicy {
	name := s.Status.Policy
	if name == "" || slices.ContainsFunc(w.policies, func(p v1alpha1.BootImagePolicy) bool { return p.Name == name }) {
		return s.Status.PolicyDeleted
	}
	return &v1alpha1.DeletedPolicy{Name: name, SeenAt: metav1.NewTime(w.now.Truncate(time.Second))}
}

// undecided names the decision that a source waits for after its policy was deleted.
func (v readiness) undecided(s *v1alpha1.MachineSource, st *v1alpha1.MachineSourceStatus) readiness {
	if st.PolicyDeleted == nil || s.Spec.Skew != "" {
		return v
	}
	v.ready, v.reason = false, v1alpha1.ReasonBootImagePolicyDeleted
	v.message = fmt.Sprintf("BootImagePolicy %s was deleted, so no rule checks its image, and updates to another minor version wait: %s", st.PolicyDeleted.Name, convert.DeletedPolicyFix(s.Name))
	return v
}

// isUntouched reports whether refit created the record and no person has edited it.
func isUntouched(s *v1alpha1.MachineSource) bool {
	return s.Labels[v1alpha1.LabelManagedBy] == v1alpha1.FieldOwnerController && s.Spec.Declared == nil && s.Spec.Rollback == nil && s.Spec.NodeSelector == nil && len(s.Spec.Facts) == 0 && s.Spec.Skew == ""
}
