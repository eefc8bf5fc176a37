package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/progress"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

type planFlags struct {
	to             string
	allowDowngrade bool
	wait           bool
	timeout        time.Duration
	failIfNoop     bool
}

func newPlan(o *options) *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:   "plan [--to BUNDLE|VERSION|DIGEST]",
		Short: "Show what would happen on every node, before anything does",
		Long: `Show what would happen on every node, before anything does.

Makes a Manual ClusterUpdate for the target, or reads the one there is, lets
the controller plan, and prints the plan with its digest. The digest covers the
steps; bytes to fetch and free space are shown beside it. What runs later is
this plan, or nothing.

Exit codes: 0 planned, 3 blocked, 4 not planned within --timeout, 7 nothing to
do (with --fail-if-noop).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			return o.plan(cmd.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.to, "to", "", "bundle file, name or version of a Bundle, or digest (default: the current update)")
	fl.BoolVar(&f.allowDowngrade, "allow-downgrade", false, "plan an older bundle than the one that runs (a rollback)")
	fl.BoolVar(&f.wait, "wait", false, "wait until every node is prepared or a person must act")
	fl.DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait for the plan, or with --wait for the nodes")
	fl.BoolVar(&f.failIfNoop, "fail-if-noop", false, "exit 7 if there is nothing to do")
	o.outputFlag(c)
	return c
}

func (o *options) plan(ctx context.Context, f planFlags) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	u, err := o.targetUpdate(ctx, c, f)
	if err != nil {
		return err
	}
	u, err = o.waitPlanned(ctx, c, u.Name, f)
	if err != nil {
		return err
	}
	v, err := planView(ctx, c, u)
	if err != nil {
		return err
	}
	if err := render.Plan(o.Out, o.output, v); err != nil {
		return err
	}
	switch {
	case v.State == stateNothing && f.failIfNoop:
		return exit.Silent(exit.NothingToDo)
	case v.State == stateBlocked:
		return exit.Silent(exit.Blocked)
	}
	return nil
}

// targetUpdate finds or makes the ClusterUpdate for the target.
func (o *options) targetUpdate(ctx context.Context, c client.Client, f planFlags) (*v1alpha1.ClusterUpdate, error) {
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, cluster.ListError(err)
	}
	if f.to == "" {
		u := choose(list.Items)
		if u == nil {
			return nil, exit.Usage(errors.New("there is no update yet: name the target with --to BUNDLE|VERSION|DIGEST"))
		}
		return u, nil
	}
	digest, err := resolveBundle(ctx, c, f.to)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		u := &list.Items[i]
		if u.Spec.Bundle == digest && u.Status.Phase != v1alpha1.PhaseDone && u.Spec.AllowDowngrade == f.allowDowngrade {
			return u, nil
		}
	}
	return o.createUpdate(ctx, c, digest, f.allowDowngrade)
}

func (o *options) createUpdate(ctx context.Context, c client.Client, digest string, downgrade bool) (*v1alpha1.ClusterUpdate, error) {
	base := "to-" + digest[len("sha256:"):][:12]
	for n := 1; n < 100; n++ {
		u := &v1alpha1.ClusterUpdate{
			ObjectMeta: metav1.ObjectMeta{Name: base},
			Spec:       v1alpha1.ClusterUpdateSpec{Bundle: digest, Start: v1alpha1.StartManual, AllowDowngrade: downgrade},
		}
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
		o.Note("created ClusterUpdate %s (Manual: nothing moves until `refit apply`)", u.Name)
		return u, nil
	}
	return nil, fmt.Errorf("a hundred ClusterUpdates for bundle %s exist: delete old ones with kubectl delete clusterupdates NAME", digest)
}

// waitPlanned waits until the controller has planned, or said why not.
func (o *options) waitPlanned(ctx context.Context, c client.Client, name string, f planFlags) (*v1alpha1.ClusterUpdate, error) {
	deadline := time.Now().Add(f.timeout)
	p := progress.New(o.Err)
	for {
		u := &v1alpha1.ClusterUpdate{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, u)
		if err == nil && planned(u, f.wait) {
			p.End()
			return u, nil
		}
		p.Line(planWait(u, err))
		if time.Now().After(deadline) {
			p.End()
			return nil, exit.With(exit.InProgress, fmt.Errorf("no answer within %s: %s; is the controller running? kubectl -n %s get pods", f.timeout, planWait(u, err), v1alpha1.SystemNamespace))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func planned(u *v1alpha1.ClusterUpdate, wait bool) bool {
	s := u.Status
	if s.ObservedGeneration != u.Generation || s.Phase == "" {
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

// States of a plan.
const (
	stateReady     = "ready"
	stateBlocked   = "blocked"
	statePreparing = "preparing"
	stateRunning   = "running"
	stateNothing   = "nothing-to-do"
)

// planView reads the plan of an update and what it takes on the nodes.
func planView(ctx context.Context, c client.Client, u *v1alpha1.ClusterUpdate) (render.PlanView, error) {
	v := render.PlanView{APIVersion: "refit.dev/planview/v1", Kind: "PlanView", Update: u.Name, Digest: u.Status.PlanDigest, State: planState(u), Waiting: blockers(u.Status.Blockers), Warnings: blockers(u.Status.Warnings)}
	if u.Status.Plan == "" {
		return v, nil
	}
	p, err := loadPlan(ctx, c, u.Status.Plan)
	if err != nil {
		return v, fmt.Errorf("cannot read the plan %s: %w", u.Status.Plan, err)
	}
	if got := p.Digest(); got != u.Status.PlanDigest {
		return v, exit.With(exit.Verification, fmt.Errorf("plan %s has digest %s, the update says %s", u.Status.Plan, got, u.Status.PlanDigest))
	}
	v.Plan = &p
	if v.Estimates, err = estimates(ctx, c, p); err != nil {
		return v, err
	}
	var all v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &all); err != nil {
		return v, cluster.ListError(err)
	}
	v.APIAway = apiAway(all.Items, u)
	return v, nil
}

// apiAway is what was measured of the API server in the last other update that
// came to its end and in which it was away at all.
func apiAway(all []v1alpha1.ClusterUpdate, but *v1alpha1.ClusterUpdate) *render.APIAway {
	var last *v1alpha1.ClusterUpdate
	for i := range all {
		x := &all[i]
		if x.UID == but.UID || x.Status.FinishedAt == nil || x.Status.APIAway == nil || x.Status.APIAway.Seconds == 0 {
			continue
		}
		if last == nil || last.Status.FinishedAt.Before(x.Status.FinishedAt) {
			last = x
		}
	}
	if last == nil {
		return nil
	}
	return &render.APIAway{Update: last.Name, TotalSeconds: last.Status.APIAway.Seconds, LongestSeconds: last.Status.APIAway.LongestSeconds}
}

// loadPlan reads a plan, which may be in parts. What it is worth is told by its
// digest.
func loadPlan(ctx context.Context, c client.Client, name string) (model.Plan, error) {
	read := func(name string) (string, error) {
		var content v1alpha1.Content
		err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &content)
		return content.Data, err
	}
	text, err := read(name)
	if err != nil {
		return model.Plan{}, err
	}
	return model.LoadPlan(text, read)
}

func planState(u *v1alpha1.ClusterUpdate) string {
	for _, b := range u.Status.Blockers {
		if b.Reason == v1alpha1.ReasonNothingToDo {
			return stateNothing
		}
	}
	switch u.Status.Phase {
	case v1alpha1.PhaseDone:
		return stateNothing
	case v1alpha1.PhaseReady:
		return stateReady
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseHalted:
		return stateBlocked
	case v1alpha1.PhaseUpdating:
		return stateRunning
	}
	return statePreparing
}

func estimates(ctx context.Context, c client.Client, p model.Plan) ([]render.Estimate, error) {
	var nus v1alpha1.NodeUpdateList
	if err := c.List(ctx, &nus, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, fmt.Errorf("cannot list NodeUpdates: %w", err)
	}
	byName := map[string]*v1alpha1.NodeUpdate{}
	for i := range nus.Items {
		byName[nus.Items[i].Name] = &nus.Items[i]
	}
	var out []render.Estimate
	for _, n := range p.Nodes {
		e := render.Estimate{Node: n.Node}
		if nu := byName[n.Node]; nu != nil {
			fillEstimate(&e, nu)
		}
		out = append(out, e)
	}
	return out, nil
}

func fillEstimate(e *render.Estimate, nu *v1alpha1.NodeUpdate) {
	if h := nu.Status.Holding; h != nil {
		e.BytesTotal, e.BytesToFetch, e.DiskNeeded = h.BytesTotal, max(0, h.BytesTotal-h.BytesDone), h.NeededBytes
	}
	for _, fs := range nu.Status.FileSystems {
		if e.DiskFree == nil {
			e.DiskFree = map[string]int64{}
		}
		e.DiskFree[fs.Name] = fs.FreeBytes
	}
}
