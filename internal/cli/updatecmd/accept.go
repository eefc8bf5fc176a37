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
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

type acceptFlags struct {
	reason, update string
	until          time.Duration
	withdraw       bool
}

func newAccept(a *cluster.Access) *cobra.Command {
	var f acceptFlags
	names := make([]string, 0, len(gate.Checks()))
	for _, c := range gate.Checks() {
		if c.Never == "" {
			names = append(names, c.Name)
		}
	}
	c := &cobra.Command{
		Use:   "accept CHECK --reason TEXT --until DURATION",
		Short: "Take the risk of one check of the gate, with a reason and an end",
		Long: `Take the risk of one check of the gate: until it ends, what the check says
against the update is a warning. Reason and end are recorded in the update and
stay in its status. From its end on the check counts again.

What guards the approval, the plan, the quorum, and the images can be accepted
by nobody. refit gate lists the checks and their answers.`,
		Args: cobra.ExactArgs(1), ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error { return accept(cmd.Context(), a, args[0], f) },
	}
	c.Flags().StringVar(&f.reason, "reason", "", "why the risk is taken, for whoever reads it later")
	c.Flags().DurationVar(&f.until, "until", 0, "for how long, for example 4h")
	c.Flags().StringVar(&f.update, "update", "", "ClusterUpdate (default: the current one)")
	c.Flags().BoolVar(&f.withdraw, "withdraw", false, "take the acceptance back")
	return c
}

// riskFor makes the record of an accepted risk, or says why it cannot be.
func riskFor(check string, f acceptFlags, now time.Time) (*v1alpha1.AcceptedRisk, error) {
	c, known := gate.Find(check)
	switch {
	case !known:
		return nil, exit.Usage(fmt.Errorf("the gate has no check %q; refit gate lists them", check))
	case f.withdraw:
		return nil, nil
	case c.Never != "":
		return nil, exit.With(exit.Blocked, fmt.Errorf("check %s can be accepted by nobody: %s", check, c.Never))
	case len(strings.TrimSpace(f.reason)) < 3:
		return nil, exit.Usage(errors.New("say why with --reason TEXT: it is recorded in the update"))
	case f.until <= 0:
		return nil, exit.Usage(errors.New("say for how long with --until DURATION, for example 4h: a risk that is taken has an end"))
	}
	return &v1alpha1.AcceptedRisk{Check: check, Reason: f.reason, Until: metav1.NewTime(now.Add(f.until).Truncate(time.Second))}, nil
}

func accept(ctx context.Context, a *cluster.Access, check string, f acceptFlags) error {
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
