package osbuild

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/registry"
)

// PullSecret for the base; nil for none.
func PullSecret(s *v1alpha1.OSImageSpec) *v1alpha1.PullSecret {
	if s.Base != nil && s.Base.PullSecret != nil {
		return s.Base.PullSecret
	}
	return s.Secret
}

// PushSecret for built images; nil for none.
func PushSecret(s *v1alpha1.OSImageSpec) *v1alpha1.PullSecret {
	if s.PushSecret != nil {
		return s.PushSecret
	}
	return s.Secret
}

// Keys reads a Secret; a problem is one that a person has to fix.
func Keys(ctx context.Context, live client.Reader, ref *v1alpha1.PullSecret) (k *registry.Keys, problem string, err error) {
	if ref == nil {
		return nil, "", nil
	}
	var s corev1.Secret
	err = live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.BuildsNamespace, Name: ref.Name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, "there is no Secret " + ref.Name + " in namespace " + v1alpha1.BuildsNamespace, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the Secret %s: %w", ref.Name, err)
	}
	k, err = registry.ParseKeys(s.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return nil, "Secret " + ref.Name + ": " + err.Error(), nil //nolint:nilerr // a person mends it
	}
	return k, "", nil
}
