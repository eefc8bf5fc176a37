package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/planview"
	"github.com/refit-dev/refit/internal/render"
)

type rollbackFlags struct {
	planFlags
	end bool
	// pool whose OS image goes back; follow ends that.
	pool   string
	follow bool
}

func newRollback(o *options) *cobra.Command {
	var f rollbackFlags
	c := &cobra.Command{
		Use:   "rollback [--to BUNDLE|VERSION|DIGEST]",
		Short: "Plan the way back to the bundle that ran before",
		Long: `Plan the way back to the bundle that ran before, or to another one. It makes a
Manual ClusterUpdate that may go back, and prints its plan: what can be taken
back is planned, what cannot is refused with the reason. kubeadm goes back
within a minor version only, and never takes etcd back. refit apply starts it.

What NodeConfigs and OSImages brought has no bundle. With --pool the pool is held on
the OSBuild that its nodes go back to (or on --to OSBUILD), with the image and the
configuration of then; nothing is built. --follow ends that: the pool follows its
OSImage and NodeConfigs again.

An update that still moves nodes, or that halted, must end first: with
--end-current it is deleted. Nodes that have started are finished or given
back; no further one starts.

Exit codes: 0 planned, 3 blocked, 4 not planned within --timeout.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			if f.pool != "" {
				return o.rollbackPool(cmd.Context(), f)
			}
			if f.follow {
				return exit.Usagef("--follow is about a pool: name it with --pool")
			}
			f.allowDowngrade = true
			return o.rollback(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	f.add(fl, "the one that was complete before; with --pool an OSBuild, by default the one that nodes go back to")
	fl.StringVar(&f.pool, "pool", "", "UpdatePool whose nodes boot an OS image that was built before")
	fl.BoolVar(&f.follow, "follow", false, "with --pool: follow the OSImage and the NodeConfigs again")
	fl.BoolVar(&f.end, "end-current", false, "end the update that moves nodes or halted, by deleting it")
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
		return cluster.ListError(err)
	}
	current, previous := moved(list.Items)
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

// planBack makes the update that goes back, or finds it, and shows its plan.
func (o *options) planBack(ctx context.Context, c client.Client, f planFlags) error {
	u, err := o.targetUpdate(ctx, c, f)
	if err != nil {
		return err
	}
	return o.showPlanBack(ctx, c, u, f)
}

// showPlanBack waits for the plan of an update that was made, and shows it.
func (o *options) showPlanBack(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, f planFlags) error {
	u, err := o.waitPlanned(ctx, c, u.Name, f)
	if err != nil {
		return err
	}
	v, err := planview.Of(ctx, c, u)
	if err != nil {
		return err
	}
	if err := render.Plan(o.Out, o.output, v); err != nil {
		return err
	}
	if v.State == planview.Blocked {
		return exit.Silent(exit.Blocked)
	}
	o.Note("nothing has moved yet: refit apply %s starts it", u.Name)
	return nil
}

// moved finds the update that moved nodes last, and the last one before it that
// was complete and had another target; nil where there is none.
func moved(us []v1alpha1.ClusterUpdate) (current, previous *v1alpha1.ClusterUpdate) {
	for i := range us {
		if u := &us[i]; u.Spec.Bundle != "" && u.Status.StartedAt != nil && (current == nil || current.Status.StartedAt.Before(u.Status.StartedAt)) {
			current = u
		}
	}
	if current == nil {
		return nil, nil
	}
	for i := range us {
		if u := &us[i]; wasBefore(u, current) && (previous == nil || previous.Status.FinishedAt.Before(u.Status.FinishedAt)) {
			previous = u
		}
	}
	return current, previous
}

// wasBefore: complete when the other started, and of another bundle.
func wasBefore(u, other *v1alpha1.ClusterUpdate) bool {
	end := u.Status.FinishedAt
	return u.Spec.Bundle != "" && u.Status.Phase == v1alpha1.PhaseDone && end != nil && u.Spec.Bundle != other.Spec.Bundle && !other.Status.StartedAt.Before(end)
}

func backTo(current, previous *v1alpha1.ClusterUpdate) (string, error) {
	switch {
	case current == nil:
		return "", exit.Usage(errors.New("no update to a bundle has moved a node of this cluster: there is nothing to go back from"))
	case previous == nil:
		return "", exit.Usage(fmt.Errorf("no other update was complete before %s, so it is not known what ran then: name the bundle with --to BUNDLE|VERSION|DIGEST", current.Name))
	}
	return previous.Spec.Bundle, nil
}

// configuredSince is the last update without a bundle that moved nodes since the one
// with a bundle did; nil if none has.
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

// revert says how what a configuration changed is taken back.
func revert(u *v1alpha1.ClusterUpdate) string {
	return "the last move, " + u.Name + ", had no bundle: it brought the nodes to their NodeConfigs and OSImages. To take that back, change those objects back and run refit plan, or have a pool boot the OS image before with refit rollback --pool POOL; nothing is built again"
}

func withConfigured(err error, u *v1alpha1.ClusterUpdate) error {
	if u == nil || err == nil {
		return err
	}
	return exit.Usage(fmt.Errorf("%w; %s", err, revert(u)))
}

// endUpdate deletes an update that moves nodes; the controller sees its nodes
// through.
func (o *options) endUpdate(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, end bool) error {
	if !end {
		return exit.With(exit.Blocked, fmt.Errorf("ClusterUpdate %s is not complete (%s, %s nodes): the way back is planned when it has ended. Say --end-current to end it: no further node starts, those that have started are finished or given back", u.Name, u.Status.Phase, u.Status.Progress))
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
	o.Note("ended ClusterUpdate %s: nodes that have started are finished or given back", u.Name)
	return nil
}
