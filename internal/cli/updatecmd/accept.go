package updatecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

type acceptFlags struct {
	reason, update string
	until          time.Duration
	withdraw       bool
}

func newAccept(a *inputs.Access) *cobra.Command {
	var f acceptFlags
	names := make([]string, 0, len(gate.Checks()))
	for _, c := range gate.Checks() {
		if c.NeverAcceptable == "" {
			names = append(names, c.Name)
		}
	}
	c := &cobra.Command{
		Use:   "accept CHECK --reason TEXT --until DURATION",
		Short: "Acknowledge a failing pre-update check until a deadline",
		Long: `Acknowledge a failing check of the gate: until the deadline, its failures are
warnings. The update records reason, user and deadline in its spec and warnings. After the deadline
the check counts again.

The checks of the approval, the plan, the quorum and the images cannot be accepted.
refit gate lists the checks and their results.`,
		Args: cobra.ExactArgs(1), ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error { return accept(cmd.Context(), a, args[0], f) },
	}
	c.Flags().StringVar(&f.reason, "reason", "", "why the risk is accepted; recorded in the update")
	c.Flags().DurationVar(&f.until, "until", 0, "for how long, for example 4h")
	c.Flags().StringVar(&f.update, "update", "", "ClusterUpdate (default: the current one)")
	c.Flags().BoolVar(&f.withdraw, "withdraw", false, "withdraw the acceptance")
	return c
}

// riskFor returns the record of an accepted risk, or why it cannot be accepted.
func riskFor(check string, f acceptFlags, now time.Time) (*v1alpha1.AcceptedRisk, error) {
	c, known := gate.FindCheck(check)
	switch {
	case !known:
		return nil, console.UsageError(fmt.Errorf("the gate has no check %q; refit gate lists them", check))
	case f.withdraw:
		return nil, nil
	case c.NeverAcceptable != "":
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("the risk of check %s cannot be accepted: %s", check, c.NeverAcceptable))
	case len(strings.TrimSpace(f.reason)) < 3:
		return nil, console.UsageError(errors.New("--reason TEXT is missing: it is recorded in the update"))
	case f.until <= 0:
		return nil, console.UsageError(errors.New("--until DURATION is missing, for example 4h: an accepted risk has a deadline"))
	}
	return &v1alpha1.AcceptedRisk{Check: check, Reason: f.reason, By: inputs.CurrentUser(), Until: metav1.NewTime(now.Add(f.until).Truncate(time.Second))}, nil
}

func accept(ctx context.Context, a *inputs.Access, check string, f acceptFlags) error {
	risk, err := riskFor(check, f, time.Now())
	if err != nil {
		return err
	}
	var args []string
	if f.update != "" {
		args = []string{f.update}
	}
	return Change(ctx, a, args, func(u *v1alpha1.ClusterUpdate) (string, error) {
		kept := []v1alpha1.AcceptedRisk{}
		for _, r := range u.Spec.AcceptedRisks {
			if r.Check != check {
				kept = append(kept, r)
			}
		}
		if risk == nil {
			u.Spec.AcceptedRisks = kept
			return "check " + check + " counts again", nil
		}
		u.Spec.AcceptedRisks = append(kept, *risk)
		return fmt.Sprintf("check %s is accepted until %s: %s", check, risk.Until.UTC().Format(time.RFC3339), risk.Reason), nil
	})
}
