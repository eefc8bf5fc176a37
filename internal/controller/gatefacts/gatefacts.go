// Package gatefacts gathers the facts that the gate checks in addition to the images: the
// health of the nodes, pods and budgets, webhooks, APIs in use, accepted risks. It evaluates the
// health checks of pools, in CEL (expression.go), also for the rollout.
//
// Promise: it writes nothing. A fact that cannot be read is unknown to the check that
// needs it, and never counts as passed. Answers that cost the API server a list of all
// pods are cached for seconds, and read again after a restart.
//
// Input: what the updates' reconciler has gathered, and a client that reads.
// Output: parts of gate.Input, and the gate's answers as the status shows them.
// Caller: controller/clusterupdates.
package gatefacts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
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

// Snapshot is what was gathered already.
type Snapshot struct {
	Now   time.Time
	Nodes []*corev1.Node
	Moves *Moves
	Pools []v1alpha1.UpdatePool
	// Budgets is how many nodes of a pool may be unavailable at once, by its name.
	Budgets map[string]int
}

// Gatherer asks the cluster.
type Gatherer struct {
	// Live reads past any cache.
	Live client.Reader
	// APIMetrics opens the API server's metrics; nil does not read them.
	APIMetrics clusterfacts.Metrics
	// APIAt opens the metrics of the API server at an address: each server counts only its
	// own requests. nil reads APIMetrics only.
	APIAt func(address string) clusterfacts.Metrics

	mu    sync.Mutex
	looks surveys
	// unwell are the pools, by UID, whose health checks failed last.
	unwell map[string]unwell
}

// surveys remembers answers for a while, so that a gate that is asked at every
// event does not list all pods each time. What is lost with the process is
// asked again.
type surveys struct {
	// pods by update.
	pods  map[types.UID]*memo[survey]
	hooks memo[[]gate.Webhook]
	apis  memo[clusterfacts.APIsInUse]
	// undecided are sources of machines, by the names of the policies.
	undecided memo[[]gate.BootImageGap]
	// health is what the health checks of all pools found, by pool.
	health memo[map[string][]model.Blocker]
}

// maxSurveys are kept: updates that wait at the gate are few.
const maxSurveys = 8

