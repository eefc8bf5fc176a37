package building

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/ssa"
)

// Label is a text as the value of a label.
func Label(s string) string { return strings.TrimRight(s[:min(len(s), 63)], ".-") }

// Cut shortens a text to n bytes.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}

// Interrupt ends a build that nobody wants any more.
func Interrupt(ctx context.Context, c client.Client, b *v1alpha1.OSBuild, now time.Time) error {
	st := b.Status.DeepCopy()
	end(st, v1alpha1.BuildInterrupted, v1alpha1.ReasonBuildInterrupted, "its inputs are not wanted any more", now)
	return writeBuild(ctx, c, b, st)
}

// writeBuild writes a build's status. One that ended meanwhile keeps its end.
func writeBuild(ctx context.Context, c client.Client, b *v1alpha1.OSBuild, st *v1alpha1.OSBuildStatus) error {
	err := ssa.Status(ctx, c, ssa.Object{Kind: "OSBuild", Name: b.Name, UID: string(b.UID)}, st)
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "ended") || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
