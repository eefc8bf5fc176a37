package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// look is how often the Secret is read; unready how often before there is a
// certificate.
const (
	look    = time.Minute
	unready = time.Second
)

// Keeper keeps the Secret and serves its certificate. Every replica has one.
type Keeper struct {
	// Client reads and writes past any cache.
	Client client.Client
	Secret client.ObjectKey
	// Names under which the server is reached: DNS names or addresses.
	Names []string
	Now   func() time.Time

	served atomic.Pointer[tls.Certificate]
}

// Start keeps the Secret until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	said := ""
	for {
		again := look
		err := k.Keep(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.FromContext(ctx).Error(err, "the extension's certificate is not looked after; the one that is served stays")
		}
		if k.served.Load() == nil {
			again = unready
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// NeedLeaderElection is false: every replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Keep reads the Secret once, rotates what is due, and serves what it holds.
func (k *Keeper) Keep(ctx context.Context) error {
	var s corev1.Secret
	err := k.Client.Get(ctx, k.Secret, &s)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read Secret %s: %w", k.Secret, err)
	}
	next, changed, err := Next(s.Data, k.Names, k.Now())
	if err != nil {
		return err
	}
	if changed {
		if err := k.write(ctx, &s, next, missing); err != nil {
			return err
		}
	}
	c, err := tls.X509KeyPair(next[KeyCert], next[KeyKey])
	if err != nil {
		return fmt.Errorf("the certificate in Secret %s: %w", k.Secret, err)
	}
	k.served.Store(&c)
	return nil
}

// write fails if another replica was faster; then its data is read at the next look.
func (k *Keeper) write(ctx context.Context, s *corev1.Secret, data map[string][]byte, missing bool) error {
	s.Data = data
	var err error
	if missing {
		s.ObjectMeta = metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController}}
		err = k.Client.Create(ctx, s, client.FieldOwner(v1alpha1.FieldOwnerController))
	} else {
		err = k.Client.Update(ctx, s, client.FieldOwner(v1alpha1.FieldOwnerController))
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", k.Secret, err)
	}
	return nil
}

// Ready reports whether there is a certificate to serve.
func (k *Keeper) Ready() bool { return k.served.Load() != nil }

// Certificate is for tls.Config.GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.served.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}
