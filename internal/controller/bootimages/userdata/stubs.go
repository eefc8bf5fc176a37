// Package userdata keeps the first-boot configurations (Ignition in Secrets) that
// machine managers refer to readable for the image that is written, and trusting
// the server that they fetch the rest from.
//
// Promise: of a configuration whose authority is exchanged every other byte stays.
// What is no Ignition, what fetches from another server, what somebody else writes
// and what has several authorities is left alone, and that is said. A Secret that
// several managers refer to is written once in a look; every write is in their
// records.
//
// Inputs: Secrets, a ConfigMap with the server's authority, past writes. Outputs:
// Secrets, verdicts. Caller: controller/bootimages.
package userdata

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

// userDataKey of the Secret with a first-boot configuration, and the note that
// refit leaves on one that it converted.
const (
	userDataKey        = "userData"
	annotationUpgraded = "refit.dev/user-data-upgraded"
)

// Keeper of one look.
type Keeper struct {
	// Client reads and writes past any cache.
	Client client.Client
	// Owner of what is written.
	Owner string
	Now   time.Time

	written     map[client.ObjectKey]*Verdict
	secrets     map[client.ObjectKey]*corev1.Secret
	authorities map[v1alpha1.AuthorityConfigMap]found
}

// found is an authority, or why there is none.
type found struct {
	text string
	err  error
}

// New makes the keeper of one look.
func New(c client.Client, owner string, now time.Time) *Keeper {
	return &Keeper{Client: c, Owner: owner, Now: now, written: map[client.ObjectKey]*Verdict{}, secrets: map[client.ObjectKey]*corev1.Secret{}, authorities: map[v1alpha1.AuthorityConfigMap]found{}}
}

// Convert returns the Secret with its configuration converted for images that read
// version 3 only, nil if there is nothing to convert, or why it cannot be done.
func (k *Keeper) Convert(ctx context.Context, key client.ObjectKey) (*corev1.Secret, string) {
	s := &corev1.Secret{}
	if err := k.Client.Get(ctx, key, s); err != nil {
		return nil, fmt.Sprintf("its first-boot configuration cannot be read: Secret %s: %v", key, err)
	}
	converted, from, err := ignition.Upgrade(s.Data[userDataKey])
	switch {
	case errors.Is(err, ignition.ErrNotIgnition): // cloud-init and the like are read by any image
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

// Write a Secret that was converted. What was read in between by nobody else is
// tested by the API server.
func (k *Keeper) Write(ctx context.Context, s *corev1.Secret) error {
	return k.Client.Update(ctx, s, client.FieldOwner(k.Owner))
}
