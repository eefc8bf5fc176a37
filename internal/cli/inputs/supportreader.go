package inputs

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/refit-dev/refit/internal/cli/console"
)

// supportReader reads the objects of a support archive as a client reads those of a cluster.
type supportReader struct {
	kinds   *runtime.Scheme
	objects map[schema.GroupKind][]client.Object
	// cluster is the uid of the namespace kube-system.
	cluster string
	// gaps are the reasons why kinds are missing.
	gaps map[string]string
}

// Get copies one object.
func (c *supportReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gk, all, err := c.of(into)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.GetNamespace() == key.Namespace && o.GetName() == key.Name {
			return copyInto(o.DeepCopyObject(), into)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, key.Name)
}

// List copies the objects that match. An archive has no pages.
func (c *supportReader) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	_, all, err := c.of(into)
	if err != nil {
		return err
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	var out []runtime.Object
	for _, x := range all {
		if selects(x, &o) {
			out = append(out, x.DeepCopyObject())
		}
	}
	return meta.SetList(into, out)
}

// of returns the objects of a kind or of a list of it. A kind that the archive has not, without a
// reason, was not installed in its cluster.
func (c *supportReader) of(o runtime.Object) (schema.GroupKind, []client.Object, error) {
	gvk, err := apiutil.GVKForObject(o, c.kinds)
	if err != nil {
		return schema.GroupKind{}, nil, err
	}
	gk := gvk.GroupKind()
	if meta.IsListType(o) {
		gk.Kind = strings.TrimSuffix(gk.Kind, "List")
	}
	all, ok := c.objects[gk]
	if why, gap := c.gaps[gk.Kind]; gap && !ok {
		return gk, nil, console.WithExit(console.ExitBlocked, fmt.Errorf("the archive has no %s: %s. Make it again with the rights to list them", gk.Kind, why))
	}
	if !ok {
		return gk, nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: []string{gvk.Version}}
	}
	return gk, all, nil
}

func copyInto(from runtime.Object, into runtime.Object) error {
	to, err := conversion.EnforcePtr(into)
	if err != nil {
		return err
	}
	v, err := conversion.EnforcePtr(from)
	if err != nil {
		return err
	}
	if !v.Type().AssignableTo(to.Type()) {
		return fmt.Errorf("%T is not %T", from, into)
	}
	to.Set(v)
	return nil
}

// selects evaluates the options that refit's commands use.
func selects(o client.Object, by *client.ListOptions) bool {
	if by.Namespace != "" && o.GetNamespace() != by.Namespace {
		return false
	}
	if by.LabelSelector != nil && !by.LabelSelector.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if by.FieldSelector == nil {
		return true
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if p, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = p.Spec.NodeName
	}
	return by.FieldSelector.Matches(set)
}
