package updates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/evict"
	"github.com/refit-dev/refit/internal/controller/staticpods"
	"github.com/refit-dev/refit/internal/drain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/update"
	"github.com/refit-dev/refit/internal/rollout"
)

// move takes an update that has started a step further.
func (r *Reconciler) move(ctx context.Context, w *world, u *v1alpha1.ClusterUpdate) (time.Duration, error) {
	st := r.newStatus(w, u)
	kept, err := r.Plans.Read(ctx, u)
	if err != nil {
		st.verdicts = []model.Verdict{{Reason: v1alpha1.ReasonPlanChanged, Message: err.Error(), Fix: "delete this ClusterUpdate and make another: it is planned anew from what runs"}}
		st.phase(v1alpha1.PhaseHalted)
		return whileActive, errors.Join(r.write(ctx, st), err)
	}
	if err := r.refresh(ctx, w, u); err != nil {
		return 0, err
	}
	plan := kept.Plan
	in, drains, err := r.rolloutInput(ctx, w, u, plan)
	if err != nil {
		return 0, err
	}
	d := rollout.Next(in)
	verdicts, actErr := r.act(ctx, w, u, plan, d, drains)
	st.verdicts = append(d.Verdicts, verdicts...)
	st.progress(d)
	st.out.Drains = evict.Table(evict.Look{Now: w.now, Nodes: in.Nodes, Decisions: drains, Verdicts: verdicts}, u.Status.Drains)
	r.tellFailures(w, u, d)
	switch {
	case d.Finished:
		st.finish(v1alpha1.ReasonUpdated)
	case d.Halted:
		st.phase(v1alpha1.PhaseHalted)
	default:
		st.phase(v1alpha1.PhaseUpdating)
	}
	again := whileActive
	if len(d.Current) > 0 {
		again = whileMoving
	}
	if len(d.Actions) > 0 || len(drains) > 0 {
		again = whileDraining
	}
	return again, errors.Join(r.write(ctx, st), actErr)
}

// tellFailures says once per attempt on the node itself why it failed and stays
// cordoned.
func (r *Reconciler) tellFailures(w *world, u *v1alpha1.ClusterUpdate, d rollout.Decision) {
	for _, v := range d.Verdicts {
		name, ok := strings.CutPrefix(v.Object, "Node/")
		n := w.byName[name]
		if ok && n != nil && d.Stages[name] == rollout.StageFailed && r.once(fmt.Sprintf("%s %s failed %d", u.UID, name, u.Spec.Retry)) {
			r.event(u, n, corev1.EventTypeWarning, v.Reason, "Halt", v.Message)
		}
	}
}

// maxLive is how many nodes a look reads past the cache.
const maxLive = 16

// refresh reads the nodes that have started from the API server: after a
// control plane was away the cache may be a minute behind. In a large rollout it
// reads the control-plane nodes and a few others: the rest of them would only
// learn a little earlier what the watches bring.
func (r *Reconciler) refresh(ctx context.Context, w *world, u *v1alpha1.ClusterUpdate) error {
	read := 0
	for i, n := range w.nodes {
		if m := markOf(n); m == nil || m.uid != string(u.UID) || read >= maxLive && !controlPlane(n) {
			continue
		}
		read++
		var node corev1.Node
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(n), &node); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read node %s: %w", n.Name, err)
		} else if err == nil {
			r.Roster.Node(&node, w.now)
			w.nodes[i], w.byName[n.Name] = &node, &node
		}
		var nu v1alpha1.NodeUpdate
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: n.Name}, &nu); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read NodeUpdate %s: %w", n.Name, err)
		} else if err == nil {
			r.Roster.Update(&nu, w.now)
			w.updates[n.Name] = &nu
		}
	}
	return nil
}

// mark is what a node carries while an update is at work on it.
type mark struct {
	uid     string
	attempt int32
	at      time.Time
}

func (m mark) String() string {
	return fmt.Sprintf("%s %d %s", m.uid, m.attempt, m.at.UTC().Format(time.RFC3339))
}

// markOf reads a node's mark; nil if it has none.
func markOf(n *corev1.Node) *mark {
	f := strings.Fields(n.Annotations[v1alpha1.AnnotationUpdating])
	if len(f) == 0 {
		return nil
	}
	m := &mark{uid: f[0]}
	if len(f) == 3 {
		a, _ := strconv.ParseInt(f[1], 10, 32) // an unreadable attempt is 0: the node is marked again
		m.attempt = int32(a)
		m.at, _ = time.Parse(time.RFC3339, f[2])
	}
	return m
}

