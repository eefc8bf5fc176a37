package clusterupdates

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
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
)

// gateIndex keeps the gate's facts of all nodes for an update that is being prepared.
// A node whose objects are the same as before has the same facts, and with them
// what the gate said of them.
type gateIndex struct {
	facts nodeindex.Row[*gate.Node]
	all   []*gate.Node
	// found is what the gate found about those nodes last.
	found []*gate.NodeFindings
	// moves is what made, the plan, does to nodes.
	made  *plans.Made
	moves *gatefacts.Moves
	// lists are the hold lists that nodes have; edition grows when one is another.
	lists   map[listKey]heldList
	edition int
}

// listKey names a hold list on a platform.
type listKey struct{ hold, platform string }

// heldList is what the gate needs of a hold list.
type heldList struct {
	covers           bool
	images, payloads int
}

// underHeader is what facts are derived from besides the nodes.
type underHeader struct {
	h       *bundle.Header
	edition int
}

// decide asks the gate. It passes in what the gate found about nodes last.
func (a *gateIndex) decide(in gate.Input) gate.Result {
	a.found = gate.CheckNodes(in, a.found)
	return gate.DecideFrom(in, a.found)
}

// askingFor is what is remembered for an update.
func (r *Reconciler) askingFor(uid types.UID) *gateIndex {
	a := cmp.Or(r.asks[uid], r.asked[uid])
	if a == nil {
		a = &gateIndex{}
	}
	if r.asks == nil {
		r.asks = map[types.UID]*gateIndex{}
	}
	r.asks[uid] = a
	return a
}

// forgetAsked forgets what was remembered for updates that nothing was asked for in
// this look.
func (r *Reconciler) forgetAsked() { r.asked, r.asks = r.asks, nil }

// gateNodes are the facts of all nodes.
func (r *Reconciler) gateNodes(ctx context.Context, w *rolloutSnapshot, h *bundle.Header, made *plans.Made, a *gateIndex) ([]*gate.Node, error) {
	if err := r.rereadLists(ctx, h, a); err != nil {
		return nil, err
	}
	replanned := a.made != made
	if replanned {
		a.made, a.moves = made, gatefacts.MovesOf(made.Plan)
	}
	if a.facts.Under(underHeader{h, a.edition}, w.edition, w.nodes) {
		a.all = make([]*gate.Node, len(w.nodes))
	}
	for i, n := range w.nodes {
		g, same := a.facts.At(i, n, w.reports[i])
		if !same || replanned && a.movesOtherwise(*g, n.Name) {
			fresh, passing, err := r.gateNode(ctx, w, i, h, a)
			if err != nil {
				a.facts.Forget(i)
				a.made = nil // the rest was not compared with this plan
				return nil, err
			}
			*g = fresh
			if passing {
				a.facts.Forget(i)
			}
		}
		a.all[i] = *g
	}
	return a.all, nil
}

// movesOtherwise reports whether the plan asks something else of a node than when its
// facts were gathered.
func (a *gateIndex) movesOtherwise(g *gate.Node, node string) bool {
	return g.InPlan != inPlan(a.made, node) || g.Drained != a.moves.Drains(node) || !reflect.DeepEqual(g.Needs, a.moves.Needs(node))
}

func inPlan(made *plans.Made, node string) bool { return made.Planned[node] || made.NothingToDo() }

// rereadLists looks whether the hold lists are what they were: one may have come.
func (r *Reconciler) rereadLists(ctx context.Context, h *bundle.Header, a *gateIndex) error {
	changed := false
	for key, before := range a.lists {
		now, err := r.heldList(ctx, key, h)
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

// gateNode is what the gate needs of the i-th node; passing is true if that is so
// at this moment alone.
func (r *Reconciler) gateNode(ctx context.Context, w *rolloutSnapshot, i int, h *bundle.Header, a *gateIndex) (g *gate.Node, passing bool, err error) {
	n, nu := w.nodes[i], w.reports[i]
	g = &gate.Node{Name: n.Name, ControlPlane: controlPlane(n), Ready: ready(n), InPlan: inPlan(a.made, n.Name), Busy: atWorkFor(n, nu)}
	if nu != nil {
		if err := r.addReport(ctx, w, g, n, nu, h, a); err != nil {
			return nil, false, err
		}
	}
	return g, a.moves.Node(g, n, nu, w.now), nil
}

// atWorkFor says for whom a node runs steps, or carries a mark, empty if for nobody. It is
// asked while no update moves nodes: whose mark it is was deleted.
func atWorkFor(n *corev1.Node, nu *v1alpha1.NodeUpdate) string {
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

// addReport is what a node's agent says.
func (r *Reconciler) addReport(ctx context.Context, w *rolloutSnapshot, g *gate.Node, n *corev1.Node, nu *v1alpha1.NodeUpdate, h *bundle.Header, a *gateIndex) error {
	if x := nu.Status.Agent; x != nil {
		g.AgentKnown, g.Agent = true, gate.AgentInfo{Version: x.Version, Updaters: x.Updaters, Formats: x.Formats}
	}
	g.Heartbeat, g.HeartbeatSeconds = r.heartbeats.LastHeard(nu, w.now), nu.Spec.HeartbeatSeconds
	g.WantHold = nu.Spec.Pins
	key := listKey{nu.Spec.Pins, platform(n)}
	list, known := a.lists[key]
	if !known {
		var err error
		if list, err = r.heldList(ctx, key, h); err != nil {
			return err
		}
		if a.lists == nil {
			a.lists = map[listKey]heldList{}
		}
		a.lists[key] = list
	}
	g.HoldsBundle, g.WantImages, g.WantPayloads = list.covers, list.images, list.payloads
	if x := nu.Status.Pins; x != nil {
		g.Holding = &gate.Holding{Content: x.Content, Lacking: x.Missing, ImagesTotal: x.ImagesTotal, ImagesReady: x.ImagesReady, ImagesPinned: x.ImagesPinned,
			PayloadsTotal: x.PayloadsTotal, PayloadsHeld: x.PayloadsReady, Needed: x.NeededBytes}
	}
	for _, fs := range nu.Status.FileSystems {
		g.FileSystems = append(g.FileSystems, gate.FileSystem{Name: fs.Name, ID: fs.ID, Free: fs.FreeBytes})
	}
	if c := meta.FindStatusCondition(nu.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		g.Stalled = &model.Verdict{Reason: c.Reason, Message: "node " + n.Name + ": " + c.Message}
	}
	return nil
}

func (r *Reconciler) heldList(ctx context.Context, key listKey, h *bundle.Header) (heldList, error) {
	list, err := r.holdList(ctx, key.hold)
	if err != nil {
		return heldList{}, err
	}
	bundled, _ := list.Counts() // no update waits for what comes from a registry
	return heldList{pin.Covers(list, h, key.platform), bundled, len(list.Payloads)}, nil
}

// holdList reads a hold list; one that is not there is empty.
func (r *Reconciler) holdList(ctx context.Context, name string) (model.HoldList, error) {
	var l model.HoldList
	if name == "" {
		return l, nil
	}
	var c v1alpha1.Content
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c)
	if client.IgnoreNotFound(err) != nil {
		return l, err
	}
	if v1alpha1.ContentName(v1alpha1.ContentPins, c.Data) == name {
		_ = json.Unmarshal([]byte(c.Data), &l) // the name is its hash: it is what was written
	}
	return l, nil
}
