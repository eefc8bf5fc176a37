package bootimages

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
)

// templateGrace is how long an unreferenced template stays.
const templateGrace = 10 * time.Minute

// collect deletes templates that refit created and that no manager, machine or history refers
// to. It deletes nothing if any kind that may refer to a template cannot be read.
func (r *Reconciler) collect(ctx context.Context, w *machineSnapshot) error {
	if w.partial {
		return nil
	}
	if err := w.kinds.DeleteCanaries(ctx, w.usedCanaries); err != nil {
		return err
	}
	var old []*unstructured.Unstructured
	var rows []*machinekinds.ImageKind
	for gk, l := range w.kinds.Lists {
		for _, o := range l.Items {
			if w.isUnused(gk.Kind, o) {
				old = append(old, o)
				rows = append(rows, &machinekinds.ImageKind{Group: gk.Group, Kind: gk.Kind, Versions: []string{o.GroupVersionKind().Version}})
			}
		}
	}
	if len(old) == 0 {
		return nil
	}
	used, err := w.kinds.Referenced(ctx, w.table, rows)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range old {
		if used[o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName()] {
			continue
		}
		uid, version := o.GetUID(), o.GetResourceVersion()
		errs = append(errs, client.IgnoreNotFound(r.Objects.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})))
	}
	return errors.Join(errs...)
}

// isUnused reports whether refit created a template some time ago and no source needs it.
func (w *machineSnapshot) isUnused(kind string, o *unstructured.Unstructured) bool {
	_, ours := bootimage.CloneSource(o.Object)
	return ours && !w.usedTemplates[kind+"/"+o.GetNamespace()+"/"+o.GetName()] && w.now.Sub(o.GetCreationTimestamp().Time) >= templateGrace && o.GetDeletionTimestamp() == nil
}
