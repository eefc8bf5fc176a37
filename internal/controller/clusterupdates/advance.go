package clusterupdates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/controller/clusterresources"
	"github.com/refit-dev/refit/internal/controller/nodedrain"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// advanceUpdate continues an update that has started.
func (r *Reconciler) advanceUpdate(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) (time.Duration, error) {
	st := r.newStatus(w, u)
	kept, err := r.Plans.ReadHop(ctx, u)
	if err != nil {
		st.verdicts = []model.Blocker{{Reason: v1alpha1.ReasonPlanChanged, Message: err.Error(), Fix: "delete this ClusterUpdate and create another: refit plans it anew from what runs"}}
		st.phase(v1alpha1.PhaseHalted)
		return whileActive, errors.Join(r.write(ctx, st), err)
	}
	if v := clusterresources.PendingBeforeNodes(st.resources); v != nil && u.LastHop() {
		st.verdicts = []model.Blocker{*v}
		st.phase(v1alpha1.PhaseUpdating)
		return whileMoving, r.write(ctx, st)
	}
	return r.advanceRollout(ctx, w, u, kept, st)
}

// advanceRollout observes the nodes and runs the next actions of the rollout.
func (r *Reconciler) advanceRollout(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, kept *plans.StoredPlan, st *status) (time.Duration, error) {
	if err := r.rereadMarked(ctx, w, u); err != nil {
		return 0, err
	}
	in, drains, err := r.rolloutInput(ctx, w, st, kept.Plan)
	if err != nil {
		return 0, err
	}
	d := r.decide(ctx, w, u, in)
	r.collectStaged(kept.Plan, d)
	r.rolloutSeen = true
	verdicts, actErr := r.runActions(ctx, w, u, kept, d, drains)
	st.verdicts = append(d.Blockers, verdicts...)
	st.progress(d)
	st.out.Drains = nodedrain.Table(nodedrain.DrainFacts{Now: w.now, Since: r.planIndex.since, Decisions: drains, Verdicts: verdicts}, u.Status.Drains)
	if u.Status.Estimate == nil || d.Halted || d.Finished || in.Paused || r.slow.TakeDue("estimate", len(w.nodes), w.now) {
		st.estimate(in, d)
	}
	r.recordDowntime(st, len(d.Current) > 0 && !d.Finished)
	r.emitFailures(w, u, d)
	st.enterPhaseOf(d)
	err = r.write(ctx, st)
	return recheckDelay(d, len(drains)), errors.Join(err, actErr)
}

// decide asks the health checks of the pools whose nodes would start, and decides with the answers.
func (r *Reconciler) decide(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, in rollout.Input) rollout.Decision {
	d := rollout.Next(in)
	asked := rollout.AsksHealth(in, d)
	unwell := false
	for i := range w.pools {
		if p, name := in.Pools[w.pools[i].Name], w.pools[i].Name; slices.Contains(asked, name) {
			p.Unwell = r.Gate.Unwell(ctx, &w.pools[i], u, w.now)
			in.Pools[name], unwell = p, unwell || len(p.Unwell) > 0
		}
	}
	if !unwell {
		return d
	}
	return rollout.Next(in)
}

// enterPhaseOf enters the phase that follows from a rollout decision.
func (s *status) enterPhaseOf(d rollout.Decision) {
	switch {
	case d.Finished && s.finishHop():
	case d.Finished:
		s.finish(v1alpha1.ReasonUpdated)
	case d.Halted:
		s.phase(v1alpha1.PhaseHalted)
	case d.Blocked:
		s.phase(v1alpha1.PhaseBlocked)
	default:
		s.phase(v1alpha1.PhaseUpdating)
	}
}

func recheckDelay(d rollout.Decision, drains int) time.Duration {
	switch {
	case len(d.Actions) > 0 || drains > 0:
		return whileDraining
	case len(d.Current) > 0:
		return whileMoving
	}
	return whileActive
}

var failedStages = map[string]bool{rollout.StageFailed: true, rollout.StageUndone: true}

