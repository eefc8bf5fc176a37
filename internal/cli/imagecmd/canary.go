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
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

func newRetry(a *inputs.Access) *cobra.Command {
	return newCanaryDecision(a, "Retry", &cobra.Command{
		Use: "retry SOURCE", Short: "Let machines try a boot image again after its canaries failed", Args: console.Args(cobra.ExactArgs(1)),
		Long: `Forget the canaries that failed with the wanted boot image of a source of machines:
refit makes another one. The command writes spec.canary of the MachineSource.`,
		Example: "  refit bootimage retry machinedeployment.default.workers --reason \"the network is repaired\"",
	})
}

func newAccept(a *inputs.Access) *cobra.Command {
	return newCanaryDecision(a, "Accept", &cobra.Command{
		Use: "accept SOURCE", Short: "Accept a boot image without a canary", Args: console.Args(cobra.ExactArgs(1)),
		Long: `Accept the wanted boot image of a source of machines: refit writes it for all new
machines, although no canary has passed with it. The command writes spec.canary of the
MachineSource.`,
		Example: "  refit bootimage accept machinedeployment.default.workers --reason \"tested in the lab\"",
	})
}

// newCanaryDecision completes a command that records a decision about the wanted image.
func newCanaryDecision(a *inputs.Access, action string, c *cobra.Command) *cobra.Command {
	var reason string
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := a.Client()
		if err != nil {
			return err
		}
		d := v1alpha1.CanaryDecision{Action: action, Reason: reason, By: inputs.CurrentUser(), At: metav1.NewTime(time.Now().UTC().Truncate(time.Second))}
		var answer string
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			answer, err = decideCanary(cmd.Context(), cl, args[0], d)
			return err
		})
		if err == nil {
			a.Note("%s", answer)
		}
		return err
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown in the MachineSource")
	return c
}

// decideCanary writes spec.canary of a source, and returns a sentence about it.
func decideCanary(ctx context.Context, cl client.Client, source string, d v1alpha1.CanaryDecision) (string, error) {
	var s v1alpha1.MachineSource
	err := cl.Get(ctx, client.ObjectKey{Name: source}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return "", console.UsageErrorf("MachineSource %s not found: refit bootimage status lists all", source)
	case err != nil:
		return "", fmt.Errorf("read MachineSource %s: %w", source, err)
	}
	c := s.Status.Canary
	switch {
	case c == nil:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("MachineSource %s has no canary: set canary.mode in its BootImagePolicy", source))
	case c.PassedAt != nil:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("the canary of MachineSource %s has passed with %s", source, c.Image))
	case d.Action == "Retry" && len(c.Failures) == 0:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("no canary of MachineSource %s has failed with %s: refit bootimage status shows what it waits for", source, c.Image))
	}
	before := s.DeepCopy()
	d.Image = c.Image
	s.Spec.Canary = &d
	err = cl.Patch(ctx, &s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldOwnerCLI))
	if err != nil && !apierrors.IsConflict(err) {
		err = fmt.Errorf("write MachineSource %s: %w", source, err)
	}
	if d.Action == "Accept" {
		return fmt.Sprintf("%s is accepted: refit writes it without a canary, within half a minute", c.Image), err
	}
	return fmt.Sprintf("refit makes another machine that tries %s, within half a minute", c.Image), err
}
