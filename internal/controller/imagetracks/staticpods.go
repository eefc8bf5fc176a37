package imagetracks

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/controller/imagetracks/workloads"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/model"
)

// Nodes reads and permits nodes.
type Nodes struct {
	Client client.Client
	// Live reads past the cache.
	Live       client.Reader
	Heartbeats *nodeindex.Heartbeats
}

// Roll is which image of which track is meant.
type Roll struct {
	Object   *v1alpha1.ImageTrack
	Track    track.Track
	Approved *track.Image
	Now      time.Time
}

// name of the run, and what tells it apart from other runs of the track: the pod,
// the image, when it was taken, and how often a person asked to try again.
func (r Roll) name() string { return v1alpha1.TrackRun + r.Object.Name }

func (r Roll) uid(w *workloads.Workload) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d", w.Key(), r.Approved.Digest, r.Approved.Long, r.Approved.At.Unix(), r.Object.Spec.Retry))
	return fmt.Sprintf("%s-%x", r.Object.UID, sum[:6])
}

// Fill adds to a static pod the progress of each of its nodes, and the digest that its
// manifests name. That differs from the approved one if an administrator changed a
// manifest after refit.
func (n *Nodes) Fill(ctx context.Context, r Roll, w *workloads.Workload, before string) error {
	w.Nodes = nil
	if r.Approved == nil {
		return nil
	}
	byHand := ""
	pods, all := r.pods(w)
	for i := range pods {
		np, did, err := n.inspectPod(ctx, r, w, &pods[i])
		if err != nil {
			return err
		}
		if changes(&np, r.Approved) {
			all = false
			if did {
				byHand = orDefault(byHand, digestOf(&np))
			}
		}
		w.Nodes = append(w.Nodes, np)
	}
	switch {
	case all:
		w.Named = r.Approved.Digest
	case !r.Approved.Is(before): // it is being rolled
	case byHand != "":
		w.Named = byHand
	default: // a node has joined, whose manifest is an older one
		w.Named = r.Approved.Digest
	}
	return nil
}

// pods of a workload, and one for the node that has the turn if its kubelet is
// replacing the pod just now, so that it is nowhere; all is false then.
func (r Roll) pods(w *workloads.Workload) (pods []corev1.Pod, all bool) {
	t := r.Object.Status.Turn
	if t == nil || t.Workload != w.Key() || slices.ContainsFunc(w.Pods, func(p corev1.Pod) bool { return p.Spec.NodeName == t.Node }) {
		return w.Pods, true
	}
	return append(slices.Clone(w.Pods), corev1.Pod{Spec: corev1.PodSpec{NodeName: t.Node}}), false
}

// inspectPod at a node; did is true if its agent has written what is approved.
func (n *Nodes) inspectPod(ctx context.Context, r Roll, w *workloads.Workload, p *corev1.Pod) (np track.NodePod, did bool, err error) {
	np = track.NodePod{Node: p.Spec.NodeName, Ready: rolloutfacts.PodReady(p), Containers: targetContainers(r, p)}
	nu, err := n.readReport(ctx, r, w, np.Node)
	if err != nil {
		return np, false, err
	}
	if err := n.health(ctx, &np); err != nil {
		return np, false, err
	}
	if nu == nil || nu.Status.Agent == nil {
		np.Unready = orDefault(np.Unready, "it has no agent")
		return np, false, nil
	}
	if n.Heartbeats.Silent(nu, r.Now) {
		np.Unready = orDefault(np.Unready, "its agent is silent")
	}
	r.describeRun(w, nu, &np)
	did = r.wroteApproved(w, nu)
	if did && changes(&np, r.Approved) {
		err = n.rereadPod(ctx, r, p, &np)
	}
	return np, did, err
}

// describeRun says of a node what it runs, and for whom.
func (r Roll) describeRun(w *workloads.Workload, nu *v1alpha1.NodeUpdate, np *track.NodePod) {
	run := nu.Spec.Run
	switch {
	case run == nil:
	case run.Name == r.name() && run.UID == r.uid(w):
		np.Run = runOutcome(nu)
	case runEnded(nu):
	case run.Name == r.name() && r.concerns(w, run):
		np.Ending = true
	default:
		np.Busy = run.Name
	}
}

// concerns reports whether a run is about a workload.
func (r Roll) concerns(w *workloads.Workload, run *v1alpha1.NodeRun) bool {
	p := model.StaticPodImages{}
	return len(run.Steps) == 1 && p.Read(run.Steps[0].Params) == nil && p.Namespace == w.Namespace && p.Pod == w.Name
}