// emitFailures emits one event per failure on the node: why it failed and what refit did.
func (r *Reconciler) emitFailures(w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, d rollout.Decision) {
	for _, v := range d.Blockers {
		name, ok := strings.CutPrefix(v.Object, "Node/")
		n, _ := w.node(name)
		if ok && n != nil && !v.Waiting && failedStages[d.Stages.ByNode(name)] && r.isFirstTime(fmt.Sprintf("%s %s %s %s", u.RunUID(), name, v.Reason, v.Message)) {
			r.event(u, n, corev1.EventTypeWarning, v.Reason, "Fail", v.Message)
		}
	}
}

// maxLive is how many nodes one reconcile reads from the API server instead of the cache.
const maxLive = 16

// rereadMarked reads the started nodes from the API server: after an API server was unavailable
// the cache may be a minute old. In a large rollout it reads the control-plane nodes only,
// because the watches deliver the others soon enough.
func (r *Reconciler) rereadMarked(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) error {
	r.poolIndex.refresh(w)
	all, first := r.poolIndex.marked(u.RunUID())
	if len(all) > maxLive {
		all = first
	}
	for _, i := range all {
		if err := r.rereadNode(ctx, w, i); err != nil {
			return err
		}
	}
	return nil
}

// rereadNode reads one node and its NodeUpdate from the API server.
func (r *Reconciler) rereadNode(ctx context.Context, w *rolloutSnapshot, i int) error {
	name := w.nodes[i].Name
	var node corev1.Node
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	} else if err == nil {
		r.NodeIndex.PutNode(&node)
		w.ownLists()
		w.nodes[i] = &node
	}
	var nu v1alpha1.NodeUpdate
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &nu); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read NodeUpdate %s: %w", name, err)
	} else if err == nil {
		r.NodeIndex.PutUpdate(&nu)
		w.ownLists()
		w.reports[i] = &nu
	}
	return nil
}

func (r *Reconciler) rolloutInput(ctx context.Context, w *rolloutSnapshot, st *status, plan model.Plan) (rollout.Input, map[string]drain.Decision, error) {
	u := st.u
	in := r.newRolloutInput(w, plan)
	in.Pools = nodedrain.Timeouts(in.Pools, u)
	in.Paused, in.Retry, in.RetryNodes = u.Spec.Paused, u.Spec.Retry, map[string]int32{}
	for _, nr := range u.Spec.RetryNodes {
		in.RetryNodes[nr.Name] = nr.Retry
	}
	r.planIndex.reset(u.RunUID()+u.Status.PlanDigest, w, plan)
	in.InRow(r.planIndex.row, r.planIndex.places, r.planIndex.boots)
	started, err := r.refreshPlan(ctx, w, u, plan)
	if err != nil {
		return in, nil, err
	}
	err = queue.ForEach(ctx, started, func(c *startedNode) error {
		return errors.Join(r.inspectNode(ctx, c, u.Spec.Drain, w.now), r.observeExternal(ctx, w, u, c))
	})
	st.out.External = externalCalls(started)
	drains := map[string]drain.Decision{}
	for _, c := range started {
		r.planIndex.setFacts(c.i, c.rn)
		if c.drain != nil {
			drains[c.np.Node] = *c.drain
		}
	}
	return in, drains, errors.Join(err, r.observeControlPlane(ctx, w, &in, r.planIndex.cps), r.observeAddons(ctx, &in, r.planIndex.cps))
}

// refreshPlan refreshes the facts of the plan's nodes that changed, and returns the started
// nodes, whose pods must be inspected.
func (r *Reconciler) refreshPlan(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, plan model.Plan) (started []*startedNode, err error) {
	doubts := 0
	for i := range r.planIndex.rows {
		x := &r.planIndex.rows[i]
		if x.at < 0 || !x.live && x.node == w.nodes[x.at] && x.report == w.reports[x.at] {
			continue // it has left the cluster, or is as it was
		}
		rn, err := r.classifyNode(ctx, w, u, &plan.Nodes[i], i, &doubts)
		if err != nil {
			return nil, err
		}
		r.planIndex.setFacts(i, rn)
		if rn.Started {
			started = append(started, &startedNode{i: i, np: &plan.Nodes[i], rn: rn})
		}
	}
	return started, nil
}

