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

// templateRest is how long a template that nobody refers to stays.
const templateRest = 10 * time.Minute

// collect deletes templates that refit made and nobody refers to any more: no
// manager, no machine, no history. If not every kind that may refer to one can be
// read, nothing is deleted.
func (r *Reconciler) collect(ctx context.Context, w *machineSnapshot) error {
	if w.partial {
		return nil
	}
	var old []*unstructured.Unstructured
	var rows []*machinekinds.ImageKind
	for gk, l := range w.kinds.Lists {
		for _, o := range l.Items {
			if w.spare(gk.Kind, o) {
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

// spare: refit made it some time ago, and no source needs it.
func (w *machineSnapshot) spare(kind string, o *unstructured.Unstructured) bool {
	_, ours := bootimage.Ours(o.Object)
	return ours && !w.keep[kind+"/"+o.GetNamespace()+"/"+o.GetName()] && w.now.Sub(o.GetCreationTimestamp().Time) >= templateRest && o.GetDeletionTimestamp() == nil
}
