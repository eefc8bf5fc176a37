package ssa

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// MakeContent makes the Content of some data, if there is none yet.
func MakeContent(ctx context.Context, c client.Client, kind, data string) (*v1alpha1.Content, error) {
	o := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(kind, data)}, Type: kind, Data: data}
	err := c.Create(ctx, o, client.FieldOwner(v1alpha1.FieldOwnerController))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make Content %s: %w", o.Name, err)
	}
	return o, nil
}
