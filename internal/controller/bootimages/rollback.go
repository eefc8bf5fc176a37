package bootimages

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/bootimage/skew"
	"github.com/refit-dev/refit/internal/convert"
)

// heldRollback returns the rollback that counts against an image of a stream, nil if none does.
func (c *candidate) heldRollback(wanted bootimage.Image) *bootimage.Rollback {
	if c.source == nil || c.source.Spec.Rollback == nil {
		return nil
	}
	if r := convert.ImageRollback(c.source.Spec.Rollback); r.Holds(wanted) {
		return r
	}
	return nil
}

// chooseFormer makes the image of a rollback the wanted one, and prepares the edit. Only an
// image of the history is written.
func (c *candidate) chooseFormer(r *bootimage.Rollback) error {
	former, attributes, ok := convert.ImageOfHistory(c.source.Status.History, r.To.Text)
	if !ok {
		return fmt.Errorf("spec.rollback names image %q, which is not in the history of MachineSource %s", r.To.Text, c.name)
	}
	edit := machinekinds.NewEdit(c.imageObject.Object)
	if err := c.holder.Row.Write(edit, c.holder.Part, attributes); err != nil {
		return fmt.Errorf("roll back to image %s: %w", r.To.Text, err)
	}
	r.To = former
	c.edit, c.in.Same, c.in.Wanted, c.in.Rollback = edit, !edit.Changed(), former, r
	return nil
}

// formerTemplate returns a template of the history with the contents that a clone would have,
// empty if there is none.
func (c *candidate) formerTemplate(content map[string]any) string {
	if c.in.Rollback == nil {
		return ""
	}
	for _, h := range slices.Backward(c.source.Status.History) {
		for _, name := range []string{h.FromObject, h.Object} {
			there := c.imageListing.ByName[c.object.GetNamespace()+"/"+name]
			if name != "" && there != nil && there.GetDeletionTimestamp() == nil && reflect.DeepEqual(there.Object["spec"], content["spec"]) {
				return name
			}
		}
	}
	return ""
}

// refused returns why the policy refuses the wanted image, empty if it does not.
func (c *candidate) refused() string {
	return bootimage.Refused(convert.RefusedImages(c.policy.Spec.Refused), c.in.Wanted)
}

// rollbackBlocked returns why machines from the image of a rollback could not join. The age of
// images does not count: the image was in use.
func (c *candidate) rollbackBlocked(w *machineSnapshot) string {
	if c.in.Rollback == nil || c.in.Same {
		return ""
	}
	for _, f := range w.versionRules().Findings(c.withWanted(), c.policy, cmp.Or(c.facts.Version, w.running), false) {
		if f.Waived == "" && f.Kind != skew.TooFresh && f.Kind != skew.AgeUnknown {
			return f.Message
		}
	}
	return ""
}

// writeRecord returns the entry of the history for a write of the wanted image.
func (c *candidate) writeRecord() *v1alpha1.BootImageWrite {
	to := c.ref.Attributes
	if c.edit != nil {
		if ref, err := c.holder.Row.Read(c.edit.Object, c.holder.Part); err == nil {
			to = ref.Attributes
		}
	}
	out := &v1alpha1.BootImageWrite{From: c.in.Current.Text, FromOS: c.in.Current.OS, FromRelease: c.in.Current.Release, FromAttributes: c.ref.Attributes,
		To: c.in.Wanted.Text, OS: c.in.Wanted.OS, Release: c.in.Wanted.Release, Attributes: to, By: "BootImagePolicy/" + c.policy.Name}
	if r := c.in.Rollback; r != nil {
		out.Rollback, out.By, out.Reason = true, cmp.Or(r.By, "an administrator"), r.Reason
	}
	return out
}

// history returns the recorded writes with the one of this reconcile, or one that was not recorded.
func (c *candidate) history(old *v1alpha1.MachineSourceStatus) []v1alpha1.BootImageWrite {
	out := slices.Clone(old.History)
	if written := cmp.Or(c.written, c.lostWrite(old)); written != nil {
		out = convert.TrimHistory(append(out, *written), c.source.Spec.Rollback)
	}
	return out
}

// lostWrite returns the write of a template's name that refit made before it could record it,
// nil if there is none: refit wrote the name last, and the record has another template.
func (c *candidate) lostWrite(old *v1alpha1.MachineSourceStatus) *v1alpha1.BootImageWrite {
	if !c.in.Same || c.in.WantedErr != "" || c.holder.Name == "" || c.wroteAt.IsZero() || c.wroteAt.Before(c.in.ForeignAt) {
		return nil
	}
	former := c.recordedTemplate(old)
	if former == nil || former.GetName() == c.holder.Name {
		return nil
	}
	out := c.writeRecord()
	out.FromOS, out.FromRelease = "", ""
	if r := old.Referenced; r != nil {
		out.FromOS, out.FromRelease = r.OS, r.Release
	}
	ref, err := c.holder.Row.Read(former.Object, c.holder.Part)
	if err != nil || ref.Text == out.To {
		return nil
	}
	out.From, out.FromAttributes, out.FromObject, out.Object, out.WrittenAt = ref.Text, ref.Attributes, former.GetName(), c.holder.Name, metav1.NewTime(c.wroteAt)
	return out
}

// recordedTemplate returns the template that the last record has, or without any record the
// one that refit cloned first; nil if it is gone.
func (c *candidate) recordedTemplate(old *v1alpha1.MachineSourceStatus) *unstructured.Unstructured {
	name := ""
	switch {
	case old.Referenced != nil:
		_, name, _ = strings.Cut(old.Referenced.Object, "/")
	case len(old.History) == 0:
		name = c.imageObject.GetAnnotations()[v1alpha1.AnnotationClonedFrom]
	}
	return c.imageListing.ByName[c.object.GetNamespace()+"/"+name]
}
