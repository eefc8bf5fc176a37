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

// FieldOwner is the server-side apply owner of everything that a bundle brings.
const FieldOwner = "refit-resources"

// outcome of a look at all objects of a bundle.
type outcome struct {
	create, change, same, remove int
	// conflicts name object, field and owner; problems are all else that failed.
	conflicts, problems []string
	// unready are objects that were applied and do not work yet.
	unready []string
	applied []item
}

// apply brings every object to what the bundle says, or only asks what that would
// change.
func (r *Reconciler) apply(ctx context.Context, objects []*unstructured.Unstructured, dry bool) (outcome, error) {
	var o outcome
	brings := kindsOf(objects)
	for i, u := range objects {
		if i > 0 && !dry && rankOf(objects[i-1]) == 0 && rankOf(u) > 0 && len(o.unready) > 0 {
			return o, nil // kinds first: the rest when they are served
		}
		if err := r.applyOne(ctx, u, dry, brings, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// kindsOf are the kinds that the bundle's own definitions make.
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
		o.create++ // its kind comes with the bundle
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return o.recordResult(u, err)
	}
	after := u.DeepCopy()
	opts := []client.ApplyOption{client.FieldOwner(FieldOwner)}
	if dry {
		opts = append(opts, client.DryRunAll)
	}
	err = r.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), opts...)
	switch {
	case dry && apierrors.IsNotFound(err): // its namespace comes with the bundle
		o.create++
		return nil
	case err != nil:
		return o.recordResult(u, err)
	}
	o.count(exists, live, after)
	if !dry {
		o.keep(after)
	}
	return nil
}

// keep notes what was applied, and whether it works.
func (o *outcome) keep(u *unstructured.Unstructured) {
	o.applied = append(o.applied, itemOf(u))
	if why := unready(u); why != "" {
		o.unready = append(o.unready, id(u)+": "+why)
	}
}

// count says what an object's apply was, or would be.
func (o *outcome) count(existed bool, before, after *unstructured.Unstructured) {
	switch {
	case !existed:
		o.create++
	case equality.Semantic.DeepEqual(plain(before), plain(after)):
		o.same++
	default:
		o.change++
	}
}

// recordResult sorts an error: what the API server refuses is said, what it did not answer
// is tried again.
func (o *outcome) recordResult(u *unstructured.Unstructured, err error) error {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsConflict(err) && errors.As(err, &status) && status.Status().Details != nil:
		var fields []string
		for _, c := range status.Status().Details.Causes {
			fields = append(fields, c.Field+": "+c.Message)
		}
		sort.Strings(fields)
		o.conflicts = append(o.conflicts, id(u)+": "+strings.Join(fields, ", "))
	case meta.IsNoMatchError(err):
		o.problems = append(o.problems, id(u)+": the cluster has no such kind "+u.GroupVersionKind().GroupKind().String())
	case apierrors.IsForbidden(err):
		o.problems = append(o.problems, id(u)+": the controller has no right to it; grant it to ServiceAccount "+v1alpha1.SystemNamespace+"/refit-controller")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		o.problems = append(o.problems, id(u)+": "+err.Error())
	default:
		return fmt.Errorf("%s: %w", id(u), err)
	}
	return nil
}

// plain is an object without what the API server writes by itself.
func plain(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	for _, f := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(c.Object, "metadata", f)
	}
	unstructured.RemoveNestedField(c.Object, "status")
	return c.Object
}

// unready says why an object does not work yet, "" if it does or nothing tells.
func unready(u *unstructured.Unstructured) string {
	switch u.GetKind() {
	case "CustomResourceDefinition":
		if !conditionTrue(u, "Established") {
			return "its kind is not served yet"
		}
	case "Deployment", "StatefulSet":
		return rolling(u, number(u, "spec", "replicas"), "updatedReplicas", "readyReplicas")
	case "DaemonSet":
		return rolling(u, number(u, "status", "desiredNumberScheduled"), "updatedNumberScheduled", "numberReady")
	case "Job":
		if !conditionTrue(u, "Complete") {
			return "it is not complete"
		}
	}
	return ""
}

func number(u *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, path...)
	return n
}

// rolling says how far a workload is from what is wanted of it.
func rolling(u *unstructured.Unstructured, want int64, updated, ready string) string {
	if number(u, "status", "observedGeneration") < u.GetGeneration() || number(u, "status", updated) < want || number(u, "status", ready) < want {
		return fmt.Sprintf("%d of %d pods are ready", number(u, "status", ready), want)
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

// prune removes what earlier bundles brought and this one does not; it returns
// what stays in the inventory. With dry it only counts.
func (r *Reconciler) prune(ctx context.Context, items []item, dry bool, o *outcome) (stay []item, err error) {
	for _, i := range items {
		live := i.object()
		err := r.Objects.Get(ctx, client.ObjectKeyFromObject(live), live)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			if err := o.recordResult(live, err); err != nil {
				return nil, err
			}
			stay = append(stay, i)
			continue
		case !removable(i, live):
			continue // it is somebody else's now, or nothing that is removed
		}
		o.remove++
		if dry {
			continue
		}
		uid := i.UID
		if err := r.Objects.Delete(ctx, live, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil && !apierrors.IsNotFound(err) {
			stay = append(stay, i)
			if err := o.recordResult(live, err); err != nil {
				return nil, err
			}
		}
	}
	return stay, nil
}
