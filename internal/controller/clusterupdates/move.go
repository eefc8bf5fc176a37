package clusterupdates

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterresources"
	"github.com/refit-dev/refit/internal/controller/controlplane"
	"github.com/refit-dev/refit/internal/controller/nodedrain"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// move takes an update that has started a step further.
func (r *Reconciler) move(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) (time.Duration, error) {
	st := r.newStatus(w, u)
	kept, err := r.Plans.Read(ctx, u)
	if err != nil {
		st.verdicts = []model.Verdict{{Reason: v1alpha1.ReasonPlanChanged, Message: err.Error(), Fix: "delete this ClusterUpdate and make another: it is planned anew from what runs"}}
		st.phase(v1alpha1.PhaseHalted)
		return whileActive, errors.Join(r.write(ctx, st), err)
	}
	if v := clusterresources.Ahead(st.resources); v != nil {
		st.verdicts = []model.Verdict{*v}
		st.phase(v1alpha1.PhaseUpdating)
		return whileMoving, r.write(ctx, st)
	}
	return r.roll(ctx, w, u, kept, st)
}

// roll looks at the nodes, and does what is next for them.
func (r *Reconciler) roll(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, kept *plans.Kept, st *status) (time.Duration, error) {
	if err := r.refresh(ctx, w, u); err != nil {
		return 0, err
	}
	in, drains, err := r.rolloutInput(ctx, w, st, kept.Plan)
	if err != nil {
		return 0, err
	}
	d := rollout.Next(in)
	r.wanted(kept.Plan, d)
	r.looked = true
	verdicts, actErr := r.act(ctx, w, u, kept, d, drains)
	st.verdicts = append(d.Verdicts, verdicts...)
	st.progress(d)
	st.out.Drains = nodedrain.Table(nodedrain.Look{Now: w.now, Since: r.track.since, Decisions: drains, Verdicts: verdicts}, u.Status.Drains)
	if u.Status.Estimate == nil || d.Halted || d.Finished || in.Paused || r.slow.TakeDue("estimate", len(w.nodes), w.now) {
		st.estimate(in, d)
	}
	r.measureAway(st, len(d.Current) > 0 && !d.Finished)
	r.emitFailures(w, u, d)
	st.enter(d)
	err = r.write(ctx, st)
	return recheckDelay(d, len(drains)), errors.Join(err, actErr)
}

// enter is the phase that a decision means.
func (s *status) enter(d rollout.Decision) {
	switch {
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

var failed = map[string]bool{rollout.StageFailed: true, rollout.StageUndone: true}

// emitFailures says once on the node itself why it failed, and what became of it.
func (r *Reconciler) emitFailures(w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, d rollout.Decision) {
	for _, v := range d.Verdicts {
		name, ok := strings.CutPrefix(v.Object, "Node/")
		n := w.byName[name]
		if ok && n != nil && !v.Waiting && failed[d.Stages.Of(name)] && r.isFirstTime(fmt.Sprintf("%s %s %s %s", u.UID, name, v.Reason, v.Message)) {
			r.event(u, n, corev1.EventTypeWarning, v.Reason, "Fail", v.Message)
		}
	}
}

// maxLive is how many nodes a look reads past the cache.
const maxLive = 16

// refresh reads the nodes that have started from the API server: after a
// control plane was away the cache may be a minute behind. In a large rollout it
// reads the control-plane nodes only: the others would but learn a little earlier
// what the watches bring.
func (r *Reconciler) refresh(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) error {
	r.census.refresh(w)
	all, first := r.census.marked(string(u.UID))
	if len(all) > maxLive {
		all = first
	}
	for _, i := range all {
		if err := r.reread(ctx, w, i); err != nil {
			return err
		}
	}
	return nil
}

// reread asks the API server about one node.
func (r *Reconciler) reread(ctx context.Context, w *rolloutSnapshot, i int) error {
	name := w.nodes[i].Name
	var node corev1.Node
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	} else if err == nil {
		r.Roster.PutNode(&node, w.now)
		w.nodes[i], w.byName[name] = &node, &node
	}
	var nu v1alpha1.NodeUpdate
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &nu); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read NodeUpdate %s: %w", name, err)
	} else if err == nil {
		r.Roster.PutUpdate(&nu, w.now)
		w.updates[name], w.reports[i] = &nu, &nu
	}
	return nil
}

