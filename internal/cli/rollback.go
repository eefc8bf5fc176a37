package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/render"
)

type rollbackFlags struct {
	planFlags
	end bool
	// pool whose OS image rolls back; follow ends that.
	pool   string
	follow bool
	// stock: the pool boots what its nodes ran before refit.
	stock bool
}

func newRollback(o *options) *cobra.Command {
	var f rollbackFlags
	c := &cobra.Command{
		Use:   "rollback [--to BUNDLE|VERSION|DIGEST]",
		Short: "Plan a rollback to the previous bundle",
		Long: `Plan a rollback to the previous bundle, or to another one. The command creates a
Manual ClusterUpdate that allows a downgrade, and prints its plan with the steps that
can be rolled back and the reasons of those that cannot. kubeadm downgrades within a
minor version only, and never downgrades etcd. Start the plan with refit apply.

Changes of NodeConfigs and OSImages have no bundle. --pool pins the pool to the
previous OSBuild of its nodes (or to --to OSBUILD), with its image and configuration;
refit builds nothing. --stock has the pool boot the image that its nodes ran before
refit booted the first one on them; refit image history shows it. --follow ends both:
the pool follows its OSImage and NodeConfigs again.

An unfinished or halted update must end first: --end-current deletes it. Nodes that
have started finish or are undone; no further node starts.

Exit codes: 0 planned, 3 blocked, 4 not planned within --timeout.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			if f.pool != "" {
				return o.rollbackPool(cmd.Context(), f)
			}
			if f.follow || f.stock {
				return console.UsageErrorf("--follow and --stock need a pool: name it with --pool")
			}
			f.allowDowngrade = true
			return o.rollback(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	f.add(fl, "the previous complete one; with --pool an OSBuild, by default the previous one of the nodes")
	fl.StringVar(&f.pool, "pool", "", "UpdatePool whose nodes boot an earlier OS image")
	fl.BoolVar(&f.follow, "follow", false, "with --pool: follow the OSImage and the NodeConfigs again")
	fl.BoolVar(&f.stock, "stock", false, "with --pool: boot the image that the nodes ran before refit")
	fl.BoolVar(&f.end, "end-current", false, "delete the unfinished or halted update")
	c.MarkFlagsMutuallyExclusive("stock", "follow")
	c.MarkFlagsMutuallyExclusive("stock", "to")
	o.outputFlag(c)
	return c
}

func (o *options) rollback(ctx context.Context, f rollbackFlags) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return inputs.ListError(err)
	}
	current, previous := lastUpdates(list.Items)
	if f.to == "" {
		if f.to, err = backTo(current, previous); err != nil {
			return withConfigured(err, configuredSince(list.Items, current))
		}
		if u := configuredSince(list.Items, current); u != nil {
			o.Note("%s", revert(u))
		}
	}
	if current != nil && current.Status.Phase != v1alpha1.PhaseDone {
		if err := o.endUpdate(ctx, c, current, f.end); err != nil {
			return err
		}
	}
	return o.planBack(ctx, c, f.planFlags)
}

// planBack creates or finds the update that rolls back, and shows its plan.
func (o *options) planBack(ctx context.Context, c client.Client, f planFlags) error {
	u, err := o.targetUpdate(ctx, c, f)
	if err != nil {
		return err
	}
	return o.showPlanBack(ctx, c, u, f)
}

// showPlanBack waits for the plan of a new update, and shows it.
func (o *options) showPlanBack(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, f planFlags) error {
	u, err := o.waitPlanned(ctx, c, u.Name, f)
	if err != nil {
		return err
	}
	v, err := updatecmd.ViewPlan(ctx, c, u, time.Now())
	if err != nil {
		return err
	}
	if err := render.Plan(o.Out, o.output, v); err != nil {
		return err
	}
	if v.State == updatecmd.PlanBlocked {
		return console.SilentExit(console.ExitBlocked)
	}
	o.Note("nothing has started yet: refit apply %s starts it", u.Name)
	return nil
}

// lastUpdates returns the last update that started nodes, and the last complete one before
// it with another target; nil if there is none.
func lastUpdates(us []v1alpha1.ClusterUpdate) (current, previous *v1alpha1.ClusterUpdate) {
	for i := range us {
		if u := &us[i]; u.Spec.Bundle != "" && u.Status.StartedAt != nil && (current == nil || current.Status.StartedAt.Before(u.Status.StartedAt)) {
			current = u
		}
	}
	if current == nil {
		return nil, nil
	}
	for i := range us {
		if u := &us[i]; completedBefore(u, current) && (previous == nil || previous.Status.FinishedAt.Before(u.Status.FinishedAt)) {
			previous = u
		}
	}
	return current, previous
}

// completedBefore reports whether an update was complete when the other started, and had
// another bundle.
func completedBefore(u, other *v1alpha1.ClusterUpdate) bool {
	end := u.Status.FinishedAt
	return u.Spec.Bundle != "" && u.Status.Phase == v1alpha1.PhaseDone && end != nil && u.Spec.Bundle != other.Spec.Bundle && !other.Status.StartedAt.Before(end)
}

func backTo(current, previous *v1alpha1.ClusterUpdate) (string, error) {
	switch {
	case current != nil && current.Hop() > 0:
		return current.Bundles()[current.Hop()-1], nil
	case current == nil:
		return "", console.UsageError(errors.New("no update to a bundle has started on a node of this cluster: there is nothing to roll back"))
	case previous == nil:
		return "", console.UsageError(fmt.Errorf("no other update was complete before %s, so the previous bundle is unknown: name it with --to BUNDLE|VERSION|DIGEST", current.Name))
	}
	return previous.Spec.Bundle, nil
}

// configuredSince returns the last update without a bundle that started nodes after the
// one with a bundle; nil if there is none.
func configuredSince(us []v1alpha1.ClusterUpdate, current *v1alpha1.ClusterUpdate) (last *v1alpha1.ClusterUpdate) {
	for i := range us {
		u := &us[i]
		after := u.Status.StartedAt != nil && (current == nil || current.Status.StartedAt.Before(u.Status.StartedAt))
		if u.Spec.Bundle == "" && after && (last == nil || last.Status.StartedAt.Before(u.Status.StartedAt)) {
			last = u
		}
	}
	return last
}

// revert explains how to roll back a change of configuration.
func revert(u *v1alpha1.ClusterUpdate) string {
	return "the last update, " + u.Name + ", had no bundle: it applied NodeConfigs and OSImages. To undo it, revert those objects and run refit plan, or boot the previous OS image of a pool with refit rollback --pool POOL (refit builds nothing)"
}

func withConfigured(err error, u *v1alpha1.ClusterUpdate) error {
	if u == nil || err == nil {
		return err
	}
	return console.UsageError(fmt.Errorf("%w; %s", err, revert(u)))
}

// endUpdate deletes an unfinished update; the controller finishes its started nodes.
func (o *options) endUpdate(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, end bool) error {
	if !end {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("ClusterUpdate %s is not complete (%s, %s nodes): a rollback needs its end. Use --end-current to end it: no further node starts, started nodes finish or are undone", u.Name, u.Status.Phase, u.Status.Progress))
	}
	patch := client.MergeFrom(u.DeepCopy())
	if u.Annotations == nil {
		u.Annotations = map[string]string{}
	}
	u.Annotations[v1alpha1.AnnotationAllowDelete] = "true"
	if err := c.Patch(ctx, u, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
		return fmt.Errorf("cannot end ClusterUpdate %s: %w", u.Name, err)
	}
	if err := c.Delete(ctx, u); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot end ClusterUpdate %s: %w", u.Name, err)
	}
	o.Note("ended ClusterUpdate %s: started nodes finish or are undone", u.Name)
	return nil
}