// rereadPod reads a pod that was read before its node's report: it is the older of
// the two.
func (n *Nodes) rereadPod(ctx context.Context, r Roll, p *corev1.Pod, np *track.NodePod) error {
	var now corev1.Pod
	err := n.Live.Get(ctx, client.ObjectKeyFromObject(p), &now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if err == nil {
		np.Ready, np.Containers = rolloutfacts.PodReady(&now), targetContainers(r, &now)
	}
	return nil
}

// readReport of a node; of the one that has the turn as the API server has it.
func (n *Nodes) readReport(ctx context.Context, r Roll, w *workloads.Workload, node string) (*v1alpha1.NodeUpdate, error) {
	from := client.Reader(n.Client)
	if t := r.Object.Status.Turn; t != nil && t.Node == node && t.Workload == w.Key() {
		from = n.Live
	}
	nu := &v1alpha1.NodeUpdate{}
	err := from.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, nu)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NodeUpdate %s: %w", node, err)
	}
	return nu, nil
}

// health of the Node.
func (n *Nodes) health(ctx context.Context, np *track.NodePod) error {
	var node corev1.Node
	err := n.Client.Get(ctx, client.ObjectKey{Name: np.Node}, &node)
	if apierrors.IsNotFound(err) {
		np.Unready = "there is no such node"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", np.Node, err)
	}
	np.ControlPlane = rolloutfacts.ControlPlane(&node)
	if ready, _ := rolloutfacts.Ready(&node); !ready {
		np.Unready = "it is not Ready"
	}
	if why, held := node.Annotations[v1alpha1.AnnotationHold]; held {
		np.Unready = "it is held: " + why
	}
	return nil
}

// wroteApproved reports whether a node has written what is approved, at whichever try.
func (r Roll) wroteApproved(w *workloads.Workload, nu *v1alpha1.NodeUpdate) bool {
	run := nu.Spec.Run
	if run == nil || run.Name != r.name() || !runEnded(nu) || nu.Status.Run.State != v1alpha1.RunSucceeded || !r.concerns(w, run) {
		return false
	}
	p := model.StaticPodImages{}
	if p.Read(run.Steps[0].Params) != nil {
		return false
	}
	for _, image := range p.To {
		if !strings.HasSuffix(image, "@"+r.Approved.Digest) {
			return false
		}
	}
	return true
}

// runEnded reports whether a node has ended what it was permitted.
func runEnded(nu *v1alpha1.NodeUpdate) bool {
	r, s := nu.Spec.Run, nu.Status.Run
	return s != nil && s.UID == r.UID && s.Attempt == r.Attempt && s.State != v1alpha1.RunRunning
}

// runOutcome is what came of the run that a node was permitted.
func runOutcome(nu *v1alpha1.NodeUpdate) *track.NodeRun {
	r, s := nu.Spec.Run, nu.Status.Run
	out := &track.NodeRun{Attempt: r.Attempt, Undo: r.Undo, UndoReason: r.Cause}
	if s != nil && s.UID == r.UID && s.Attempt == r.Attempt {
		out.State, out.Reason, out.Message = string(s.State), s.Reason, s.Message
		if s.StartedAt != nil && s.FinishedAt != nil {
			out.Duration = s.FinishedAt.Sub(s.StartedAt.Time)
		}
	}
	return out
}

func targetContainers(r Roll, p *corev1.Pod) []track.Container {
	return slices.DeleteFunc(workloads.ContainersOf(&p.Spec), func(c track.Container) bool { return !track.AppliesTo(r.Track, r.Approved, c.Image) })
}

func changes(np *track.NodePod, approved *track.Image) bool {
	return slices.ContainsFunc(np.Containers, func(c track.Container) bool {
		_, changed := track.RewriteLong(c.Image, approved)
		return changed
	})
}

func digestOf(np *track.NodePod) string {
	for _, c := range np.Containers {
		if ref, err := imagetag.ParseRef(c.Image); err == nil && ref.Digest != "" {
			return ref.Digest
		}
	}
	return "a tag without a digest"
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Gate returns what keeps static pods from starting. The caller holds its lock until the
// turn is written, so that no other track starts meanwhile.
func (n *Nodes) Gate(ctx context.Context, o *v1alpha1.ImageTrack) (g track.Gate, err error) {
	var us v1alpha1.ClusterUpdateList
	if err := n.Client.List(ctx, &us); err != nil {
		return g, fmt.Errorf("list ClusterUpdates: %w", err)
	}
	for i := range us.Items {
		if st := &us.Items[i].Status; st.StartedAt != nil && st.Phase != v1alpha1.PhaseDone {
			g.Update = us.Items[i].Name
		}
	}
	var ts v1alpha1.ImageTrackList
	if err := n.Live.List(ctx, &ts); err != nil {
		return g, fmt.Errorf("list ImageTracks: %w", err)
	}
	for i := range ts.Items {
		if t := &ts.Items[i]; t.UID != o.UID && t.Status.Turn != nil {
			g.Turn = fmt.Sprintf("ImageTrack %s on node %s", t.Name, t.Status.Turn.Node)
		}
	}
	g.ControlPlane, err = n.controlPlane(ctx)
	return g, err
}

// Runs reports whether the node of a turn still runs what it was permitted.
func (n *Nodes) Runs(ctx context.Context, o *v1alpha1.ImageTrack, t *v1alpha1.TrackTurn) (bool, error) {
	nu := &v1alpha1.NodeUpdate{}
	err := n.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: t.Node}, nu)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read NodeUpdate %s: %w", t.Node, err)
	}
	return err == nil && nu.Spec.Run != nil && nu.Spec.Run.Name == v1alpha1.TrackRun+o.Name && !runEnded(nu), nil
}

