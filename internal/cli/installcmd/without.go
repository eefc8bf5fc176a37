package installcmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/text"
)

// recordAreas says before the installation what is left out, and what was left out until now.
func (o installer) recordAreas(ctx context.Context, c client.Client, out areas.Set) error {
	var d appsv1.Deployment
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}, &d)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the controller's Deployment: %w", err)
	}
	before := config.WithoutOf(d.Spec.Template.Spec.Containers)
	for _, a := range areas.All {
		switch {
		case out.Has(a.Name):
			o.Note("without %s: refit does not %s", a.Name, a.Missing)
		case before.Has(a.Name):
			o.Note("%s was left out until now and is installed: --without %s leaves it out again", a.Name, a.Name)
		}
	}
	if !out.Has(areas.ClusterAPI) {
		return nil
	}
	_, err = c.RESTMapper().RESTMapping(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"})
	if err == nil {
		o.Note("this cluster has Machines of Cluster API: without %s a MachineHealthCheck may replace a node during its update", areas.ClusterAPI)
	}
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// removeAreas removes what an earlier installation had of areas that are left out now: objects of all
// that are not among kept. A kind that has objects stays, because they would go with it.
func (o installer) removeAreas(ctx context.Context, c client.Client, all, kept []*unstructured.Unstructured, out areas.Set) error {
	stay := map[string]bool{}
	for _, k := range kept {
		stay[identity(k)] = true
	}
	for _, a := range out.Areas() {
		used, err := inUse(ctx, c, a)
		if err != nil {
			return err
		}
		for _, k := range a.Kinds {
			stay[identityOfKind(k)] = len(used) > 0
		}
		for _, u := range used {
			o.Note("%s is left out, and its kinds stay, because their objects would be deleted with them: %s. To remove them: kubectl delete %s --all, then refit install once more with --without %s",
				a.Name, u.text, u.resource, a.Name)
		}
	}
	removed := 0
	for _, obj := range slices.Backward(all) { // bindings before what they bind
		if stay[identity(obj)] {
			continue
		}
		gone, err := o.remove(ctx, c, obj)
		if err != nil {
			return err
		}
		if gone {
			removed++
		}
	}
	if removed > 0 {
		o.Note("removed %s of areas that are left out", text.Count(removed, "object"))
	}
	return nil
}

func identity(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

func identityOfKind(k areas.Kind) string {
	return "CustomResourceDefinition /" + k.Plural + "." + areas.Group
}

// remove deletes an object, and reports whether it was there. A namespace stays: it may hold
// Secrets of the site.
func (o installer) remove(ctx context.Context, c client.Client, obj *unstructured.Unstructured) (bool, error) {
	if obj.GetKind() == "Namespace" {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), &corev1.Namespace{})
		if err == nil {
			o.Note("namespace %s stays, because it may hold Secrets of yours: kubectl delete namespace %s", obj.GetName(), obj.GetName())
		}
		return false, client.IgnoreNotFound(err)
	}
	err := c.Delete(ctx, obj.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove %s: %w", identity(obj), err)
	}
	return true, nil
}

// use of a kind: how to say it, and its resource.
type use struct{ text, resource string }

// inUse lists the kinds of an area that have objects.
func inUse(ctx context.Context, c client.Client, a areas.Area) ([]use, error) {
	var out []use
	for _, k := range a.Kinds {
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.Name + "List"))
		err := c.List(ctx, l)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue // it is not installed
		}
		if err != nil {
			return nil, fmt.Errorf("list %s, which go with their kind: %w", k.Plural, err)
		}
		names := make([]string, len(l.Items))
		for i := range l.Items {
			names[i] = l.Items[i].Name
			if ns := l.Items[i].Namespace; ns != "" {
				names[i] = ns + "/" + names[i]
			}
		}
		if len(names) > 0 {
			out = append(out, use{text.Count(len(names), k.Name) + " (" + text.FirstOf(names, 5, ", ") + ")", k.Plural + "." + areas.Group + allNamespaces(names)})
		}
	}
	return out, nil
}

// allNamespaces is what kubectl needs to delete objects that are in namespaces.
func allNamespaces(names []string) string {
	if strings.Contains(names[0], "/") {
		return " --all-namespaces"
	}
	return ""
}
