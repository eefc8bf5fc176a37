// Package ssa writes API objects by server-side apply, one field owner per part, and
// creates Contents.
//
// Promise: a write has every field of its owner, so fields that it omits are removed. A
// write names the UID, so a recreated object is never mistaken for the deleted one. A
// Content is named by its hash and never changes.
//
// Inputs: typed objects of the API package, data. Callers: the reconcilers.
package ssa

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Object says which object is written.
type Object struct {
	Kind, Namespace, Name string
	// UID of the object that was read; empty for one that may be new.
	UID string
	// Labels that the owner sets.
	Labels map[string]string
	// Parent, if not nil: the object goes when that one is deleted.
	Parent *metav1.OwnerReference
}

// Spec applies the spec of an object for an owner and makes the object if there
// is none. spec is a pointer to a struct or a map.
func Spec(ctx context.Context, c client.Client, owner string, o Object, spec any) error {
	u, err := o.apply("spec", spec)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("write the spec of %s %s: %w", o.Kind, o.Name, err)
	}
	return nil
}

// NodeSpec applies the spec of a node's NodeUpdate for an owner, and returns the
// object as the API server has it now.
func NodeSpec(ctx context.Context, c client.Client, owner, node string, spec *v1alpha1.NodeUpdateSpec) (*v1alpha1.NodeUpdate, error) {
	o := Object{Kind: "NodeUpdate", Namespace: v1alpha1.NodesNamespace, Name: node}
	u, err := o.apply("spec", spec)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("write the spec of NodeUpdate %s: %w", node, err)
	}
	u.SetManagedFields(nil) // large and unused
	nu := &v1alpha1.NodeUpdate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, nu); err != nil {
		return nil, fmt.Errorf("read the answer about NodeUpdate %s: %w", node, err)
	}
	return nu, nil
}

// Status applies the status of an object as the controller. status is a pointer
// to a struct.
func Status(ctx context.Context, c client.Client, o Object, status any) error {
	u, err := o.apply("status", status)
	if err != nil {
		return err
	}
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.FieldOwnerController), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", o.Kind, o.Name, err)
	}
	return nil
}

func (o Object) apply(part string, value any) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{part: m}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(o.Kind)
	u.SetName(o.Name)
	if o.Namespace != "" {
		u.SetNamespace(o.Namespace)
	}
	if o.UID != "" {
		if err := unstructured.SetNestedField(u.Object, o.UID, "metadata", "uid"); err != nil {
			return nil, err
		}
	}
	if len(o.Labels) > 0 {
		u.SetLabels(o.Labels)
	}
	if o.Parent != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{*o.Parent})
	}
	return u, nil
}