func (r *Reconciler) rolloutInput(ctx context.Context, w *rolloutSnapshot, st *status, plan model.Plan) (rollout.Input, map[string]drain.Decision, error) {
	u := st.u
	in := r.outlook(w, plan)
	in.Pools = nodedrain.Timeouts(in.Pools, u)
	in.Paused, in.Retry, in.RetryNodes = u.Spec.Paused, u.Spec.Retry, map[string]int32{}
	for _, nr := range u.Spec.RetryNodes {
		in.RetryNodes[nr.Name] = nr.Retry
	}
	r.track.reset(string(u.UID)+u.Status.PlanDigest, w, plan)
	in.InRow(r.track.row, r.track.places)
	started, err := r.refreshPlan(ctx, w, u, plan)
	if err != nil {
		return in, nil, err
	}
	err = queue.ForEach(ctx, started, func(c *closer) error {
		return errors.Join(r.inspectNode(ctx, c, u.Spec.Drain, w.now), r.observeExternal(ctx, w, u, c))
	})
	st.out.External = outsideOf(started)
	drains := map[string]drain.Decision{}
	for _, c := range started {
		r.track.setFacts(c.i, c.rn)
		if c.drain != nil {
			drains[c.np.Node] = *c.drain
		}
	}
	return in, drains, errors.Join(err, r.observeControlPlane(ctx, w, &in, r.track.cps))
}

// refreshPlan takes in what changed of the plan's nodes, and lists those that are to be
// looked at more closely.
func (r *Reconciler) refreshPlan(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, plan model.Plan) (started []*closer, err error) {
	doubts := 0
	for i := range r.track.rows {
		x := &r.track.rows[i]
		if x.at < 0 || !x.live && x.node == w.nodes[x.at] && x.report == w.reports[x.at] {
			continue // it has left the cluster, or is as it was
		}
		rn, err := r.classifyNode(ctx, w, u, &plan.Nodes[i], i, &doubts)
		if err != nil {
			return nil, err
		}
		r.track.setFacts(i, rn)
		if rn.Started {
			started = append(started, &closer{i: i, np: &plan.Nodes[i], rn: rn})
		}
	}
	return started, nil
}

// classifyNode says what is known of a node. One that looks as if it had come back at
// its old version is read from the API server first, some of them in each look.
func (r *Reconciler) classifyNode(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, np *model.NodePlan, i int, doubts *int) (rollout.Node, error) {
	x := &r.track.rows[i]
	seen := r.track.readNode(i, w, u, np)
	old := isOutdated(seen)
	if old {
		*doubts++
		if *doubts <= maxLive {
			if err := r.reread(ctx, w, x.at); err != nil {
				return *seen, err
			}
			seen = r.track.readNode(i, w, u, np)
		}
	}
	rn := *seen
	runs := running(&rn)
	asked := rn.Started || runs || staging(&rn) // that an agent says nothing is seen by looking again
	if x.live = asked || old; asked {
		rn.AgentHeartbeatLost = r.heartbeats.Silent(x.report, w.now)
	}
	if old && *doubts > maxLive {
		rn.AtTarget, rn.NotYet = true, "" // it is not judged by the cache alone: those before it halt, or its turn comes
	}
	return rn, nil
}

// running reports whether a node was permitted something that has not ended.
func running(n *rollout.Node) bool {
	return n.Run != nil && (n.Run.State == "" || n.Run.State == rollout.RunRunning)
}

// staging reports whether a node was told to make ready what it boots, and has not.
func staging(n *rollout.Node) bool { return n.Ahead != nil && n.Ahead.Told && !n.Ahead.Ready }

// closer is a node that has started, and is looked at more closely.
type closer struct {
	i     int // place in the plan
	np    *model.NodePlan
	rn    rollout.Node
	drain *drain.Decision
	// outside is the external updater that it waits for.
	outside *v1alpha1.ExternalCall
}

// isOutdated: this update gave the node back at its target, and it is not there.
func isOutdated(n *rollout.Node) bool {
	return !n.Started && !n.AtTarget && !n.FinishedAt.IsZero()
}

// outlook is what a rollout of a plan looks at beside the plan's nodes.
func (r *Reconciler) outlook(w *rolloutSnapshot, plan model.Plan) rollout.Input {
	if r.learnedAt.IsZero() || r.slow.TakeDue("learned", len(w.nodes), w.now) {
		r.learned, r.learnedAt = rolloutfacts.Learned(w.nodes), w.now
	}
	r.census.refresh(w)
	return rollout.Input{Plan: plan, Pools: r.census.pools(w), Learned: r.learned, Now: w.now, Wall: w.wall,
		ControlPlane: rollout.ControlPlane{Unhealthy: rolloutfacts.Unhealthy(r.census.controlPlanes())}}
}

