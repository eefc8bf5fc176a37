// Package gatefacts gathers what the gate looks at besides the images: the
// health of the nodes, pods and budgets, webhooks, APIs in use, accepted risks.
//
// Promise: it writes nothing. What cannot be read is named as unknown to the
// check that needs it; it never counts as a yes by being left out. Answers that
// cost the API server a list of all pods are remembered for seconds, and are
// asked again after a restart.
//
// Input: what the updates' reconciler has gathered, and a client that reads.
// Output: parts of gate.Input, and the gate's answers as the status shows them.
// Caller: controller/updates.
package gatefacts

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/drain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/gate/look"
	"github.com/refit-dev/refit/internal/rollout"
)

const (
	// perNode is a careful guess of how long a node takes, atLeast of how long
	// any update does: a certificate must outlast it.
	perNode = 10 * time.Minute
	atLeast = time.Hour
	// lookEvery is how old an answer to a question over all pods may be;
	// readEvery the same for webhooks and the API server's metrics.
	lookEvery = 10 * time.Second
	readEvery = time.Minute
	// nodesPerSecond stretches both in large clusters: one walk over all pods
	// costs the API server a list of them.
	nodesPerSecond = 50
)

// World is what was gathered already.
type World struct {
	Now     time.Time
	Nodes   map[string]*corev1.Node
	Updates map[string]*v1alpha1.NodeUpdate
	Plan    model.Plan
	// Budgets is how many nodes of a pool may be away at once, by its name.
	Budgets map[string]int
}

// Gatherer asks the cluster.
type Gatherer struct {
	// Live reads past any cache.
	Live client.Reader
	// APIMetrics opens the API server's metrics; nil: they are not looked at.
	APIMetrics look.Metrics
	// APIAt opens those of the API server at an address: each counts only what it was
	// asked itself. nil: only APIMetrics is looked at.
	APIAt func(address string) look.Metrics

	mu    sync.Mutex
	looks looks
}

// looks remembers answers for a while, so that a gate that is asked at every
// event does not list all pods each time. What is lost with the process is
// asked again.
type looks struct {
	// pods by update.
	pods  map[types.UID]*memo[survey]
	hooks memo[[]gate.Webhook]
	apis  memo[look.InUse]
}

// maxSurveys are kept: updates that wait at the gate are few.
const maxSurveys = 8

func (l *looks) of(uid types.UID) *memo[survey] {
	if len(l.pods) > maxSurveys {
		l.pods = nil
	}
	if l.pods == nil {
		l.pods = map[types.UID]*memo[survey]{}
	}
	if l.pods[uid] == nil {
		l.pods[uid] = &memo[survey]{}
	}
	return l.pods[uid]
}

// Fill adds to the gate's input what is not about holding images.
func (g *Gatherer) Fill(ctx context.Context, w World, u *v1alpha1.ClusterUpdate, in *gate.Input) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in.TargetKubernetes = w.Plan.Target.Kubernetes
	in.Unknown, in.Pending = map[string]string{}, map[string]bool{}
	in.Lasts = w.lasts()
	for _, a := range u.Spec.AcceptedRisks {
		in.Accepted = append(in.Accepted, gate.Risk{Check: a.Check, Reason: a.Reason, Until: a.Until.Time})
	}
	drained := w.nodeFacts(in)
	stretch := time.Duration(len(w.Nodes)/nodesPerSecond) * time.Second
	rules := look.RulesOf(u.Spec.Drain).Among(w.Nodes)
	key := fmt.Sprintf("%d %s", u.Generation, in.PlanDigest)
	all, err := g.looks.of(u.UID).get(ctx, w.Now, max(lookEvery, stretch), key, func(ctx context.Context) (survey, error) {
		return surveyOf(ctx, g.Live, drained, rules)
	})
	in.Pulls, in.Images, in.DrainVerdicts = all.Pulls, all.images, drain.Preflight(all.Pods, rules.Options())
	missing(in, err, "budgets", "image-pulls", "image-references")
	in.Webhooks, err = g.looks.hooks.get(ctx, w.Now, max(lookEvery, stretch), "", func(ctx context.Context) ([]gate.Webhook, error) {
		return look.Webhooks(ctx, g.Live)
	})
	missing(in, err, "webhooks")
	in.BootImages, err = bootImages(ctx, g.Live, in.TargetKubernetes, w.lowest())
	missing(in, err, "boot-images")
	if g.APIMetrics == nil || in.TargetKubernetes == "" {
		return
	}
	use, err := g.looks.apis.get(ctx, w.Now, max(readEvery, stretch), "", func(ctx context.Context) (look.InUse, error) {
		return look.InUseOnAll(ctx, g.Live, g.APIMetrics, g.APIAt)
	})
	missing(in, err, "removed-apis")
	if in.RemovedAPIs = use.APIs; use.Missing != "" {
		in.Unknown["removed-apis"] = use.Missing
	}
}

// missing says which checks have to do without a fact: those wait that will have
// it soon.
func missing(in *gate.Input, err error, checks ...string) {
	for _, c := range checks {
		switch {
		case errors.Is(err, errPending):
			in.Pending[c] = true
		case err != nil:
			in.Unknown[c] = err.Error()
		}
	}
}

