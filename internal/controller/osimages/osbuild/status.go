package osbuild

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/ssa"
)

// Label is a text as the value of a label.
func Label(s string) string { return strings.TrimRight(s[:min(len(s), 63)], ".-") }

// Interrupt ends a build that is no longer wanted.
func (r *Builds) Interrupt(ctx context.Context, b *v1alpha1.OSBuild) error {
	st := b.Status.DeepCopy()
	markFinished(st, v1alpha1.BuildInterrupted, v1alpha1.ReasonBuildInterrupted, "its inputs are not wanted any more", r.Now())
	return r.write(ctx, b, st)
}

// write a build's status, and tell what changed. One that ended meanwhile keeps its end.
func (r *Builds) write(ctx context.Context, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus) error {
	err := ssa.Status(ctx, r.Client, ssa.Object{Kind: "OSBuild", Name: b.Name, UID: string(b.UID)}, st)
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ended") || apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		r.Tell.Changed(b, st)
	}
	return err
}