// classifyNode returns the facts of a node. A node that seems to have returned to its old
// version is first read from the API server, a limited number in each reconcile.
func (r *Reconciler) classifyNode(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, np *model.NodePlan, i int, doubts *int) (rollout.Node, error) {
	x := &r.planIndex.rows[i]
	seen := r.planIndex.readNode(i, w, u, np)
	old := isOutdated(seen)
	if old {
		*doubts++
		if *doubts <= maxLive {
			if err := r.rereadNode(ctx, w, x.at); err != nil {
				return *seen, err
			}
			seen = r.planIndex.readNode(i, w, u, np)
		}
	}
	rn := *seen
	runs := running(&rn)
	expectsReport := rn.Started || runs || staging(&rn) // a missing heartbeat causes no event, so such a node is checked every time
	if x.live = expectsReport || old; expectsReport {
		rn.AgentHeartbeatLost, rn.SilentFor = r.heartbeats.Silent(x.report, w.now), r.heartbeats.Watched(x.report, w.now)
	}
	if old && *doubts > maxLive {
		rn.AtTarget, rn.NotYet = true, "" // the cache alone is no proof; a later reconcile reads this node from the API server
	}
	return rn, nil
}

// running reports whether a node has a run that has not ended.
func running(n *rollout.Node) bool {
	return n.Run != nil && (n.Run.State == "" || n.Run.State == rollout.RunRunning)
}

// staging reports whether a node still prepares the OS configuration that it boots.
func staging(n *rollout.Node) bool { return n.Staging != nil && n.Staging.Ordered && !n.Staging.Ready }

// startedNode is a node that has started, with the facts that need its pods.
type startedNode struct {
	i     int // place in the plan
	np    *model.NodePlan
	rn    rollout.Node
	drain *drain.Decision
	// external is the call of the external updater that the node waits for.
	external *v1alpha1.ExternalCall
}

// isOutdated reports whether this update returned the node at its target and the node is no
// longer there.
func isOutdated(n *rollout.Node) bool {
	return !n.Started && !n.AtTarget && !n.FinishedAt.IsZero()
}

// newRolloutInput returns the rollout's input except for the plan's nodes.
func (r *Reconciler) newRolloutInput(w *rolloutSnapshot, plan model.Plan) rollout.Input {
	if r.learnedAt.IsZero() || r.slow.TakeDue("learned", len(w.nodes), w.now) {
		r.learned, r.learnedAt = rolloutfacts.Learned(w.nodes), w.now
	}
	r.poolIndex.refresh(w)
	return rollout.Input{Plan: plan, Pools: r.poolIndex.pools(w), Learned: r.learned, Now: w.now, Wall: w.wall,
		ControlPlane: rollout.ControlPlane{Unhealthy: rolloutfacts.Unhealthy(r.poolIndex.controlPlanes())}}
}

// observeControlPlane reads the static pods and counts etcd members while a control-plane node
// still has to move; cps are the positions of these nodes in the plan.
func (r *Reconciler) observeControlPlane(ctx context.Context, w *rolloutSnapshot, in *rollout.Input, cps []int) error {
	for _, i := range cps {
		if n := in.NodeAt(i); n.AtTarget && !n.Started {
			continue
		}
		pods, err := clusterfacts.ControlPlanePods(ctx, r.Live)
		if err != nil {
			in.ControlPlane = rollout.ControlPlane{}
			return err
		}
		in.ControlPlane = rolloutfacts.Health(pods, w.nodes)
		return nil
	}
	return nil
}

