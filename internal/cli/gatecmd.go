package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/render"
)

func newGate(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "gate [UPDATE]",
		Short: "List the pre-update checks with their results",
		Long: `List the checks of the gate in their order, each with its result: Passed, Warned,
Closed, or Accepted (an administrator accepted the risk). The messages follow
below the table.

Exit codes: 0 the gate is open, 3 a check is closed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			cl, _, err := o.Reader()
			if err != nil {
				return err
			}
			u, err := inputs.FindUpdate(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			v := gateView(u)
			if err := render.Gate(o.Out, o.output, v); err != nil {
				return err
			}
			if !v.Open {
				return console.SilentExit(console.ExitBlocked)
			}
			return nil
		},
	}
	o.outputFlag(c)
	o.FromFlag(c.Flags())
	return c
}

// gateView joins the results of an update's status with the list of checks. A check
// without a result (the controller has another version, or has not run it yet) is
// NotAsked.
func gateView(u *v1alpha1.ClusterUpdate) render.GateView {
	answers := map[string]v1alpha1.GateCheck{}
	for _, c := range u.Status.Checks {
		answers[c.Name] = c
	}
	v := render.GateView{APIVersion: "refit.dev/gate/v1", Kind: "Gate", Update: u.Name, Open: len(u.Status.Checks) > 0,
		Waiting: rolloutfacts.Blockers(u.Status.Blockers), Warnings: rolloutfacts.Blockers(u.Status.Warnings)}
	if n := len(u.Bundles()); n > 1 {
		v.Hop = fmt.Sprintf("hop %d of %d", u.Hop()+1, n)
	}
	for _, c := range gate.Checks() {
		a, asked := answers[c.Name]
		row := render.GateCheck{Name: c.Name, Asks: c.Question, Answer: "NotAsked", Never: c.NeverAcceptable, Verdicts: int(a.Verdicts), Warnings: int(a.Warnings)}
		if asked {
			row.Answer = string(a.Result)
		}
		v.Open = v.Open && a.Result != v1alpha1.CheckClosed
		delete(answers, c.Name)
		v.Checks = append(v.Checks, row)
	}
	for _, c := range u.Status.Checks { // of a newer controller
		if _, left := answers[c.Name]; left {
			v.Checks = append(v.Checks, render.GateCheck{Name: c.Name, Answer: string(c.Result), Verdicts: int(c.Verdicts), Warnings: int(c.Warnings)})
			v.Open = v.Open && c.Result != v1alpha1.CheckClosed
		}
	}
	for _, r := range u.Status.AcceptedRisks {
		v.Risks = append(v.Risks, render.GateRisk{Check: r.Check, Reason: r.Reason, Until: r.Until.Time, State: string(r.State), Covers: int(r.Covers)})
	}
	return v
}
