package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/render"
)

// planTime is how long a command waits for a plan, unless --timeout says otherwise.
const planTime = time.Minute

type planFlags struct {
	to             string
	allowDowngrade bool
	wait           bool
	// timeout bounds the whole wait; 0 is planTime for the plan, and no limit for the nodes.
	timeout    time.Duration
	failIfNoop bool
	// hops are bundles to go to first, in order; workers is spec.workers.
	hops    []string
	workers string
}

// add declares the common flags of commands that plan.
func (f *planFlags) add(fl *pflag.FlagSet, target string) {
	fl.StringVar(&f.to, "to", "", "bundle file or medium, name or version of a Bundle, or digest (default: "+target+")")
	fl.BoolVar(&f.wait, "wait", false, "wait until every node is prepared or a person must act")
	fl.DurationVar(&f.timeout, "timeout", 0, "how long to wait for the plan, or with --wait for the nodes (0: a minute for the plan, no limit for the nodes)")
}

func newPlan(o *options) *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:   "plan [--hop BUNDLE|VERSION|DIGEST]... [--to BUNDLE|VERSION|DIGEST]",
		Short: "Show the steps of an update on every node, before it starts",
		Long: `Show the steps of an update on every node, before it starts.

The command creates a Manual ClusterUpdate for the target, or reads the existing one,
waits for the controller's plan, and prints it with its digest. Without --to it reads
the current update. If there is none and nodes differ from their NodeConfigs, it
creates one without a bundle that applies the NodeConfigs. The digest covers the
steps, not the bytes to fetch and the free space. Only this plan can run later.

Name the bundles of the minor versions on the way with --hop, in their order. All hops
are one plan. Nodes hold the bundles of all hops before the first one starts, and
every check passes again before each hop.

Exit codes: 0 planned, 3 blocked, 4 not planned within --timeout, 7 nothing to
do (with --fail-if-noop).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			if err := f.checkHops(); err != nil {
				return err
			}
			return o.plan(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	f.add(fl, "the current update, else pending NodeConfigs")
	fl.BoolVar(&f.allowDowngrade, "allow-downgrade", false, "plan a bundle older than the running version (a rollback)")
	fl.StringArrayVar(&f.hops, "hop", nil, "bundle to go to before --to, for one minor version on the way; may be repeated, in order")
	fl.StringVar(&f.workers, "workers", "", "EveryHop, or LastHop: workers move once, in the last hop (default EveryHop)")
	fl.BoolVar(&f.failIfNoop, "fail-if-noop", false, "exit 7 if there is nothing to do")
	o.outputFlag(c)
	o.FromFlag(fl)
	return c
}

func (o *options) plan(ctx context.Context, f planFlags) error {
	c, now, err := o.Reader()
	if err != nil {
		return err
	}
	u, err := o.plannedUpdate(ctx, c, f)
	if err != nil {
		return err
	}
	v, err := updatecmd.ViewPlan(ctx, c, u, now)
	if err != nil {
		return err
	}
	if err := render.Plan(o.Out, o.output, v); err != nil {
		return err
	}
	switch {
	case v.State == updatecmd.PlanNothing && f.failIfNoop:
		return console.SilentExit(console.ExitNothingToDo)
	case v.State == updatecmd.PlanBlocked:
		return console.SilentExit(console.ExitBlocked)
	}
	return nil
}

// plannedUpdate returns the ClusterUpdate for the target when it is planned, or of an archive the
// current one.
func (o *options) plannedUpdate(ctx context.Context, archive client.Reader, f planFlags) (*v1alpha1.ClusterUpdate, error) {
	if o.From != "" {
		return o.planFrom(ctx, archive, f)
	}
	c, err := o.Client()
	if err != nil {
		return nil, err
	}
	u, err := o.targetUpdate(ctx, c, f)
	if err != nil {
		return nil, err
	}
	return o.waitPlanned(ctx, c, u.Name, f)
}

// planFrom finds the current update of an archive.
func (o *options) planFrom(ctx context.Context, c client.Reader, f planFlags) (*v1alpha1.ClusterUpdate, error) {
	if f.to != "" || f.wait {
		return nil, console.UsageErrorf("--to and --wait make and await a plan, and %s does not change: leave them out", o.From)
	}
	u, err := inputs.FindUpdate(ctx, c, nil)
	if err == nil && !planned(u, false) {
		err = console.WithExit(console.ExitInProgress, fmt.Errorf("ClusterUpdate %s had no plan yet: %s", u.Name, planWait(u, nil)))
	}
	return u, err
}

// targetUpdate finds or creates the ClusterUpdate for the target.
func (o *options) targetUpdate(ctx context.Context, c client.Client, f planFlags) (*v1alpha1.ClusterUpdate, error) {
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, inputs.ListError(err)
	}
	if f.to == "" {
		return o.current(ctx, c, list.Items)
	}
	digest, err := resolveBundle(ctx, c, f.to)
	if err != nil {
		return nil, err
	}
	spec := v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartManual, AllowDowngrade: f.allowDowngrade, Workers: v1alpha1.WorkersMode(f.workers)}
	for _, hop := range f.hops {
		d, err := resolveBundle(ctx, c, hop)
		if err != nil {
			return nil, err
		}
		spec.Hops = append(spec.Hops, d)
	}
	for i := range list.Items {
		if u := &list.Items[i]; u.Status.Phase != v1alpha1.PhaseDone && sameTarget(&u.Spec, &spec) {
			return u, nil
		}
	}
	return o.createUpdate(ctx, c, "to-"+digest[len("sha256:"):][:12], spec)
}

// sameTarget reports whether an update leads to where a new one would, on the same way.
func sameTarget(have, want *v1alpha1.ClusterUpdateSpec) bool {
	return have.Bundle == want.Bundle && have.AllowDowngrade == want.AllowDowngrade && slices.Equal(have.Hops, want.Hops) && have.Workers == want.Workers
}

// checkHops checks the flags about hops.
func (f *planFlags) checkHops() error {
	switch {
	case f.to == "" && (len(f.hops) > 0 || f.workers != ""):
		return console.UsageErrorf("--hop and --workers need --to: the bundle that the update ends at")
	case len(f.hops) > 0 && f.allowDowngrade:
		return console.UsageErrorf("an update through hops is no rollback: leave out --allow-downgrade or --hop")
	case f.workers != "" && f.workers != string(v1alpha1.WorkersEveryHop) && f.workers != string(v1alpha1.WorkersLastHop):
		return console.UsageErrorf("--workers %q: EveryHop or LastHop", f.workers)
	}
	return nil
}

func (o *options) createUpdate(ctx context.Context, c client.Client, base string, spec v1alpha1.ClusterUpdateSpec) (*v1alpha1.ClusterUpdate, error) {
	for n := 1; n < 100; n++ {
		u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: base}, Spec: spec}
		if n > 1 {
			u.Name = fmt.Sprintf("%s-%d", base, n)
		}
		err := c.Create(ctx, u, client.FieldOwner(v1alpha1.FieldOwnerCLI))
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot create ClusterUpdate %s: %w", u.Name, err)
		}
		o.Note("created ClusterUpdate %s (Manual: nothing starts before `refit apply`)", u.Name)
		return u, nil
	}
	return nil, fmt.Errorf("100 ClusterUpdates %s exist: delete old ones with kubectl delete clusterupdates NAME", base)
}

// waitPlanned waits until the controller has planned, or reported why not.
func (o *options) waitPlanned(ctx context.Context, c client.Client, name string, f planFlags) (*v1alpha1.ClusterUpdate, error) {
	limit := planLimit{wait: f.wait, timeout: f.timeout, deadline: time.Now().Add(cmp.Or(f.timeout, planTime))}
	p := console.NewProgress(o.Err)
	var blocked blockedTimer
	for {
		u := &v1alpha1.ClusterUpdate{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, u)
		if err == nil && planned(u, f.wait) && blocked.ends(u.Status.Phase, f.wait, time.Now()) {
			p.Clear()
			return u, nil
		}
		p.ShowPreparation(planWait(u, err), o.preparing(ctx, c, u, f.wait && err == nil))
		if err := limit.check(u, err, time.Now()); err != nil {
			p.Clear()
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// planLimit ends a wait for a plan or for the nodes.
type planLimit struct {
	// wait is for the nodes, too.
	wait     bool
	timeout  time.Duration
	deadline time.Time
}

// check is the error when the wait is over. Without a timeout nodes prepare as long as they need:
// a slow stick takes hours, and the reason of the wait is shown meanwhile.
func (l *planLimit) check(u *v1alpha1.ClusterUpdate, failed error, now time.Time) error {
	prepares := l.wait && failed == nil && u.Status.Phase == v1alpha1.PhasePreparing && u.Status.ObservedGeneration == u.Generation
	if l.timeout == 0 && prepares {
		l.deadline = now.Add(planTime)
	}
	if !now.After(l.deadline) {
		return nil
	}
	wait := planWait(u, failed)
	if prepares {
		return console.WithExit(console.ExitInProgress, fmt.Errorf("not prepared within %s: %s; the nodes go on, and the same command waits again", l.timeout, wait))
	}
	return console.WithExit(console.ExitInProgress, fmt.Errorf("no answer within %s: %s; is the controller running? kubectl -n %s get pods", cmp.Or(l.timeout, planTime), wait, v1alpha1.SystemNamespace))
}

// preparing returns the nodes that prepare for an update. It returns none if the command
// does not wait for them or cannot read them; then it shows the wait itself.
func (o *options) preparing(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate, wanted bool) []explain.Node {
	if !wanted || u.Status.Phase == "" {
		return nil
	}
	f, err := gather(ctx, c, time.Now())
	if err != nil {
		return nil
	}
	return f.Nodes
}

// planned reports whether the plan is an answer. One that a NodeConfig is not part of yet is none:
// it says that no node changes, and would be another one a moment later.
func planned(u *v1alpha1.ClusterUpdate, wait bool) bool {
	s := u.Status
	incomplete := func(b v1alpha1.Blocker) bool { return b.Waiting && b.Reason == v1alpha1.ReasonConfigWaiting }
	if s.ObservedGeneration != u.Generation || s.Phase == "" || slices.ContainsFunc(s.Blockers, incomplete) {
		return false
	}
	switch s.Phase {
	case v1alpha1.PhasePlanning:
		return false
	case v1alpha1.PhasePreparing:
		return !wait && s.PlanDigest != ""
	}
	return true
}

func planWait(u *v1alpha1.ClusterUpdate, err error) string {
	switch {
	case err != nil:
		return "the API server does not answer: " + err.Error()
	case u.Status.Phase == "":
		return "waiting for the controller to plan"
	case u.Status.WaitingFor != "":
		return u.Status.Phase + ": " + u.Status.WaitingFor
	}
	return u.Status.Phase
}
