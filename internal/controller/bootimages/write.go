package bootimages

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
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

// act does what was decided. What it wrote is seen by looking again: decision and
// facts are those after the write.
func (r *Reconciler) act(ctx context.Context, w *machineSnapshot, c *candidate) error {
	if c.decision.Action != bootimage.Write && c.decision.Action != bootimage.Stage {
		return nil
	}
	if c.source == nil { // the record is there before anything is written
		if err := r.makeSource(ctx, w, c); err != nil {
			return err
		}
	}
	before := c.in.Current
	if err := r.writeUserData(ctx, w, c); err != nil {
		return err
	}
	object, err := r.template(ctx, w, c)
	if err != nil || c.decision.Action == bootimage.Stage {
		c.staged = object
		return err
	}
	from := c.holder.Name
	if err := r.point(ctx, w, c, object); err != nil {
		if conflict(err) {
			w.again = true
			return nil
		}
		return err
	}
	c.written = &v1alpha1.BootImageWrite{WrittenAt: metav1.NewTime(w.now.Truncate(time.Second)), From: before.Text, To: c.in.Wanted.Text, OS: c.in.Wanted.OS, Release: c.in.Wanted.Release}
	if object != "" {
		c.written.FromObject, c.written.Object = from, object
	}
	c.facts = c.table.Facts(c.row, c.object.Object)
	c.decide(ctx, w)
	return nil
}

// refused: the write did not come about, and people read why.
func (c *candidate) refused(err error) {
	c.decision = bootimage.Decision{Action: bootimage.Leave, State: bootimage.Outdated, Reason: v1alpha1.ReasonBootImageOutdated, Message: err.Error(), Fix: "it is tried again"}
}

// conflict: what was tested is not what is there any more.
func conflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }

// template makes the clone with the wanted image and returns its name; empty if
// nothing is cloned here. One that is there already is taken if it is the same.
func (r *Reconciler) template(ctx context.Context, w *machineSnapshot, c *candidate) (string, error) {
	if c.holder.Name == "" || !c.holder.Row.Immutable || c.in.Same {
		return "", nil
	}
	content, err := bootimage.Clone(c.edit.Object, string(c.source.UID))
	if err != nil {
		return "", err
	}
	o := &unstructured.Unstructured{Object: content}
	key := o.GetNamespace() + "/" + o.GetName()
	if there := c.heldListing.ByName[key]; there != nil {
		return o.GetName(), sameTemplate(there, o)
	}
	if err := r.tryPoint(ctx, w, c, o.GetName()); err != nil {
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
		return "", fmt.Errorf("make %s %s for %s: %w", o.GetKind(), key, c.name, err)
	}
	c.heldListing.Put(o)
	return o.GetName(), nil
}

// tryPoint: a webhook that refuses the reference does so before anything is made.
func (r *Reconciler) tryPoint(ctx context.Context, w *machineSnapshot, c *candidate, template string) error {
	if c.decision.Action != bootimage.Write {
		return nil
	}
	err := r.send(ctx, c, c.object.DeepCopy(), c.pointing(template), client.DryRunAll)
	if err == nil {
		return nil
	}
	w.again = w.again || conflict(err)
	return fmt.Errorf("%s would not take template %s: %w", c.name, template, err)
}

// sameTemplate: the name holds the hash of the contents, so one of another
// content was made or changed by somebody else.
func sameTemplate(there, want *unstructured.Unstructured) error {
	s, ours := bootimage.Ours(there.Object)
	w, _ := bootimage.Ours(want.Object)
	if !ours || s != w {
		return fmt.Errorf("%s %s/%s is there and not refit's: it is left alone", there.GetKind(), there.GetNamespace(), there.GetName())
	}
	if there.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s %s/%s is being deleted", there.GetKind(), there.GetNamespace(), there.GetName())
	}
	if !contains(there.Object["spec"], want.Object["spec"]) {
		return fmt.Errorf("%s %s/%s was changed by somebody: it is left alone", there.GetKind(), there.GetNamespace(), there.GetName())
	}
	return nil
}

// contains: the API server may have added defaults.
func contains(there, want any) bool {
	m, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(there, want)
	}
	t, ok := there.(map[string]any)
	if !ok {
		return false
	}
	for k, v := range m {
		if !contains(t[k], v) {
			return false
		}
	}
	return true
}

// pointing is the edit of the manager: the name of the template, and the version
// that was asked for, in one write.
func (c *candidate) pointing(template string) *machinekinds.Edit {
	var e *machinekinds.Edit
	switch {
	case c.holder.Name == "" && c.edit != nil:
		e = c.edit
	default:
		e = machinekinds.NewEdit(c.object.Object)
	}
	if template != "" {
		_ = e.Set(c.holder.NamePath, template) // the path was read a moment ago
	}
	if c.decision.Version != "" && c.row.Version != "" {
		_ = e.Set(c.row.Version, c.decision.Version)
		_ = e.Clear(`metadata.annotations["` + v1alpha1.AnnotationWantedVersion + `"]`)
	}
	return e
}

// point writes the reference, or the image itself where it is no template.
func (r *Reconciler) point(ctx context.Context, w *machineSnapshot, c *candidate, template string) error {
	if c.holder.Name != "" && !c.holder.Row.Immutable && c.edit.Changed() {
		if err := r.send(ctx, c, c.held, c.edit); err != nil {
			return err
		}
	}
	e := c.pointing(template)
	if !e.Changed() {
		return nil
	}
	if err := r.send(ctx, c, c.object, e); err != nil {
		return err
	}
	if template != "" && c.heldListing.ByName[c.object.GetNamespace()+"/"+template] == nil { // made by an earlier look of a process that is gone
		w.again = true
	}
	return nil
}

// send writes a patch that tests what was seen, and takes over the answer.
func (r *Reconciler) send(ctx context.Context, c *candidate, o *unstructured.Unstructured, e *machinekinds.Edit, opts ...client.PatchOption) error {
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

// longestProposal that a MachineSource holds.
const longestProposal = 8192

// proposal is the patch for whoever writes the object: of the manager where it
// holds the image, else of the template, whose name must then be another.
func (c *candidate) proposal() (patch, object string) {
	if c.edit == nil || !c.edit.Changed() {
		return "", ""
	}
	wanted := slices.Contains([]string{bootimage.Say, bootimage.Leave, bootimage.Stage}, c.decision.Action) && c.decision.State != bootimage.Current && c.decision.State != bootimage.Excluded
	if !wanted || c.decision.Reason == v1alpha1.ReasonBootImageNewer || c.decision.Reason == v1alpha1.ReasonBootImageNotUploaded {
		return "", ""
	}
	data, err := json.Marshal(c.edit.Ops())
	if err != nil || len(data) > longestProposal {
		return "", ""
	}
	return string(data), c.held.GetKind() + "/" + c.held.GetName()
}
