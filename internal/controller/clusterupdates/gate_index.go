package clusterupdates

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/gatefacts"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// gateIndex caches the gate's facts of all nodes for an update that is being prepared. A node
// whose objects did not change keeps its facts and the gate's findings.
type gateIndex struct {
	facts nodeindex.Row[*gate.Node]
	all   []*gate.Node
	// found are the gate's last findings for those nodes.
	found []*gate.NodeFindings
	// moves is what the plan in made does to nodes.
	made  *plans.Plan
	moves *gatefacts.Moves
	// lists are the nodes' PinLists; edition grows when one of them changes.
	lists   map[pinListKey]pinnedList
	edition int
	// requires is what the bundles ask of nodes, hop by hop, none without a bundle.
	requires []updateplan.Requires
}

// pinListKey identifies a node's pin list and what the node needs of a bundle.
type pinListKey struct {
	hold  string
	needs pin.Needs
}

// pinnedList is what the gate needs of a pin list.
type pinnedList struct {
	covers           bool
	images, payloads int
}

// gateKey is what the facts depend on in addition to the nodes.
type gateKey struct {
	bundles  string
	edition  int
	rollback bool
}

// decide evaluates the gate, with its last findings as a cache.
func (a *gateIndex) decide(in gate.Input) gate.Result {
	a.found = gate.CheckNodes(in, a.found)
	return gate.DecideFrom(in, a.found)
}

// gateIndexFor returns the cached facts for an update.
func (r *Reconciler) gateIndexFor(uid types.UID) *gateIndex {
	a := cmp.Or(r.gates[uid], r.gatesBefore[uid])
	if a == nil {
		a = &gateIndex{}
	}
	if r.gates == nil {
		r.gates = map[types.UID]*gateIndex{}
	}
	r.gates[uid] = a
	return a
}

// dropUnusedGates drops the caches of updates that this reconcile did not prepare.
func (r *Reconciler) dropUnusedGates() { r.gatesBefore, r.gates = r.gates, nil }

// gateNodes returns the gate's facts of all nodes.
func (r *Reconciler) gateNodes(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, headers []*bundle.Header, made *plans.Plan, a *gateIndex) ([]*gate.Node, error) {
	if err := r.rereadLists(ctx, headers, a); err != nil {
		return nil, err
	}
	replanned := a.made != made
	if replanned {
		a.made, a.moves = made, gatefacts.MovesOf(made.Plan)
	}
	a.requires = requiresOf(u, headers)
	if a.facts.Under(gateKey{strings.Join(u.Bundles()[u.Hop():], " "), a.edition, u.Spec.AllowDowngrade}, w.edition, w.nodes) {
		a.all = make([]*gate.Node, len(w.nodes))
	}
	for i, n := range w.nodes {
		g, same := a.facts.At(i, n, w.reports[i])
		if !same || replanned && a.stepsDiffer(*g, n.Name) {
			fresh, transient, err := r.gateNode(ctx, w, i, headers, a)
			if err != nil {
				a.facts.Forget(i)
				a.made = nil // the other nodes were not compared with this plan
				return nil, err
			}
			*g = fresh
			if transient {
				a.facts.Forget(i)
			}
		}
		a.all[i] = *g
	}
	return a.all, nil
}

// stepsDiffer reports whether the plan does something else to a node than when its facts were
// gathered.
func (a *gateIndex) stepsDiffer(g *gate.Node, node string) bool {
	return g.InPlan != inPlan(a.made, node) || g.Planned != a.made.Planned[node] || g.Drained != a.moves.Drains(node) || !reflect.DeepEqual(g.Needs, a.moves.Needs(node))
}

func inPlan(made *plans.Plan, node string) bool { return made.Planned[node] || made.NothingToDo() }

// rereadLists drops all facts if a pin list changed: it may have been created since.
func (r *Reconciler) rereadLists(ctx context.Context, headers []*bundle.Header, a *gateIndex) error {
	changed := false
	for key, before := range a.lists {
		now, err := r.pinnedList(ctx, key, headers)
		if err != nil {
			return err
		}
		changed = changed || now != before
	}
	if changed {
		a.edition, a.lists = a.edition+1, nil
	}
	return nil
}

// gateNode returns the gate's facts of the i-th node; transient is true if they hold only at
// this moment and must not be cached.
func (r *Reconciler) gateNode(ctx context.Context, w *rolloutSnapshot, i int, headers []*bundle.Header, a *gateIndex) (g *gate.Node, transient bool, err error) {
	n, nu := w.nodes[i], w.reports[i]
	g = &gate.Node{Name: n.Name, ControlPlane: controlPlane(n), Ready: ready(n), InPlan: inPlan(a.made, n.Name), Planned: a.made.Planned[n.Name], Busy: busyWith(n, nu),
		Misfits: a.misfits(n, nu)}
	if nu != nil {
		if err := r.addReport(ctx, w, g, n, nu, headers, a); err != nil {
			return nil, false, err
		}
	}
	return g, a.moves.Node(g, n, nu, w.now), nil
}

