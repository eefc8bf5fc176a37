package bootimages

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// writeImage executes the decision. After a write it decides again, so that facts and decision
// describe the written state.
func (r *Reconciler) writeImage(ctx context.Context, w *machineSnapshot, c *candidate) error {
	if !slices.Contains([]string{bootimage.Write, bootimage.Stage, bootimage.Boot}, c.decision.Action) {
		return nil
	}
	if c.source == nil { // the record exists before anything is written
		if err := r.makeSource(ctx, w, c); err != nil {
			return err
		}
	}
	if c.decision.Action == bootimage.Boot {
		return r.bootCanary(ctx, w, c)
	}
	return r.writeWanted(ctx, w, c)
}

func (r *Reconciler) writeWanted(ctx context.Context, w *machineSnapshot, c *candidate) error {
	written := c.writeRecord()
	if err := r.writeUserData(ctx, w, c); err != nil {
		return err
	}
	object, err := r.template(ctx, w, c)
	if err != nil || c.decision.Action == bootimage.Stage {
		c.staged = object
		return err
	}
	from := c.holder.Name
	if err := r.writeReference(ctx, w, c, object); err != nil {
		if isConflict(err) {
			w.retrySoon = true
			return nil
		}
		return err
	}
	c.written, written.WrittenAt = written, metav1.NewTime(w.now.Truncate(time.Second))
	if object != "" {
		c.written.FromObject, c.written.Object = from, object
	}
	c.facts = c.table.Facts(c.row, c.object.Object)
	c.decide(ctx, w)
	return nil
}

// recordFailure shows a failed write in the status.
func (c *candidate) recordFailure(err error) {
	c.decision = bootimage.Decision{Action: bootimage.Leave, State: bootimage.Outdated, Reason: v1alpha1.ReasonBootImageOutdated, Message: err.Error(), Fix: "refit tries again"}
}

// isConflict reports whether another client changed the object since it was read.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }

// template creates the clone with the wanted image and returns its name, empty if nothing must
// be cloned. An existing clone is reused if it is the same.
func (r *Reconciler) template(ctx context.Context, w *machineSnapshot, c *candidate) (string, error) {
	if c.holder.Name == "" || !c.holder.Row.Immutable || c.in.Same {
		return "", nil
	}
	content, err := bootimage.Clone(c.edit.Object, string(c.source.UID))
	if err != nil {
		return "", err
	}
	if former := c.formerTemplate(content); former != "" {
		return former, nil
	}
	o := &unstructured.Unstructured{Object: content}
	key := o.GetNamespace() + "/" + o.GetName()
	if there := c.imageListing.ByName[key]; there != nil {
		return o.GetName(), sameTemplate(there, o)
	}
	if err := r.dryRunReference(ctx, w, c, o.GetName()); err != nil {
		return "", err
	}
	err = r.Objects.Create(ctx, o, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		there := o.DeepCopy()
		if err := r.Objects.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
			return "", err
		}
		return o.GetName(), sameTemplate(there, o)
	}
	if err != nil {
		return "", fmt.Errorf("create %s %s for %s: %w", o.GetKind(), key, c.name, err)
	}
	c.imageListing.Put(o)
	return o.GetName(), nil
}

// dryRunReference writes the reference as a dry run first, so that a webhook that rejects it
// does so before a template is created.
func (r *Reconciler) dryRunReference(ctx context.Context, w *machineSnapshot, c *candidate, template string) error {
	if c.decision.Action != bootimage.Write {
		return nil
	}
	err := r.patchObject(ctx, c, c.object.DeepCopy(), c.referenceEdit(template), client.DryRunAll)
	if err == nil {
		return nil
	}
	w.retrySoon = w.retrySoon || isConflict(err)
	return fmt.Errorf("dry run: %s does not accept template %s: %w", c.name, template, err)
}

