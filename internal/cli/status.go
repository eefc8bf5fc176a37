package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/progress"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
)

func newStatus(o *options) *cobra.Command {
	var watch bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Say how far the update is, what it waits for and why",
		Long: `Say how far the update is, what it waits for and why.

With --watch it follows until the update is done or halted, or has been blocked
for ten seconds. It only
watches: ending it stops nothing.

Exit codes: 0 done or nothing planned, 3 a person must act, 4 in progress, 5 halted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			cl, err := o.Client()
			if err != nil {
				return err
			}
			if watch {
				return o.watch(cmd.Context(), cl, timeout)
			}
			f, err := gather(cmd.Context(), cl)
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
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow until the update ends or a person must act")
	c.Flags().DurationVar(&timeout, "timeout", 0, "with --watch: stop watching after this time with exit code 4 (0: never)")
	return c
}

// codeOf is the exit code that a view means.
func codeOf(v explain.View) error {
	switch v.Phase {
	case "Idle", v1alpha1.PhaseDone:
		return nil
	case v1alpha1.PhaseHalted:
		return exit.Silent(exit.Failed)
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseReady:
		return exit.Silent(exit.Blocked)
	}
	if v.Paused {
		return exit.Silent(exit.Blocked)
	}
	return exit.Silent(exit.InProgress)
}

// final reports whether watching further would show nothing new by itself.
func final(v explain.View) bool {
	switch v.Phase {
	case v1alpha1.PhaseDone, v1alpha1.PhaseHalted, v1alpha1.PhaseReady:
		return true
	case "Idle":
		return len(v.Nodes) > 0
	}
	return false
}

// blockedPatience is how long an update stays Blocked before a command that waits for it ends:
// what passes by itself, such as a medium that is not noticed yet, is over by then.
const blockedPatience = 10 * time.Second

// blockedFor remembers since when a watched update has been Blocked.
type blockedFor struct{ since time.Time }

func (b *blockedFor) tooLong(phase string, now time.Time) bool {
	switch {
	case phase != v1alpha1.PhaseBlocked:
		b.since = time.Time{}
	case b.since.IsZero():
		b.since = now
	}
	return !b.since.IsZero() && now.Sub(b.since) >= blockedPatience
}

// ends reports whether a phase is an answer: Blocked is none for a while to a command that waits.
func (b *blockedFor) ends(phase string, wait bool, now time.Time) bool {
	tooLong := b.tooLong(phase, now)
	return !wait || phase != v1alpha1.PhaseBlocked || tooLong
}

// watch follows the update until it ends. While the API server is away, which
// is expected when a control-plane node moves, it says so and goes on.
func (o *options) watch(ctx context.Context, cl client.Client, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	p := progress.New(o.Err)
	var blocked blockedFor
	for {
		v, err := o.look(ctx, cl, p)
		if err == nil && (final(v) || blocked.tooLong(v.Phase, time.Now())) {
			p.End()
			if err := render.Status(o.Out, o.output, v); err != nil {
				return err
			}
			return codeOf(v)
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return exit.With(exit.InProgress, fmt.Errorf("still in progress after %s; the update goes on, `refit status` shows it", timeout))
			}
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (o *options) look(ctx context.Context, cl client.Client, p *progress.Printer) (explain.View, error) {
	f, err := gather(ctx, cl)
	if err != nil {
		p.Line("the API server does not answer; the nodes go on by themselves")
		return explain.View{}, err
	}
	v := explain.Make(f)
	p.View(v)
	return v, nil
}
