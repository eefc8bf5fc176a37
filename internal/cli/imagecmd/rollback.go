package imagecmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert"
)

// rollbackRequest is what a user wants of a source.
type rollbackRequest struct {
	source, to, reason, by string
	end                    bool
	at                     time.Time
}

func newRollback(a *inputs.Access) *cobra.Command {
	var q rollbackRequest
	c := &cobra.Command{
		Use: "rollback SOURCE", Short: "Roll the boot image of new machines back", Args: console.Args(cobra.ExactArgs(1)),
		Long: `Reject the boot image of a source of machines. New machines start from the previous
one of its history again, in the mode of its policy: running machines are replaced in
mode Roll only. This lasts until the stream has an image that is newer than the
rejected one, or until --end. The command writes spec.rollback of the MachineSource.`,
		Example: "  refit bootimage rollback machinedeployment.default.workers --reason \"machines do not start\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.Client()
			if err != nil {
				return err
			}
			q.source, q.by, q.at = args[0], inputs.CurrentUser(), time.Now()
			var answer string
			err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
				answer, err = rollBack(cmd.Context(), cl, q)
				return err
			})
			if err == nil {
				a.Note("%s", answer)
			}
			return err
		},
	}
	c.Flags().StringVar(&q.to, "to", "", "an image of the history, as refit bootimage list shows it (default the previous one)")
	c.Flags().StringVar(&q.reason, "reason", "", "reason, shown in the status")
	c.Flags().BoolVar(&q.end, "end", false, "end the rollback: refit writes the image of the stream again")
	c.MarkFlagsMutuallyExclusive("end", "to")
	c.MarkFlagsMutuallyExclusive("end", "reason")
	return c
}

// rollBack writes spec.rollback of a source, and returns a sentence about it.
func rollBack(ctx context.Context, cl client.Client, q rollbackRequest) (string, error) {
	var s v1alpha1.MachineSource
	err := cl.Get(ctx, client.ObjectKey{Name: q.source}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return "", console.UsageErrorf("MachineSource %s not found: refit bootimage status lists all", q.source)
	case err != nil:
		return "", fmt.Errorf("read MachineSource %s: %w", q.source, err)
	}
	before := s.DeepCopy()
	answer := "rollback ended: refit writes the image of the stream again, within half a minute"
	switch {
	case q.end && s.Spec.Rollback == nil:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("MachineSource %s has no rollback", s.Name))
	case q.end:
		s.Spec.Rollback = nil
	default:
		if answer, err = planRollback(ctx, cl, &s, q); err != nil {
			return "", err
		}
	}
	err = cl.Patch(ctx, &s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerCLI))
	if err != nil && !apierrors.IsConflict(err) {
		err = fmt.Errorf("write MachineSource %s: %w", s.Name, err)
	}
	return answer, err
}

// planRollback sets spec.rollback unless the history or the policy has no image for it.
func planRollback(ctx context.Context, cl client.Client, s *v1alpha1.MachineSource, q rollbackRequest) (string, error) {
	current := s.Status.Referenced
	if current == nil || current.Image == "" {
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("MachineSource %s: its image is not known yet: refit bootimage status", s.Name))
	}
	r, err := bootimage.PlanRollback(convert.ImageHistory(s.Status.History), bootimage.Image{Text: current.Image, OS: current.OS, Release: current.Release}, convert.ImageRollback(s.Spec.Rollback), q.to)
	if err != nil {
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("roll back MachineSource %s: %w; refit bootimage list %s shows its history", s.Name, err, s.Name))
	}
	if err := checkRefused(ctx, cl, s, r.To); err != nil {
		return "", err
	}
	at := metav1.NewTime(q.at.UTC().Truncate(time.Second))
	s.Spec.Rollback = &v1alpha1.ImageRollback{To: r.To.Text, Rejected: v1alpha1.BootImage{Image: r.Rejected.Text, OS: r.Rejected.OS, Release: r.Rejected.Release}, Reason: q.reason, By: q.by, At: &at}
	answer := fmt.Sprintf("%s is rejected; new machines start from %s again: refit bootimage status shows it within half a minute", r.Rejected.Text, r.To.Text)
	if m := s.Status.Mode; m == v1alpha1.BootImageObserve || m == v1alpha1.BootImagePropose {
		answer = fmt.Sprintf("%s is rejected; mode %s writes nothing: write %s yourself (refit bootimage diff %s)", r.Rejected.Text, m, r.To.Text, s.Name)
	}
	return answer, nil
}

// checkRefused fails if the policy refuses the image to return to.
func checkRefused(ctx context.Context, cl client.Client, s *v1alpha1.MachineSource, to bootimage.Image) error {
	var p v1alpha1.BootImagePolicy
	if err := cl.Get(ctx, client.ObjectKey{Name: s.Status.Policy}, &p); err != nil {
		return fmt.Errorf("read BootImagePolicy %q of MachineSource %s: %w", s.Status.Policy, s.Name, err)
	}
	if why := bootimage.Refused(convert.RefusedImages(p.Spec.Refused), to); why != "" {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("BootImagePolicy %s refuses image %s: %s; choose another one of refit bootimage list %s (--to)", p.Name, to.Text, why, s.Name))
	}
	return nil
}
