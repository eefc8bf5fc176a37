package updatecmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

// States of a plan.
const (
	PlanReady     = "ready"
	PlanBlocked   = "blocked"
	PlanPreparing = "preparing"
	PlanRunning   = "running"
	PlanNothing   = "nothing-to-do"
)

// ViewPlan reads the plan of an update and its cost on the nodes.
func ViewPlan(ctx context.Context, c client.Reader, u *v1alpha1.ClusterUpdate, now time.Time) (render.PlanView, error) {
	v := render.PlanView{APIVersion: "refit.dev/planview/v1", Kind: "PlanView", Update: u.Name, Digest: u.Status.PlanDigest, State: planState(u), Waiting: rolloutfacts.Blockers(u.Status.Blockers), Warnings: rolloutfacts.Blockers(u.Status.Warnings)}
	if r := u.Status.Resources; r != nil {
		v.Resources = append([]string{r.State + ": " + r.Message}, r.Conflicts...)
	}
	if u.Status.Plan == "" {
		return v, nil
	}
	p, err := loadPlan(ctx, c, u.Status.Plan)
	if err != nil {
		return v, fmt.Errorf("cannot read the plan %s: %w", u.Status.Plan, err)
	}
	if got := p.Digest(); got != u.Status.PlanDigest {
		return v, console.WithExit(console.ExitVerification, fmt.Errorf("plan %s has digest %s, the update expects %s", u.Status.Plan, got, u.Status.PlanDigest))
	}
	v.Plan, v.Hops, v.Warnings = &p, describeHops(u), notInNotes(v.Warnings, p)
	if v.OS, err = describeOSImages(ctx, c, p); err != nil {
		return v, err
	}
	if v.Estimates, err = estimateNodes(ctx, c, p); err != nil {
		return v, err
	}
	if v.APIAway, err = lastAPIDowntime(ctx, c, u); err != nil {
		return v, err
	}
	if current, ok := p.Hop(u.HopBundle()); ok {
		v.Rollout, err = outlineRollout(ctx, c, u, current, now)
	}
	return v, err
}

// describeHops has the state of each hop of an update, none without hops.
func describeHops(u *v1alpha1.ClusterUpdate) []render.HopView {
	if len(u.Spec.Hops) == 0 {
		return nil
	}
	var out []render.HopView
	for i, h := range u.Status.Hops {
		x := render.HopView{Bundle: h.Bundle, Version: h.Version, State: render.HopWaits}
		switch {
		case h.FinishedAt != nil:
			x.State = render.HopDone
		case h.StartedAt != nil:
			x.State = render.HopRuns
		case i == u.Hop() && i > 0:
			x.State = render.HopNext
		}
		out = append(out, x)
	}
	return out
}

// notInNotes removes warnings that the plan itself has as notes of a control-plane node.
// The status repeats them for users who do not read the plan.
func notInNotes(warnings []explain.Blocker, p model.Plan) []explain.Blocker {
	said := map[string]bool{}
	for _, hop := range p.Hops() {
		for _, np := range hop.Nodes {
			said["Node/"+np.Node] = said["Node/"+np.Node] || len(np.Notes) > 0
		}
	}
	return slices.DeleteFunc(warnings, func(b explain.Blocker) bool {
		return said[b.Object] && (b.Reason == v1alpha1.ReasonAPIServerUnavailable || b.Reason == v1alpha1.ReasonEtcdQuorum)
	})
}

// loadPlan reads a plan, which may be in parts. The caller verifies its digest.
func loadPlan(ctx context.Context, c client.Reader, name string) (model.Plan, error) {
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
			return PlanNothing
		}
	}
	switch u.Status.Phase {
	case v1alpha1.PhaseDone:
		return PlanNothing
	case v1alpha1.PhaseReady:
		return PlanReady
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseHalted:
		return PlanBlocked
	case v1alpha1.PhaseUpdating:
		return PlanRunning
	}
	return PlanPreparing
}

func estimateNodes(ctx context.Context, c client.Reader, p model.Plan) ([]render.Estimate, error) {
	var nus v1alpha1.NodeUpdateList
	if err := c.List(ctx, &nus, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, fmt.Errorf("cannot list NodeUpdates: %w", err)
	}
	byName := map[string]*v1alpha1.NodeUpdate{}
	for i := range nus.Items {
		byName[nus.Items[i].Name] = &nus.Items[i]
	}
	var out []render.Estimate
	seen := map[string]bool{}
	for _, hop := range p.Hops() {
		for _, n := range hop.Nodes {
			if seen[n.Node] {
				continue
			}
			seen[n.Node] = true
			e := render.Estimate{Node: n.Node}
			if nu := byName[n.Node]; nu != nil {
				fillEstimate(&e, nu)
			}
			out = append(out, e)
		}
	}
	return out, nil
}

func fillEstimate(e *render.Estimate, nu *v1alpha1.NodeUpdate) {
	if h := nu.Status.Pins; h != nil {
		e.BytesTotal, e.BytesToFetch, e.DiskNeeded = h.BytesTotal, max(0, h.BytesTotal-h.BytesDone), h.NeededBytes
	}
	for _, fs := range nu.Status.FileSystems {
		if e.DiskFree == nil {
			e.DiskFree = map[string]int64{}
		}
		e.DiskFree[fs.Name] = fs.FreeBytes
	}
}
