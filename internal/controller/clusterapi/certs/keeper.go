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

// checkInterval is how often the Secret is read; startInterval how often before there
// is a certificate.
const (
	checkInterval = time.Minute
	startInterval = time.Second
)

// Keeper maintains the Secret and serves its certificate. Every replica has one.
type Keeper struct {
	// Client reads and writes without a cache.
	Client client.Client
	Secret client.ObjectKey
	// Names are the DNS names or addresses at which the server is reached.
	Names []string
	Now   func() time.Time

	served atomic.Pointer[tls.Certificate]
}

// Start maintains the Secret until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	reported := ""
	for {
		interval := checkInterval
		err := k.Sync(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != reported {
			reported = err.Error()
			log.FromContext(ctx).Error(err, "failed to maintain the extension's certificate; the current one stays in use")
		}
		if k.served.Load() == nil {
			interval = startInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// NeedLeaderElection is false: every replica serves.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Sync reads the Secret, rotates what is due, and serves the certificate in it.
func (k *Keeper) Sync(ctx context.Context) error {
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
		if err := k.writeSecret(ctx, &s, next, missing); err != nil {
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

// writeSecret fails if another replica was faster; the next Sync then reads its data.
func (k *Keeper) writeSecret(ctx context.Context, s *corev1.Secret, data map[string][]byte, missing bool) error {
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
	return nil, errors.New("the extension server has no certificate yet")
}