// sameTemplate compares an existing template with the wanted one. The name contains a hash of
// the contents, so another client created or changed one with other contents.
func sameTemplate(found, want *unstructured.Unstructured) error {
	s, ours := bootimage.CloneSource(found.Object)
	w, _ := bootimage.CloneSource(want.Object)
	if !ours || s != w {
		return fmt.Errorf("%s %s/%s exists and refit did not create it: refit does not change it", found.GetKind(), found.GetNamespace(), found.GetName())
	}
	if found.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s %s/%s is being deleted", found.GetKind(), found.GetNamespace(), found.GetName())
	}
	if !bootimage.ContainsFields(found.Object["spec"], want.Object["spec"]) {
		return fmt.Errorf("another client changed %s %s/%s: refit does not change it", found.GetKind(), found.GetNamespace(), found.GetName())
	}
	return nil
}

// referenceEdit edits the manager: the template's name and the requested version, in one write.
func (c *candidate) referenceEdit(template string) *machinekinds.Edit {
	var e *machinekinds.Edit
	switch {
	case c.holder.Name == "" && c.edit != nil:
		e = c.edit
	default:
		e = machinekinds.NewEdit(c.object.Object)
	}
	if template != "" {
		_ = e.Set(c.holder.NamePath, template) // readObject has read this path already
	}
	if c.decision.Version != "" && c.row.Version != "" {
		_ = e.Set(c.row.Version, c.decision.Version)
		_ = e.Clear(`metadata.annotations["` + v1alpha1.AnnotationWantedVersion + `"]`)
	}
	return e
}

// writeReference writes the reference, or the image itself where it is not in a template.
func (r *Reconciler) writeReference(ctx context.Context, w *machineSnapshot, c *candidate, template string) error {
	if c.holder.Name != "" && !c.holder.Row.Immutable && c.edit.Changed() {
		if err := r.patchObject(ctx, c, c.imageObject, c.edit); err != nil {
			return err
		}
	}
	e := c.referenceEdit(template)
	if !e.Changed() {
		return nil
	}
	if err := r.patchObject(ctx, c, c.object, e); err != nil {
		return err
	}
	if template != "" && c.imageListing.ByName[c.object.GetNamespace()+"/"+template] == nil { // created by an earlier process; read it again
		w.retrySoon = true
	}
	return nil
}

// patchObject sends a patch that tests the resource version, and stores the answer in o.
func (r *Reconciler) patchObject(ctx context.Context, c *candidate, o *unstructured.Unstructured, e *machinekinds.Edit, opts ...client.PatchOption) error {
	data, err := e.JSON(o.GetResourceVersion())
	if err != nil {
		return err
	}
	opts = append(opts, client.FieldOwner(FieldOwner))
	if err := r.Objects.Patch(ctx, o, client.RawPatch(types.JSONPatchType, data), opts...); err != nil {
		return fmt.Errorf("write %s %s/%s for %s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), c.name, err)
	}
	return nil
}

// maxProposal is the size of the largest proposal in a MachineSource, in bytes.
const maxProposal = 8192

// notProposed are reasons for which no person should write the wanted image either.
var notProposed = []string{v1alpha1.ReasonBootImageNewer, v1alpha1.ReasonBootImageNotUploaded, v1alpha1.ReasonBootImageTooFresh, v1alpha1.ReasonBootImageRefused}

// proposal returns the patch for the person or tool that owns the object: of the manager if it
// holds the image, else of the template, which then needs another name.
func (c *candidate) proposal() (patch, object string) {
	if c.edit == nil || !c.edit.Changed() {
		return "", ""
	}
	wanted := slices.Contains([]string{bootimage.Suggest, bootimage.Leave, bootimage.Stage, bootimage.Boot}, c.decision.Action) && c.decision.State != bootimage.Current && c.decision.State != bootimage.Excluded
	if !wanted || slices.Contains(notProposed, c.decision.Reason) {
		return "", ""
	}
	data, err := json.Marshal(c.edit.Ops())
	if err != nil || len(data) > maxProposal {
		return "", ""
	}
	return string(data), c.imageObject.GetKind() + "/" + c.imageObject.GetName()
}
