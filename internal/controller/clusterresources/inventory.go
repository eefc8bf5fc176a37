package clusterresources

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// item is one applied object.
type item struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid,omitempty"`
}

func itemOf(u *unstructured.Unstructured) item {
	return item{u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName(), u.GetUID()}
}

// key identifies an object independently of its API version.
func (i item) key() string {
	group, _, found := strings.Cut(i.APIVersion, "/")
	if !found {
		group = ""
	}
	return strings.Join([]string{group, i.Kind, i.Namespace, i.Name}, " ")
}

func (i item) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(i.APIVersion)
	u.SetKind(i.Kind)
	u.SetNamespace(i.Namespace)
	u.SetName(i.Name)
	return u
}

const inventoryKey = "objects"

// inventoryName is the ConfigMap with the applied objects of all bundles of a name.
func inventoryName(bundle string) string {
	return "refit-resources-" + strings.Trim(strings.NewReplacer("_", "-", ".", "-").Replace(bundle), "-")
}

func (r *Reconciler) readInventory(ctx context.Context, bundle string) ([]item, error) {
	var cm corev1.ConfigMap
	err := r.Objects.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: inventoryName(bundle)}, &cm)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the inventory of %s: %w", bundle, err)
	}
	var out []item
	if err := json.Unmarshal([]byte(cm.Data[inventoryKey]), &out); err != nil {
		return nil, fmt.Errorf("the inventory of %s: %w", bundle, err)
	}
	return out, nil
}

func (r *Reconciler) writeInventory(ctx context.Context, bundle string, items []item) error {
	sort.Slice(items, func(i, j int) bool { return items[i].key() < items[j].key() })
	b, err := json.Marshal(items)
	if err != nil {
		return fmt.Errorf("the inventory of %s: %w", bundle, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{inventoryKey: string(b)}}}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace(v1alpha1.NodesNamespace)
	u.SetName(inventoryName(bundle))
	u.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController})
	if err := r.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("write the inventory of %s: %w", bundle, err)
	}
	return nil
}

// merge adds objects to an inventory. Objects already in it keep their UID until the new one is
// known.
func merge(have, add []item) []item {
	known := map[string]bool{}
	out := append([]item(nil), have...)
	for _, i := range have {
		known[i.key()] = true
	}
	for _, i := range add {
		if !known[i.key()] {
			out = append(out, i)
		}
	}
	return out
}

// notIn returns the objects of an inventory that a bundle does not contain any more.
func notIn(have, now []item) []item {
	still := map[string]bool{}
	for _, i := range now {
		still[i.key()] = true
	}
	var out []item
	for _, i := range have {
		if !still[i.key()] {
			out = append(out, i)
		}
	}
	return out
}

// neverRemoved are kinds that refit never removes, because that would also delete objects that
// it did not create.
var neverRemoved = map[string]bool{"Namespace": true, "CustomResourceDefinition": true, "PersistentVolume": true, "PersistentVolumeClaim": true}

// removable reports whether an object may be removed: it has the UID that was applied, and
// still has fields of refit.
func removable(i item, live *unstructured.Unstructured) bool {
	if neverRemoved[i.Kind] || i.UID == "" || live.GetUID() != i.UID {
		return false
	}
	for _, m := range live.GetManagedFields() {
		if m.Manager == FieldOwner && m.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}