// controlPlane says what is wrong with it, "" if nothing is.
func (n *Nodes) controlPlane(ctx context.Context) (string, error) {
	var l corev1.NodeList
	if err := n.Client.List(ctx, &l); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	var nodes []*corev1.Node
	for i := range l.Items {
		if rolloutfacts.ControlPlane(&l.Items[i]) {
			nodes = append(nodes, &l.Items[i])
		}
	}
	pods, err := clusterfacts.ControlPlanePods(ctx, n.Live)
	if err != nil {
		return "", err
	}
	h := rolloutfacts.Health(pods, nodes)
	for _, name := range slices.Sorted(maps.Keys(h.Unhealthy)) {
		return "control-plane node " + name + " " + h.Unhealthy[name], nil
	}
	for _, name := range slices.Sorted(maps.Keys(h.Etcd)) {
		if !h.Etcd[name] {
			return "the etcd member of node " + name + " is not Ready", nil
		}
	}
	return "", nil
}

// Permit writes the run of a node, if its NodeUpdate has not changed since it was read.
func (n *Nodes) Permit(ctx context.Context, r Roll, w *workloads.Workload, step track.NodeStep) error {
	nu := &v1alpha1.NodeUpdate{}
	if err := n.Live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: step.Node}, nu); err != nil {
		return fmt.Errorf("read NodeUpdate %s: %w", step.Node, err)
	}
	have := nu.Spec.Run
	ours := have != nil && have.Name == r.name() && have.UID == r.uid(w)
	switch {
	case have != nil && !ours && !runEnded(nu), ours && have.Attempt >= step.Attempt, step.Undo && !ours:
		return nil // the next reconcile reads it again
	}
	run := r.permission(w, step)
	if step.Undo {
		run = have.DeepCopy()
		run.Attempt, run.Undo, run.Cause = step.Attempt, true, text.Truncate(step.UndoReason, longReason)
	}
	return n.write(ctx, nu, run)
}

// permission of one node.
func (r Roll) permission(w *workloads.Workload, step track.NodeStep) *v1alpha1.NodeRun {
	p := model.StaticPodImages{Namespace: w.Namespace, Pod: w.Name, To: map[string]string{}, Was: map[string]string{}, ReadySeconds: int(r.Object.Spec.ReadySeconds)}
	for _, np := range w.Nodes {
		if np.Node != step.Node {
			continue
		}
		for _, c := range np.Containers {
			p.To[c.Name], _ = track.RewriteLong(c.Image, r.Approved)
			p.Was[c.Name] = c.Image
		}
	}
	s := v1alpha1.UpdateStep{ID: "static-pod", Updater: model.UpdaterStaticPod, Verb: "write", To: orDefault(r.Approved.Long, r.Approved.Tag), Params: p.Params(),
		// The updater has its own limit, and restores the manifest. This deadline is for an
		// updater that does not reach its limit.
		DeadlineSeconds: 4*r.Object.Spec.ReadySeconds + 120}
	data, err := json.Marshal(s)
	if err != nil { // of strings and numbers
		panic(err)
	}
	return &v1alpha1.NodeRun{Name: r.name(), UID: r.uid(w), PlanDigest: model.DigestOf(data), Attempt: step.Attempt, Steps: []v1alpha1.UpdateStep{s}}
}

// write applies a node's run to the NodeUpdate that was read.
func (n *Nodes) write(ctx context.Context, nu *v1alpha1.NodeUpdate, run *v1alpha1.NodeRun) error {
	o, err := ssaOver(nu, run)
	if err != nil {
		return err
	}
	err = n.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(v1alpha1.FieldOwnerRun), client.ForceOwnership)
	if apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the run of NodeUpdate %s: %w", nu.Name, err)
	}
	return nil
}

// longReason is what the API takes of a reason, in bytes.
const longReason = 1000
