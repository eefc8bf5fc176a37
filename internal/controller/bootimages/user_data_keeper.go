package bootimages

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
)

// userDataKey is the key in the Secret of a first-boot configuration; annotationUpgraded
// marks one that refit converted.
const (
	userDataKey        = "userData"
	annotationUpgraded = "refit.dev/user-data-upgraded"
)

// userDataKeeper reads and writes first-boot configurations in one reconcile.
type userDataKeeper struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Owner is the field manager of writes.
	Owner string
	Now   time.Time

	written     map[client.ObjectKey]*authorityVerdict
	secrets     map[client.ObjectKey]*corev1.Secret
	authorities map[v1alpha1.AuthorityConfigMap]authorityResult
}

// authorityResult is an authority, or why there is none.
type authorityResult struct {
	text string
	err  error
}

// newUserDataKeeper returns the keeper for one reconcile.
func newUserDataKeeper(c client.Client, owner string, now time.Time) *userDataKeeper {
	return &userDataKeeper{Client: c, Owner: owner, Now: now, written: map[client.ObjectKey]*authorityVerdict{}, secrets: map[client.ObjectKey]*corev1.Secret{}, authorities: map[v1alpha1.AuthorityConfigMap]authorityResult{}}
}

// Convert returns the Secret with its configuration converted for images that read only
// Ignition version 3. It returns nil if there is nothing to convert, or why that fails.
func (k *userDataKeeper) Convert(ctx context.Context, key client.ObjectKey) (*corev1.Secret, string) {
	s := &corev1.Secret{}
	if err := k.Client.Get(ctx, key, s); err != nil {
		return nil, fmt.Sprintf("its first-boot configuration cannot be read: Secret %s: %v", key, err)
	}
	converted, from, err := ignition.Upgrade(s.Data[userDataKey])
	switch {
	case errors.Is(err, ignition.ErrNotIgnition): // any image reads cloud-init
		return nil, ""
	case err != nil:
		return nil, fmt.Sprintf("Secret %s: %v", key, err)
	case from[:1] == "3":
		return nil, ""
	}
	s.Data[userDataKey] = converted
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[annotationUpgraded] = fmt.Sprintf("%s to %s at %s", from, ignition.Target, k.Now.UTC().Format(time.RFC3339))
	return s, ""
}

// Write updates a Secret. The API server rejects it if another client changed the Secret since
// it was read.
func (k *userDataKeeper) Write(ctx context.Context, s *corev1.Secret) error {
	return k.Client.Update(ctx, s, client.FieldOwner(k.Owner))
}