// observeControlPlane asks after the static pods and counts etcd's members, while a
// control-plane node has still to move; cps are their places in the plan.
func (r *Reconciler) observeControlPlane(ctx context.Context, w *rolloutSnapshot, in *rollout.Input, cps []int) error {
	for _, i := range cps {
		if n := in.At(i); n.AtTarget && !n.Started {
			continue
		}
		health, err := controlplane.Health(ctx, r.Live, w.nodes)
		in.ControlPlane = health
		return err
	}
	return nil
}

// readNode gathers what is seen of a node without asking the API server.
func (w *rolloutSnapshot) readNode(u *v1alpha1.ClusterUpdate, np *model.NodePlan, n *corev1.Node, nu *v1alpha1.NodeUpdate) rollout.Node {
	rn := rolloutfacts.Node(n, string(u.UID))
	rn.NotYet = notYet(*np, w.planNode(n, nu))
	rn.AtTarget = rn.NotYet == ""
	rn.Ahead = aheadOf(np, nu)
	if nu != nil {
		rn.Run = rolloutfacts.Run(nu, string(u.UID), u.Status.PlanDigest)
	}
	// The Node object and the agent's own look may lag behind the run for a moment.
	rn.SaysOld = rn.Run != nil && rn.Run.State == rollout.RunSucceeded && !rn.AtTarget && rn.Ready && rn.Run.Ended > settled
	return rn
}

// settled is how long after its steps a node that is Ready may look as it did
// before: then it has come back at its old version.
const settled = 5 * time.Minute

// notYet says what of the target was not observed on a node, empty if all was.
func notYet(np model.NodePlan, n updateplan.Node) string { return updateplan.NotYet(np, n) }

// inspectNode asks the API server about pods, for nodes that have started only:
// those that must leave before the run, and the static pods after it.
func (r *Reconciler) inspectNode(ctx context.Context, c *closer, o *v1alpha1.DrainOptions, now time.Time) error {
	switch {
	case c.rn.Run == nil || c.rn.Run.Attempt.Number < c.rn.Attempt.Number:
		return errors.Join(r.inspectPods(ctx, c, o, now), r.inspectMoved(ctx, *c.np, &c.rn))
	case c.np.Role == model.RoleControlPlane:
		return r.inspectStaticPods(ctx, *c.np, &c.rn)
	}
	return nil
}

func (r *Reconciler) inspectPods(ctx context.Context, c *closer, o *v1alpha1.DrainOptions, now time.Time) error {
	if !has(*c.np, rollout.Drained) || !c.rn.Unschedulable {
		return nil
	}
	d, err := r.Evictor.Decide(ctx, c.np.Node, o)
	if err != nil {
		return err
	}
	c.drain = &d
	c.rn.Drain = &rollout.Drain{Left: d.Left(), Verdicts: onNode(c.np.Node, append(d.Refused, d.Late(now)...))}
	return nil
}

func (r *Reconciler) inspectStaticPods(ctx context.Context, np model.NodePlan, rn *rollout.Node) (err error) {
	switch rn.Run.State {
	case rollout.RunFailed:
		rn.Unsettled, err = controlplane.Unsettled(ctx, r.Live, np.Node)
	case rollout.RunSucceeded:
		err = r.inspectMoved(ctx, np, rn)
	}
	return err
}

// inspectMoved: a control-plane node is at its target when its static pods are, whoever
// brought it there.
func (r *Reconciler) inspectMoved(ctx context.Context, np model.NodePlan, rn *rollout.Node) (err error) {
	if np.Role != model.RoleControlPlane || !rn.AtTarget || !updateplan.MovesKubernetes(np) {
		return nil
	}
	rn.NotYet, err = controlplane.NotYet(ctx, r.Live, np.Node, np.To)
	rn.AtTarget = rn.NotYet == ""
	return err
}

// has reports whether a node's plan has a step.
func has(np model.NodePlan, step string) bool {
	for _, s := range np.Steps {
		if s.ID == step {
			return true
		}
	}
	return false
}

// onNode says of which node's drain a verdict is.
func onNode(node string, vs []model.Verdict) []model.Verdict {
	out := make([]model.Verdict, 0, len(vs))
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