// lasts is a careful guess of how long a plan takes: control planes one by one,
// then each pool as wide as its budget.
func (w World) lasts() time.Duration {
	count := map[string]int{}
	total := time.Duration(0)
	for _, np := range w.Plan.Nodes {
		if np.Role == model.RoleControlPlane {
			total += perNode
			continue
		}
		count[np.Pool]++
	}
	for pool, n := range count {
		width := max(1, w.Budgets[pool])
		total += time.Duration((n+width-1)/width) * perNode
	}
	return max(atLeast, total)
}

// nodeFacts fills in what nodes and agents say of their health, and returns the
// nodes that will be drained.
func (w World) nodeFacts(in *gate.Input) map[string]bool {
	drained, moves := w.drained(), w.kubeadmMoves()
	var mute []string
	for i := range in.Nodes {
		g := &in.Nodes[i]
		n := w.Nodes[g.Name]
		if n == nil {
			continue
		}
		g.Drained = drained[g.Name]
		g.Pressure = pressures(n)
		_, ours := n.Annotations[v1alpha1.AnnotationCordonedBy]
		g.ForeignCordon = n.Spec.Unschedulable && !ours
		nu := w.Updates[g.Name]
		if nu == nil || nu.Status.Health == nil {
			if g.ControlPlane && g.AgentKnown {
				mute = append(mute, g.Name)
			}
			w.heartbeatSkew(g)
			continue
		}
		healthFacts(g, nu.Status.Health, moves[g.Name])
	}
	if len(mute) > 0 {
		sort.Strings(mute)
		in.Unknown["quorum"] = "the agents of " + strings.Join(mute, ", ") + " report no health (an older refit?)"
	}
	return drained
}

// kubeadmMoves are the control-plane nodes that kubeadm moves: a snapshot of their
// etcd is taken first.
func (w World) kubeadmMoves() map[string]bool {
	out := map[string]bool{}
	for _, np := range w.Plan.Nodes {
		for _, s := range np.Steps {
			if s.Updater == "kubeadm" && np.Role == model.RoleControlPlane {
				out[np.Node] = true
			}
		}
	}
	return out
}

// drained are the nodes that the plan empties.
func (w World) drained() map[string]bool {
	out := map[string]bool{}
	for _, np := range w.Plan.Nodes {
		for _, s := range np.Steps {
			if s.ID == rollout.Drained {
				out[np.Node] = true
			}
		}
	}
	return out
}

func pressures(n *corev1.Node) []string {
	var out []string
	for _, kind := range []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure} {
		for _, c := range n.Status.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionTrue {
				out = append(out, string(kind))
			}
		}
	}
	return out
}

// heartbeatSkew: a heartbeat from the future comes from a clock that is ahead.
// One from the past says nothing: it may only be old.
func (w World) heartbeatSkew(g *gate.Node) {
	nu := w.Updates[g.Name]
	if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.Heartbeat == nil {
		return
	}
	if ahead := nu.Status.Agent.Heartbeat.Sub(w.Now); ahead > 0 {
		g.Skew, g.SkewKnown = ahead, true
	}
}

func healthFacts(g *gate.Node, h *v1alpha1.NodeHealth, snapshot bool) {
	for _, c := range h.Certificates {
		g.Certificates = append(g.Certificates, gate.Certificate{Name: c.Name, NotAfter: c.NotAfter.Time})
	}
	if e := h.Etcd; e != nil {
		g.Etcd = &gate.Etcd{Healthy: e.Healthy, Message: e.Message, Size: e.SizeBytes, InUse: e.InUseBytes, Quota: e.QuotaBytes}
		if snapshot && e.SizeBytes > 0 {
			g.Snapshot = model.SnapshotRoom(e.SizeBytes)
		}
	}
	if s := h.ClockSkewSeconds; s != nil {
		g.Skew, g.SkewKnown = time.Duration(*s)*time.Second, true
	}
	g.PullVerification = h.PullVerification
}

// Answers writes into a status what every check said, and what became of
// accepted risks.
func Answers(u *v1alpha1.ClusterUpdate, res gate.Result, out *v1alpha1.ClusterUpdateStatus) {
	out.Checks, out.AcceptedRisks = nil, nil
	for _, a := range res.Answers {
		out.Checks = append(out.Checks, v1alpha1.GateCheck{Name: a.Name, Result: v1alpha1.CheckResult(a.Result), Verdicts: int32(a.Verdicts), Warnings: int32(a.Warnings)})
	}
	given := map[string]v1alpha1.AcceptedRisk{}
	for _, a := range u.Spec.AcceptedRisks {
		given[a.Check] = a
	}
	for _, o := range res.Risks {
		out.AcceptedRisks = append(out.AcceptedRisks, v1alpha1.RiskRecord{Check: o.Check, Reason: o.Reason, Until: given[o.Check].Until,
			State: v1alpha1.RiskState(o.State), Covers: int32(o.Covers)})
	}
}
