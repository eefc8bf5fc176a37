package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/peerapi"
)

const (
	keySecret = "refit-controller-key"
	keyField  = "key.pem"
)

// identity reads the controller's key from its Secret, and creates it once if there is
// none. The desired state of every node names the public half.
func identity(ctx context.Context, c client.Client) (*peerapi.Identity, error) {
	for range 3 {
		var s corev1.Secret
		err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: keySecret}, &s)
		if err == nil {
			key, err := peerapi.ParseKey(s.Data[keyField])
			if err != nil {
				return nil, fmt.Errorf("secret %s/%s: %s: %w; delete the Secret to have a new key made", s.Namespace, s.Name, keyField, err)
			}
			return peerapi.NewIdentity(key)
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read the controller's key: %w", err)
		}
		_, text, err := peerapi.NewKey()
		if err != nil {
			return nil, err
		}
		s = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: keySecret}, Data: map[string][]byte{keyField: text}}
		if err := c.Create(ctx, &s); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("store the controller's key: %w", err)
		}
	}
	return nil, fmt.Errorf("the Secret %s/%s comes and goes", v1alpha1.SystemNamespace, keySecret)
}