// readNode returns a node's facts from the cached objects.
func (w *rolloutSnapshot) readNode(u *v1alpha1.ClusterUpdate, np *model.NodePlan, n *corev1.Node, nu *v1alpha1.NodeUpdate) rollout.Node {
	rn := rolloutfacts.Node(n, u.RunUID())
	rn.NotYet = notYet(*np, w.planNode(n, nu))
	rn.AtTarget = rn.NotYet == ""
	rn.Staging = aheadOf(np, nu)
	if nu != nil {
		rn.Run = rolloutfacts.Run(nu, u.RunUID(), u.Status.PlanDigest)
	}
	// The Node object and the agent's observation may lag behind the run.
	rn.ReportsOldVersion = rn.Run != nil && rn.Run.State == rollout.RunSucceeded && !rn.AtTarget && rn.Ready && rn.Run.EndedAgo > settleTime
	return rn
}

// settleTime is how long a Ready node may still report its old version after its steps. After
// that it counts as reverted.
const settleTime = 5 * time.Minute

// notYet returns what of the target was not observed on a node, empty if nothing is missing.
func notYet(np model.NodePlan, n updateplan.Node) string { return updateplan.NotYet(np, n) }

// inspectNode reads the pods of a started node from the API server: before its run those that
// must leave, after it the static pods.
func (r *Reconciler) inspectNode(ctx context.Context, c *startedNode, o *v1alpha1.DrainOptions, now time.Time) error {
	switch {
	case c.rn.Run == nil || c.rn.Run.Attempt.Number < c.rn.Attempt.Number:
		return errors.Join(r.inspectPods(ctx, c, o, now), r.inspectMoved(ctx, *c.np, &c.rn))
	case c.np.Role == model.RoleControlPlane:
		return r.inspectStaticPods(ctx, *c.np, &c.rn)
	}
	return nil
}

func (r *Reconciler) inspectPods(ctx context.Context, c *startedNode, o *v1alpha1.DrainOptions, now time.Time) error {
	if !hasStep(*c.np, rollout.Drained) || !c.rn.Unschedulable {
		return nil
	}
	d, err := r.Evictor.Decide(ctx, c.np.Node, o)
	if err != nil {
		return err
	}
	c.drain = &d
	c.rn.Drain = &rollout.Drain{Left: d.Left(), Blockers: withNodeName(c.np.Node, append(d.Refused, d.OverdueBlockers(now)...))}
	return nil
}

func (r *Reconciler) inspectStaticPods(ctx context.Context, np model.NodePlan, rn *rollout.Node) (err error) {
	switch rn.Run.State {
	case rollout.RunFailed:
		rn.Unsettled, err = clusterfacts.StaticPodsUnsettled(ctx, r.Live, np.Node)
	case rollout.RunSucceeded:
		err = r.inspectMoved(ctx, np, rn)
	}
	return err
}

// inspectMoved compares the static pods of a control-plane node with the target, whether refit
// or a person moved it.
func (r *Reconciler) inspectMoved(ctx context.Context, np model.NodePlan, rn *rollout.Node) (err error) {
	if np.Role != model.RoleControlPlane || !rn.AtTarget || updateplan.Supervised(np.To) || !updateplan.MovesKubernetes(np) {
		return nil
	}
	rn.NotYet, err = clusterfacts.StaticPodsNotYet(ctx, r.Live, np.Node, np.To)
	rn.AtTarget = rn.NotYet == ""
	return err
}

// hasStep reports whether a node's plan has a step.
func hasStep(np model.NodePlan, step string) bool {
	for _, s := range np.Steps {
		if s.ID == step {
			return true
		}
	}
	return false
}

// withNodeName prefixes the messages with the node's name.
func withNodeName(node string, vs []model.Blocker) []model.Blocker {
	out := make([]model.Blocker, 0, len(vs))
	for _, v := range vs {
		v.Message = "node " + node + ": " + v.Message
		out = append(out, v)
	}
	return out
}

func metaNow(t time.Time) *metav1.Time {
	n := metav1.NewTime(t)
	return &n
}
