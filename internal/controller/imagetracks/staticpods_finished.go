package imagetracks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// ssaOver is a node's run as its owner applies it, to exactly the object that was read.
func ssaOver(nu *v1alpha1.NodeUpdate, run *v1alpha1.NodeRun) (*unstructured.Unstructured, error) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.NodeUpdateSpec{Run: run})
	if err != nil {
		return nil, fmt.Errorf("NodeUpdate %s: %w", nu.Name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("NodeUpdate")
	u.SetNamespace(nu.Namespace)
	u.SetName(nu.Name)
	u.SetUID(nu.UID)
	u.SetResourceVersion(nu.ResourceVersion)
	return u, nil
}