func (r *Reconciler) rolloutInput(ctx context.Context, w *world, u *v1alpha1.ClusterUpdate, plan model.Plan) (rollout.Input, map[string]drain.Decision, error) {
	in := rollout.Input{Plan: plan, Nodes: map[string]rollout.Node{}, Pools: evict.Timeouts(w.rolloutPools(), u), Paused: u.Spec.Paused, Attempt: u.Spec.Retry + 1, Now: w.now}
	drains := map[string]drain.Decision{}
	for _, n := range w.nodes {
		if controlPlane(n) && !ready(n) {
			in.UnhealthyControlPlanes = append(in.UnhealthyControlPlanes, n.Name)
		}
	}
	for _, np := range plan.Nodes {
		n := w.byName[np.Node]
		if n == nil {
			continue // it has left the cluster
		}
		rn := r.rolloutNode(w, u, np, n)
		if err := r.lookCloser(ctx, np, &rn, drains, u.Spec.Drain, w.now); err != nil {
			return in, nil, err
		}
		in.Nodes[np.Node] = rn
	}
	return in, drains, nil
}

// rolloutNode gathers what is seen of a node without asking the API server.
func (r *Reconciler) rolloutNode(w *world, u *v1alpha1.ClusterUpdate, np model.NodePlan, n *corev1.Node) rollout.Node {
	rn := rollout.Node{Name: n.Name, Ready: ready(n), Unschedulable: n.Spec.Unschedulable}
	if m := markOf(n); m != nil && m.uid == string(u.UID) {
		rn.Started, rn.StartedAt, rn.StartedAttempt = true, m.at, m.attempt
	}
	rn.NotYet = w.notYet(np, n)
	rn.AtTarget = rn.NotYet == ""
	nu := w.updates[n.Name]
	rn.AgentSilent = r.silent(nu, w.now)
	if nu == nil {
		return rn
	}
	if run := nu.Spec.Run; run != nil && run.UID == string(u.UID) && run.PlanDigest == u.Status.PlanDigest {
		rn.Run = &rollout.Run{Attempt: run.Attempt}
		if s := nu.Status.Run; s != nil && s.UID == run.UID && s.PlanDigest == run.PlanDigest && s.Attempt == run.Attempt {
			rn.Run.State, rn.Run.Step, rn.Run.Reason, rn.Run.Message = string(s.State), s.Step, s.Reason, s.Message
		}
	}
	return rn
}

// notYet says what of the target was not observed on a node, empty if all was.
func (w *world) notYet(np model.NodePlan, n *corev1.Node) string {
	return update.NotYet(np, w.planNode(n))
}

// lookCloser asks the API server about pods, for nodes that have started only:
// those that must leave before the run, and the static pods after it.
func (r *Reconciler) lookCloser(ctx context.Context, np model.NodePlan, rn *rollout.Node, drains map[string]drain.Decision, o *v1alpha1.DrainOptions, now time.Time) error {
	switch {
	case !rn.Started:
		return nil
	case rn.Run == nil && has(np, rollout.Drained) && rn.Unschedulable:
		d, err := r.Evictor.Decide(ctx, np.Node, o)
		if err != nil {
			return err
		}
		drains[np.Node] = d
		rn.Drain = &rollout.Drain{Left: d.Left(), Verdicts: onNode(np.Node, append(d.Refused, d.Late(now)...))}
	case rn.Run != nil && rn.Run.State == rollout.RunSucceeded && rn.AtTarget && np.Role == model.RoleControlPlane && update.MovesKubernetes(np):
		notYet, err := staticpods.NotYet(ctx, r.Live, np.Node, np.To)
		if err != nil {
			return err
		}
		rn.NotYet, rn.AtTarget = notYet, notYet == ""
	}
	return nil
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

// rolloutPools counts who is unavailable in each pool, whatever the cause.
func (w *world) rolloutPools() map[string]rollout.Pool {
	out := map[string]rollout.Pool{}
	if len(w.pools) == 0 {
		p := rollout.Pool{Name: update.DefaultPool, Budget: 1}
		for _, n := range w.nodes {
			if unavailable(n) {
				p.Unavailable = append(p.Unavailable, n.Name)
			}
		}
		out[p.Name] = p
		return out
	}
	for i := range w.pools {
		spec := &w.pools[i].Spec
		p := rollout.Pool{Name: w.pools[i].Name, Paused: spec.Paused, DrainTimeout: time.Duration(spec.DrainTimeoutSeconds) * time.Second}
		size := 0
		for _, n := range w.nodes {
			if !w.inPool(n, p.Name) {
				continue
			}
			size++
			if unavailable(n) {
				p.Unavailable = append(p.Unavailable, n.Name)
			}
		}
		p.Budget = budgetOf(spec.MaxUnavailable, size)
		out[p.Name] = p
	}
	return out
}

func (w *world) inPool(n *corev1.Node, pool string) bool {
	return slices.Contains(w.poolsOf(n), pool)
}

// unavailable nodes are cordoned, not Ready, or being updated.
func unavailable(n *corev1.Node) bool {
	return n.Spec.Unschedulable || !ready(n) || markOf(n) != nil
}

func budgetOf(v *intstr.IntOrString, size int) int {
	if v == nil {
		return 1
	}
	if v.Type == intstr.Int {
		return rollout.Budget(int(v.IntVal), false, size)
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil {
		return 1
	}
	return rollout.Budget(percent, true, size)
}

func metaNow(t time.Time) *metav1.Time {
	n := metav1.NewTime(t)
	return &n
}