// requiresOf is what the bundles of an update ask of nodes.
func requiresOf(u *v1alpha1.ClusterUpdate, headers []*bundle.Header) []updateplan.Requires {
	if u.Spec.Bundle == "" {
		return nil
	}
	var out []updateplan.Requires
	for _, h := range headers {
		x := updateplan.RequiresOf(h.Metadata)
		x.Rollback = u.Spec.AllowDowngrade
		out = append(out, x)
	}
	return out
}

// misfits returns what of a node the bundles are not made for.
func (a *gateIndex) misfits(n *corev1.Node, nu *v1alpha1.NodeUpdate) []model.Blocker {
	return updateplan.MisfitsOfHops(a.requires, rolloutfacts.FitNode(n, nu))
}

// busyWith names the update or track that a node runs steps for or is marked by, empty if none.
// The gate asks only while no update moves nodes, so the owner of a mark was deleted.
func busyWith(n *corev1.Node, nu *v1alpha1.NodeUpdate) string {
	const over = "an update that was deleted, or is done"
	switch {
	case nu != nil && nu.Status.Run != nil && nu.Status.Run.State == v1alpha1.RunRunning:
		if run := nu.Spec.Run; run != nil && run.UID == nu.Status.Run.UID && strings.HasPrefix(run.Name, v1alpha1.TrackRun) {
			return run.Name
		}
		return over
	case rolloutfacts.MarkOf(n) != nil:
		return over
	}
	return ""
}

// addReport adds what a node's agent reports.
func (r *Reconciler) addReport(ctx context.Context, w *rolloutSnapshot, g *gate.Node, n *corev1.Node, nu *v1alpha1.NodeUpdate, headers []*bundle.Header, a *gateIndex) error {
	if x := nu.Status.Agent; x != nil {
		g.AgentKnown, g.Agent = true, gate.AgentInfo{Version: x.Version, Updaters: x.Updaters, Formats: x.Formats}
	}
	g.Heartbeat, g.HeartbeatSeconds = r.heartbeats.LastHeard(nu, w.now), nu.Spec.HeartbeatSeconds
	g.WantPinSet = nu.Spec.Pins
	key := pinListKey{nu.Spec.Pins, pin.Needs{Platform: platform(n), ControlPlane: rolloutfacts.RunsControlPlane(n, nu)}}
	list, known := a.lists[key]
	if !known {
		var err error
		if list, err = r.pinnedList(ctx, key, headers); err != nil {
			return err
		}
		if a.lists == nil {
			a.lists = map[pinListKey]pinnedList{}
		}
		a.lists[key] = list
	}
	g.PinSetHasBundle, g.WantImages, g.WantPayloads = list.covers, list.images, list.payloads
	if x := nu.Status.Pins; x != nil {
		g.Loaded = &gate.LoadedContent{Content: x.Content, MissingImages: x.Missing, ImagesTotal: x.ImagesTotal, ImagesReady: x.ImagesReady, ImagesPinned: x.ImagesPinned,
			PayloadsTotal: x.PayloadsTotal, PayloadsReady: x.PayloadsReady, Needed: x.NeededBytes}
	}
	for _, fs := range nu.Status.FileSystems {
		g.FileSystems = append(g.FileSystems, gate.FileSystem{Name: fs.Name, ID: fs.ID, Free: fs.FreeBytes})
	}
	if c := meta.FindStatusCondition(nu.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		g.Stalled = &model.Blocker{Reason: c.Reason, Message: "node " + n.Name + ": " + c.Message}
	}
	return nil
}

func (r *Reconciler) pinnedList(ctx context.Context, key pinListKey, headers []*bundle.Header) (pinnedList, error) {
	list, err := r.holdList(ctx, key.hold)
	if err != nil {
		return pinnedList{}, err
	}
	bundled, _ := list.CountImages() // updates do not wait for images that come from a registry
	covers := !slices.ContainsFunc(headers, func(h *bundle.Header) bool { return !pin.Covers(list, h, key.needs) })
	return pinnedList{covers, bundled, len(list.Payloads)}, nil
}

// holdList reads a pin list; a missing one is empty.
func (r *Reconciler) holdList(ctx context.Context, name string) (model.PinSet, error) {
	var l model.PinSet
	if name == "" {
		return l, nil
	}
	var c v1alpha1.Content
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c)
	if client.IgnoreNotFound(err) != nil {
		return l, err
	}
	if v1alpha1.ContentName(v1alpha1.ContentPins, c.Data) == name {
		_ = json.Unmarshal([]byte(c.Data), &l) // the name is the hash of the data, so the data is what was written
	}
	return l, nil
}
