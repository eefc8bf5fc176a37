package statuspage

import (
	"context"
	"fmt"
	"hash/fnv"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// state is what the page shows, read at one time.
type state struct {
	at      time.Time
	view    explain.View
	update  *v1alpha1.ClusterUpdate
	updates []v1alpha1.ClusterUpdate
	bundles []v1alpha1.Bundle
	pools   []v1alpha1.UpdatePool
	tracks  []v1alpha1.ImageTrack
	sources []v1alpha1.MachineSource
	media   []mediumRow
	// poolOf is the pool of each node of the view.
	poolOf map[string]string
	plan   planSummary
}

// snapshot returns a state that is at most a second old, so that many browsers cost as much
// as one.
func (s *Server) snapshot(ctx context.Context) (*state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	if s.last != nil {
		if age := now.Sub(s.last.at); age >= 0 && age < snapshotMaxAge {
			return s.last, nil
		}
	}
	st, err := s.read(ctx, now)
	if err != nil {
		return nil, err
	}
	s.last = st
	return st, nil
}

// read lists the objects. The lists share memory with the cache and are not changed.
func (s *Server) read(ctx context.Context, now time.Time) (*state, error) {
	var nodes corev1.NodeList
	var nus v1alpha1.NodeUpdateList
	var bundles v1alpha1.BundleList
	var updates v1alpha1.ClusterUpdateList
	var pools v1alpha1.UpdatePoolList
	var tracks v1alpha1.ImageTrackList
	var sources v1alpha1.MachineSourceList
	lists := []client.ObjectList{&nodes, &nus, &bundles, &updates, &pools}
	if !s.options.Without.Has(areas.ImageTags) {
		lists = append(lists, &tracks)
	}
	if !s.options.Without.Has(areas.BootImages) {
		lists = append(lists, &sources)
	}
	for _, l := range lists {
		if err := s.reader.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	st := &state{at: now, view: explain.Make(rolloutfacts.ViewFacts(now, nodes.Items, nus.Items, bundles.Items, updates.Items)),
		update: rolloutfacts.ChooseUpdate(updates.Items), updates: updates.Items, bundles: bundles.Items, pools: pools.Items, tracks: tracks.Items, sources: sources.Items,
		media: mediaOf(nus.Items), poolOf: poolsOf(nodes.Items, pools.Items)}
	if st.update != nil && st.update.Status.Plan != "" {
		st.plan = s.plans.summary(ctx, s.reader, st.update.Status.Plan)
	}
	return st, nil
}

// mediumRow is a medium in a node.
type mediumRow struct {
	Node                             string
	Device, State, Name, Message, By string
}

func mediaOf(nus []v1alpha1.NodeUpdate) []mediumRow {
	var out []mediumRow
	for i := range nus {
		for _, m := range nus[i].Status.Media {
			out = append(out, mediumRow{Node: nus[i].Name, Device: short(m.Device, maxName), State: m.State, Name: short(joined(m.Name, m.Version), maxName),
				Message: short(m.Message, maxShortText), By: short(listed(m.SignedBy), maxShortText)})
		}
	}
	sort.Slice(out, func(i, j int) bool {
		return out[i].Node < out[j].Node || out[i].Node == out[j].Node && out[i].Device < out[j].Device
	})
	return out
}

// severalPools stands for a node that is in more than one pool, and is not updated.
const severalPools = "(several)"

// poolsOf names the pool of each node.
func poolsOf(nodes []corev1.Node, pools []v1alpha1.UpdatePool) map[string]string {
	selectors := make([]labels.Selector, len(pools))
	for i := range pools {
		sel, err := metav1.LabelSelectorAsSelector(&pools[i].Spec.NodeSelector)
		if err != nil {
			sel = labels.Nothing() // the gate reports it
		}
		selectors[i] = sel
	}
	out := make(map[string]string, len(nodes))
	for i := range nodes {
		out[nodes[i].Name] = poolOf(labels.Set(nodes[i].Labels), pools, selectors)
	}
	return out
}

func poolOf(of labels.Set, pools []v1alpha1.UpdatePool, selectors []labels.Selector) string {
	if len(pools) == 0 {
		return updateplan.DefaultPool
	}
	found := "-"
	for i := range pools {
		if !selectors[i].Matches(of) {
			continue
		}
		if found != "-" {
			return severalPools
		}
		found = pools[i].Name
	}
	return found
}

// planSummary is a plan with equal nodes added up.
type planSummary struct {
	Groups  []planGroup
	Missing string
}

// planGroup are nodes with the same steps.
type planGroup struct {
	Wave       int
	Pool, Role string
	Nodes      int
	Steps      string
	From, To   string
	Disruption string
}

// planCache has the summary of one plan. Plans are Contents, which never change.
type planCache struct {
	mu   sync.Mutex
	name string
	last planSummary
}

func (p *planCache) summary(ctx context.Context, c client.Reader, name string) planSummary {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.name == name {
		return p.last
	}
	plan, err := plans.Load(ctx, c, name)
	if err != nil {
		return planSummary{Missing: "The plan cannot be read now: " + err.Error() + ". Run refit plan."}
	}
	p.name, p.last = name, planSummary{Groups: groupPlan(plan)}
	return p.last
}

func groupPlan(plan model.Plan) []planGroup {
	var out []planGroup
	index := map[planGroup]int{}
	for _, n := range plan.Nodes {
		g := planGroup{Wave: n.Wave, Pool: n.Pool, Role: n.Role, From: n.From, To: n.To, Disruption: string(model.DisruptionNone)}
		for _, st := range n.Steps {
			g.Steps = addStep(g.Steps, st.ID)
			g.Disruption = worse(g.Disruption, string(st.Disruption))
		}
		i, ok := index[g]
		if !ok {
			i, index[g] = len(out), len(out)
			out = append(out, g)
		}
		out[i].Nodes++
	}
	return out
}

func addStep(steps, id string) string {
	if steps == "" {
		return id
	}
	return steps + " > " + id
}

var disruptions = map[string]int{string(model.DisruptionReload): 1, string(model.DisruptionRestart): 2, string(model.DisruptionDrain): 3, string(model.DisruptionReboot): 4}

func worse(a, b string) string {
	if disruptions[b] > disruptions[a] {
		return b
	}
	return a
}

// mark changes when the page would show something else than the time.
func (st *state) mark() uint64 {
	h := fnv.New64a()
	v := st.view
	fmt.Fprintln(h, v.Headline, v.Colour, v.Phase, v.Paused, v.NodesDone, v.NodesTotal, v.Percent, v.Waiting, v.Warnings, v.Next, v.Bundles, st.media, v.DoneLatest)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		fmt.Fprintln(h, n.Name, n.Phase, n.Step, n.Ready, n.Unschedulable, n.OnHold, n.ImagesPinned, n.BytesDone, n.Kubelet)
	}
	return h.Sum64()
}