func (l *surveys) forUpdate(uid types.UID) *memo[survey] {
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
func (g *Gatherer) Fill(ctx context.Context, w Snapshot, u *v1alpha1.ClusterUpdate, in *gate.Input) {
	g.mu.Lock()
	defer g.mu.Unlock()
	in.TargetKubernetes, in.Arguments = w.Moves.target, w.Moves.arguments
	in.Unknown, in.Pending = map[string]string{}, map[string]bool{}
	in.Lasts = w.estimatedDuration()
	for _, a := range u.Spec.AcceptedRisks {
		in.Accepted = append(in.Accepted, gate.Risk{Check: a.Check, Reason: a.Reason, By: a.By, Until: a.Until.Time})
	}
	markUnobservedControlPlanes(in)
	stretch := time.Duration(len(w.Nodes)/nodesPerSecond) * time.Second
	rules := clusterfacts.RulesOf(u.Spec.Drain).Among(slices.Clone(w.Nodes)) // the survey runs in the background, the caller changes its list
	key := fmt.Sprintf("%d %s %s", u.Generation, in.PlanDigest, u.HopBundle())
	all, err := g.looks.forUpdate(u.UID).get(ctx, w.Now, max(lookEvery, stretch), key, func(ctx context.Context) (survey, error) {
		return surveyOf(ctx, g.Live, w.Moves.drained, rules)
	})
	in.Pulls, in.Images, in.DrainWarnings = all.Pulls, all.images, drain.Preflight(all.Pods, rules.Options())
	addMissingFact(in, err, "budgets", "image-pulls", "image-references")
	in.Webhooks, err = g.looks.hooks.get(ctx, w.Now, max(lookEvery, stretch), "", func(ctx context.Context) ([]gate.Webhook, error) {
		return clusterfacts.Webhooks(ctx, g.Live)
	})
	addMissingFact(in, err, "webhooks")
	in.Pulls.Resolvers = slices.Concat(in.Pulls.Resolvers, resolvingHooks(in.Webhooks))
	addMissingFact(in, g.fillBootImages(ctx, w, in, max(lookEvery, stretch)), "boot-images")
	addMissingFact(in, g.fillHealth(ctx, w, in, lookEvery), gate.HealthChecks)
	in.OSImages, err = readOSImages(ctx, g.Live, w.Pools, w.Moves.booting, in)
	addMissingFact(in, err, "os-images-held", "os-images-fit")
	in.OSBuilds, err = readOSBuilds(ctx, g.Live, w)
	addMissingFact(in, err, gate.OSImagesBuilt)
	if g.APIMetrics == nil || in.TargetKubernetes == "" {
		return
	}
	use, err := g.looks.apis.get(ctx, w.Now, max(readEvery, stretch), "", func(ctx context.Context) (clusterfacts.APIsInUse, error) {
		return clusterfacts.ListAPIsInUse(ctx, g.Live, g.APIMetrics, g.APIAt)
	})
	addMissingFact(in, err, "removed-apis")
	if in.RemovedAPIs = use.APIs; use.Missing != "" {
		in.Unknown["removed-apis"] = use.Missing
	}
}

// addMissingFact says which checks have to do without a fact: those wait that will have
// it soon.
func addMissingFact(in *gate.Input, err error, checks ...string) {
	for _, c := range checks {
		switch {
		case errors.Is(err, errPending):
			in.Pending[c] = true
		case err != nil:
			in.Unknown[c] = err.Error()
		}
	}
}

// estimatedDuration is a careful guess of how long a plan takes: control planes one by one,
// then each pool as wide as its budget.
func (w Snapshot) estimatedDuration() time.Duration {
	total := time.Duration(w.Moves.controlPlanes) * perNode
	for pool, n := range w.Moves.workers {
		width := max(1, w.Budgets[pool])
		total += time.Duration((n+width-1)/width) * perNode
	}
	return max(atLeast, total)
}

// Node fills in what a node and its agent say of the node's health; nu may be nil.
// passing is true if that is so at this moment alone, and must be asked again.
func (m *Moves) Node(g *gate.Node, n *corev1.Node, nu *v1alpha1.NodeUpdate, now time.Time) (passing bool) {
	g.Drained, g.Needs = m.drained[n.Name], m.needs[n.Name]
	g.Pressure = pressures(n)
	g.Drift = driftOf(nu)
	g.Host = hostOf(n, nu)
	_, ours := n.Annotations[v1alpha1.AnnotationCordonedBy]
	g.ForeignCordon = n.Spec.Unschedulable && !ours
	if nu == nil || nu.Status.Health == nil {
		g.HealthUnknown = g.AgentKnown
		return heartbeatSkew(g, nu, now)
	}
	healthFacts(g, nu.Status.Health, m.snapshots[n.Name])
	return false
}

// markUnobservedControlPlanes names the control-plane nodes whose health no agent reports.
func markUnobservedControlPlanes(in *gate.Input) {
	var names []string
	for _, g := range in.Nodes {
		if g.ControlPlane && g.HealthUnknown {
			names = append(names, g.Name)
		}
	}
	if len(names) > 0 {
		sort.Strings(names)
		in.Unknown["quorum"] = "the agents of " + strings.Join(names, ", ") + " report no health (an older refit?)"
	}
}

// Moves is what the gate asks of a plan. It is made once for a plan.
type Moves struct {
	// needs are what the plan asks of each node's agent.
	needs         map[string]*gate.Needs
	target        string
	drained       map[string]bool
	controlPlanes int
	// pools of its nodes.
	pools map[string]bool
	// workers of each pool.
	workers map[string]int
	// snapshots count, for the control-plane nodes that kubeadm moves, in how many hops: a
	// snapshot of their etcd is taken first.
	snapshots map[string]int
	// booting are the nodes of each pool that boot another OS image.
	booting map[string][]string
	// arguments are the dangerous kernel arguments that it adds, each once for a pool.
	arguments []gate.Argument
}

// MovesOf a plan, in all its hops. Its target is that of the last one: what would stop a later
// hop is to be known before the first.
func MovesOf(p model.Plan) *Moves {
	m := &Moves{needs: needsOf(p), drained: map[string]bool{}, snapshots: map[string]int{}, pools: map[string]bool{}, workers: map[string]int{}, booting: map[string][]string{}}
	for _, hop := range p.Hops() {
		m.addHop(&hop)
	}
	return m
}

func (m *Moves) addHop(p *model.Plan) {
	m.target = cmp.Or(p.Target.Kubernetes, m.target)
	for i := range p.Nodes {
		np := &p.Nodes[i]
		m.pools[np.Pool] = true
		if np.Role == model.RoleControlPlane {
			m.controlPlanes++
		} else {
			m.workers[np.Pool]++
		}
		m.addArguments(np)
		for j := range np.Steps {
			if np.Steps[j].Updater == "kubeadm" && np.Role == model.RoleControlPlane {
				m.snapshots[np.Node]++
			}
			if bootsImage(&np.Steps[j]) {
				m.booting[np.Pool] = append(m.booting[np.Pool], np.Node)
			}
			if np.Steps[j].ID == rollout.Drained {
				m.drained[np.Node] = true
			}
		}
	}
}

// bootsImage: a step that changes kernel arguments alone fetches nothing.
func bootsImage(s *model.Step) bool {
	return s.Updater == "os-image" && slices.ContainsFunc(s.Changes, func(c model.Change) bool { return c.Path == model.FieldOSImage })
}

// Drains reports whether the plan empties a node.
func (m *Moves) Drains(node string) bool { return m.drained[node] }

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
func heartbeatSkew(g *gate.Node, nu *v1alpha1.NodeUpdate, now time.Time) (ahead bool) {
	if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.Heartbeat == nil {
		return false
	}
	if d := nu.Status.Agent.Heartbeat.Sub(now); d > 0 {
		g.Skew, g.SkewKnown = d, true
	}
	return g.SkewKnown
}

// keptSnapshots is of how many runs a node keeps the snapshots: the last one, and that which runs.
const keptSnapshots = 2

func healthFacts(g *gate.Node, h *v1alpha1.NodeHealth, snapshots int) {
	for _, c := range h.Certificates {
		g.Certificates = append(g.Certificates, gate.Certificate{Name: c.Name, NotAfter: c.NotAfter.Time})
	}
	if e := h.Etcd; e != nil {
		g.Etcd = &gate.Etcd{Healthy: e.Healthy, Message: e.Message, Size: e.SizeBytes, InUse: e.InUseBytes, Quota: e.QuotaBytes}
		if e.SizeBytes > 0 {
			g.Snapshot = model.EtcdSnapshotSpace(e.SizeBytes) * int64(min(snapshots, keptSnapshots))
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
		out.Checks = append(out.Checks, v1alpha1.GateCheck{Name: a.Name, Result: v1alpha1.CheckResult(a.Result), Verdicts: int32(a.Blockers), Warnings: int32(a.Warnings)})
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
