package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
)

func newStatus(o *options) *cobra.Command {
	var watch bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the progress of the update, what it waits for and why",
		Long: `Show the progress of the update, what it waits for and why.

With --watch the command follows the update until it is done, halted, or blocked for
ten seconds. Ending the command does not stop the update.

Exit codes: 0 done or nothing planned, 3 a person must act, 4 in progress, 5 halted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			if watch {
				return o.watchCluster(cmd.Context(), timeout)
			}
			cl, now, err := o.Reader()
			if err != nil {
				return err
			}
			f, err := gather(cmd.Context(), cl, now)
			if err != nil {
				return err
			}
			v := explain.Make(f)
			if err := render.Status(o.Out, o.output, v); err != nil {
				return err
			}
			return codeOf(v)
		},
	}
	o.outputFlag(c)
	o.FromFlag(c.Flags())
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow until the update ends or a person must act")
	c.Flags().DurationVar(&timeout, "timeout", 0, "with --watch: stop watching after this time with exit code 4 (0: never)")
	return c
}

// codeOf returns the exit code of a view.
func codeOf(v explain.View) error {
	switch v.Phase {
	case "Idle", v1alpha1.PhaseDone:
		return nil
	case v1alpha1.PhaseHalted:
		return console.SilentExit(console.ExitFailed)
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseReady:
		return console.SilentExit(console.ExitBlocked)
	}
	if v.Paused {
		return console.SilentExit(console.ExitBlocked)
	}
	return console.SilentExit(console.ExitInProgress)
}

// isFinal reports whether the view will not change by itself.
func isFinal(v explain.View) bool {
	switch v.Phase {
	case v1alpha1.PhaseDone, v1alpha1.PhaseHalted, v1alpha1.PhaseReady:
		return true
	case "Idle":
		return len(v.Nodes) > 0
	}
	return false
}

// blockedPatience is how long an update stays Blocked before a waiting command ends. Transient
// causes, such as a medium that the agent has not detected yet, are over by then.
const blockedPatience = 10 * time.Second

// blockedTimer has the time since which a watched update has been Blocked.
type blockedTimer struct{ since time.Time }

func (b *blockedTimer) tooLong(phase string, now time.Time) bool {
	switch {
	case phase != v1alpha1.PhaseBlocked:
		b.since = time.Time{}
	case b.since.IsZero():
		b.since = now
	}
	return !b.since.IsZero() && now.Sub(b.since) >= blockedPatience
}

// ends reports whether a phase is final. For a waiting command Blocked is final after a while.
func (b *blockedTimer) ends(phase string, wait bool, now time.Time) bool {
	tooLong := b.tooLong(phase, now)
	return !wait || phase != v1alpha1.PhaseBlocked || tooLong
}

func (o *options) watchCluster(ctx context.Context, timeout time.Duration) error {
	if o.From != "" {
		return console.UsageErrorf("--watch follows a cluster, and %s does not change: leave out one of them", o.From)
	}
	cl, err := o.Client()
	if err != nil {
		return err
	}
	return o.watch(ctx, cl, timeout)
}

// watch follows the update until it ends. While the API server is unavailable, as
// during the update of a control-plane node, it reports that and continues.
func (o *options) watch(ctx context.Context, cl client.Client, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	p := console.NewProgress(o.Err)
	var blocked blockedTimer
	for {
		v, err := o.showStatus(ctx, cl, p)
		if err == nil && (isFinal(v) || blocked.tooLong(v.Phase, time.Now())) {
			p.Clear()
			if err := render.Status(o.Out, o.output, v); err != nil {
				return err
			}
			return codeOf(v)
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return console.WithExit(console.ExitInProgress, fmt.Errorf("still in progress after %s; the update continues, `refit status` shows it", timeout))
			}
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (o *options) showStatus(ctx context.Context, cl client.Client, p *console.Progress) (explain.View, error) {
	f, err := gather(ctx, cl, time.Now())
	if err != nil {
		p.PrintLine("the API server does not answer; the nodes continue by themselves")
		return explain.View{}, err
	}
	v := explain.Make(f)
	p.ShowView(v)
	return v, nil
}
