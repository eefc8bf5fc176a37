package clusterresources

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// FieldOwner is the server-side apply owner of all objects that refit applies from bundles.
const FieldOwner = "refit-resources"

// outcome is the result for all objects of a bundle.
type outcome struct {
	create, change, same, remove int
	// conflicts name object, field and owner; problems are all other failures.
	conflicts, problems []string
	// unready are objects that were applied and are not ready yet.
	unready []string
	applied []item
}

// apply applies every object, or with dry only counts what that would change.
func (r *Reconciler) apply(ctx context.Context, objects []*unstructured.Unstructured, dry bool) (outcome, error) {
	var o outcome
	brings := kindsOf(objects)
	for i, u := range objects {
		if i > 0 && !dry && rankOf(objects[i-1]) == 0 && rankOf(u) > 0 && len(o.unready) > 0 {
			return o, nil // the others follow when the new kinds are served
		}
		if err := r.applyOne(ctx, u, dry, brings, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// kindsOf returns the kinds that the bundle's own CustomResourceDefinitions define.
func kindsOf(objects []*unstructured.Unstructured) map[string]bool {
	out := map[string]bool{}
	for _, u := range objects {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		out[group+" "+kind] = true
	}
	return out
}

func (r *Reconciler) applyOne(ctx context.Context, u *unstructured.Unstructured, dry bool, brings map[string]bool, o *outcome) error {
	live := u.DeepCopy()
	err := r.Objects.Get(ctx, client.ObjectKeyFromObject(u), live)
	exists := err == nil
	switch {
	case meta.IsNoMatchError(err) && dry && brings[u.GroupVersionKind().Group+" "+u.GetKind()]:
		o.create++ // its kind is in the bundle
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return o.recordError(u, err)
	}
	after := u.DeepCopy()
	opts := []client.ApplyOption{client.FieldOwner(FieldOwner)}
	if dry {
		opts = append(opts, client.DryRunAll)
	}
	err = r.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), opts...)
	switch {
	case dry && apierrors.IsNotFound(err): // its namespace is in the bundle
		o.create++
		return nil
	case err != nil:
		return o.recordError(u, err)
	}
	o.count(exists, live, after)
	if !dry {
		o.addApplied(after)
	}
	return nil
}

// addApplied records an applied object, and whether it is ready.
func (o *outcome) addApplied(u *unstructured.Unstructured) {
	o.applied = append(o.applied, itemOf(u))
	if why := notReadyReason(u); why != "" {
		o.unready = append(o.unready, objectName(u)+": "+why)
	}
}

// count counts what applying an object did, or would do.
func (o *outcome) count(existed bool, before, after *unstructured.Unstructured) {
	switch {
	case !existed:
		o.create++
	case equality.Semantic.DeepEqual(withoutServerFields(before), withoutServerFields(after)):
		o.same++
	default:
		o.change++
	}
}

// recordError records an error that the API server answered, and returns any other error, which
// is retried.
func (o *outcome) recordError(u *unstructured.Unstructured, err error) error {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsConflict(err) && errors.As(err, &status) && status.Status().Details != nil:
		var fields []string
		for _, c := range status.Status().Details.Causes {
			fields = append(fields, c.Field+": "+c.Message)
		}
		sort.Strings(fields)
		o.conflicts = append(o.conflicts, objectName(u)+": "+strings.Join(fields, ", "))
	case meta.IsNoMatchError(err):
		o.problems = append(o.problems, objectName(u)+": the cluster has no such kind "+u.GroupVersionKind().GroupKind().String())
	case apierrors.IsForbidden(err):
		o.problems = append(o.problems, objectName(u)+": the controller may not write it; grant that to ServiceAccount "+v1alpha1.SystemNamespace+"/refit-controller")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		o.problems = append(o.problems, objectName(u)+": "+err.Error())
	default:
		return fmt.Errorf("%s: %w", objectName(u), err)
	}
	return nil
}

// withoutServerFields returns an object without the fields that the API server sets.
func withoutServerFields(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	for _, f := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(c.Object, "metadata", f)
	}
	unstructured.RemoveNestedField(c.Object, "status")
	return c.Object
}

// notReadyReason returns why an object is not ready, "" if it is or has no such status.
func notReadyReason(u *unstructured.Unstructured) string {
	switch u.GetKind() {
	case "CustomResourceDefinition":
		if !conditionTrue(u, "Established") {
			return "its kind is not served yet"
		}
	case "Deployment", "StatefulSet":
		return rolloutReason(u, intField(u, "spec", "replicas"), "updatedReplicas", "readyReplicas")
	case "DaemonSet":
		return rolloutReason(u, intField(u, "status", "desiredNumberScheduled"), "updatedNumberScheduled", "numberReady")
	case "Job":
		if !conditionTrue(u, "Complete") {
			return "it is not complete"
		}
	}
	return ""
}

func intField(u *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, path...)
	return n
}

// rolloutReason returns how many pods of a workload are ready, "" if all are.
func rolloutReason(u *unstructured.Unstructured, want int64, updated, ready string) string {
	if intField(u, "status", "observedGeneration") < u.GetGeneration() || intField(u, "status", updated) < want || intField(u, "status", ready) < want {
		return fmt.Sprintf("%d of %d pods are ready", intField(u, "status", ready), want)
	}
	return ""
}

func conditionTrue(u *unstructured.Unstructured, kind string) bool {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		m, _ := c.(map[string]any)
		if m["type"] == kind && m["status"] == "True" {
			return true
		}
	}
	return false
}

// prune deletes the objects of earlier bundles that this one does not contain, and returns
// those that stay in the inventory. With dry it only counts.
func (r *Reconciler) prune(ctx context.Context, items []item, dry bool, o *outcome) (stay []item, err error) {
	for _, i := range items {
		live := i.object()
		err := r.Objects.Get(ctx, client.ObjectKeyFromObject(live), live)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			if err := o.recordError(live, err); err != nil {
				return nil, err
			}
			stay = append(stay, i)
			continue
		case !removable(i, live):
			continue // recreated by another client, or of a kind that is never removed
		}
		o.remove++
		if dry {
			continue
		}
		uid := i.UID
		if err := r.Objects.Delete(ctx, live, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !apierrors.IsNotFound(err) {
			stay = append(stay, i)
			if err := o.recordError(live, err); err != nil {
				return nil, err
			}
		}
	}
	return stay, nil
}
