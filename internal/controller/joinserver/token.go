package joinserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/convert"
)

const (
	// sameAgain is how long the same address may fetch again.
	sameAgain = 2 * time.Minute
	// keepUsed is how long the record of a used token stays.
	keepUsed = time.Hour
)

// errToken is the one answer for every refused token, so that callers do not learn why.
var errToken = errors.New("the token is not known, has ended, or was used")

// readSecret reads the record of a token, used or not.
func (s *Server) readSecret(ctx context.Context, token string) (*corev1.Secret, error) {
	name := convert.JoinSecretName(token)
	if name == "" {
		return nil, errToken
	}
	r := &corev1.Secret{}
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: convert.JoinNamespace, Name: name}, r)
	if apierrors.IsNotFound(err) {
		return nil, errToken
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of a token: %w", err)
	}
	return r, nil
}

// readRecord of a token that may be used, by whom it is now.
func (s *Server) readRecord(ctx context.Context, token, from string) (*corev1.Secret, error) {
	r, err := s.readSecret(ctx, token)
	if err != nil {
		return nil, err
	}
	until, err := time.Parse(time.RFC3339, r.Annotations[convert.AnnotationJoinUntil])
	if err != nil || !s.Now().Before(until) || r.Labels[convert.LabelJoinPool] == "" {
		return nil, errToken
	}
	if by := r.Annotations[convert.AnnotationJoinUsedBy]; by != "" && (by != from || s.usedLongAgo(r)) {
		return nil, errToken
	}
	return r, nil
}

func (s *Server) usedLongAgo(r *corev1.Secret) bool {
	at, err := time.Parse(time.RFC3339, r.Annotations[convert.AnnotationJoinUsedAt])
	return err != nil || s.Now().Sub(at) > sameAgain
}

// claimToken uses a token up. Of two that come at once the API server takes one.
func (s *Server) claimToken(ctx context.Context, r *corev1.Secret, from string) error {
	if r.Annotations[convert.AnnotationJoinUsedBy] == from {
		return nil
	}
	for _, a := range []string{convert.AnnotationRefused, convert.AnnotationRefusedAt, convert.AnnotationRefusedFrom} { // an older image was; this one is not
		delete(r.Annotations, a)
	}
	r.Annotations[convert.AnnotationJoinUsedBy], r.Annotations[convert.AnnotationJoinUsedAt] = from, s.Now().UTC().Format(time.RFC3339)
	err := s.Client.Update(ctx, r)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errToken
	}
	if err != nil {
		return fmt.Errorf("use a token up: %w", err)
	}
	return nil
}

// sweep deletes records that have ended, or were used some time ago.
func (s *Server) sweep(ctx context.Context) error {
	var l corev1.SecretList
	if err := s.Client.List(ctx, &l, client.InNamespace(convert.JoinNamespace), client.HasLabels{convert.LabelJoinPool}); err != nil {
		return fmt.Errorf("list the records of tokens: %w", err)
	}
	var errs []error
	for i := range l.Items {
		r := &l.Items[i]
		until, errU := time.Parse(time.RFC3339, r.Annotations[convert.AnnotationJoinUntil])
		used, errA := time.Parse(time.RFC3339, r.Annotations[convert.AnnotationJoinUsedAt])
		if errU != nil || !s.Now().Before(until.Add(keepUsed)) || errA == nil && s.Now().Sub(used) > keepUsed {
			errs = append(errs, client.IgnoreNotFound(s.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion})))
		}
	}
	return errors.Join(errs...)
}
