package clusterupdates

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/controller/queue"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// rolloutSnapshot is the API state that one reconcile works on.
type rolloutSnapshot struct {
	// now measures durations; wall is for windows.
	now, wall time.Time
	// nodes are sorted by name; reports are their NodeUpdates in the same order, which
	// edition identifies. Other reconcilers share the lists and objects: do not change them.
	nodes   []*corev1.Node
	reports []*v1alpha1.NodeUpdate
	edition int
	// ownsLists: nodes and reports are copies.
	ownsLists bool
	// departed are the NodeUpdates of nodes that have left.
	departed []*v1alpha1.NodeUpdate
	moves    []v1alpha1.ClusterUpdate // oldest first
	pools    []v1alpha1.UpdatePool
	bundles  []v1alpha1.Bundle
	// poolsOf names the pools whose selector matches a node.
	poolsOf func(*corev1.Node) []string
	header  func(digest string) (*bundle.Header, error)
}

func (r *Reconciler) gather(ctx context.Context) (*rolloutSnapshot, error) {
	var moves v1alpha1.ClusterUpdateList
	var pools v1alpha1.UpdatePoolList
	var bundles v1alpha1.BundleList
	for _, l := range []client.ObjectList{&moves, &pools, &bundles} {
		if err := r.Client.List(ctx, l); err != nil {
			return nil, err
		}
	}
	wall := r.Now()
	now := r.clock.convert(wall)
	v := r.NodeIndex.Refresh()
	w := &rolloutSnapshot{now: now, wall: wall, nodes: v.Nodes, reports: v.Reports, departed: v.Departed, edition: v.Edition, moves: moves.Items, pools: pools.Items, bundles: bundles.Items}
	sort.Slice(w.pools, func(i, j int) bool { return w.pools[i].Name < w.pools[j].Name })
	sort.Slice(w.moves, func(i, j int) bool {
		a, b := &w.moves[i], &w.moves[j]
		if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
			return a.CreationTimestamp.Before(&b.CreationTimestamp)
		}
		return a.Name < b.Name
	})
	r.large = queue.ThrottleInterval(len(w.nodes)) > 0
	w.poolsOf = rolloutfacts.PoolMatcher(w.pools)
	w.header = func(d string) (*bundle.Header, error) {
		if d == "" {
			return noBundle, nil
		}
		return r.Headers.Get(d, func() []peerapi.Peer { return bundlefiles.AgentsWith(nodeindex.AllUpdates(w.reports, w.departed), d) })
	}
	return w, nil
}

// node returns a node and its NodeUpdate by name, nil if there is none.
func (w *rolloutSnapshot) node(name string) (*corev1.Node, *v1alpha1.NodeUpdate) {
	i, known := nodeindex.Place(w.nodes, name)
	if !known {
		return nil, nil
	}
	return w.nodes[i], w.reports[i]
}

// ownLists copies the lists of nodes before the first change: other reconcilers read those
// of the index.
func (w *rolloutSnapshot) ownLists() {
	if !w.ownsLists {
		w.nodes, w.reports, w.ownsLists = slices.Clone(w.nodes), slices.Clone(w.reports), true
	}
}

// noBundle is the header of an update without a bundle.
var noBundle = &bundle.Header{Metadata: &bundle.Metadata{}}

// poolsKey identifies the pools and their selectors; it changes with any of them.
func poolsKey(pools []v1alpha1.UpdatePool) string {
	var b strings.Builder
	for i := range pools {
		fmt.Fprintf(&b, "%s %d,", pools[i].UID, pools[i].Generation)
	}
	return b.String()
}

func ready(n *corev1.Node) bool {
	ok, _ := rolloutfacts.Ready(n)
	return ok
}

func controlPlane(n *corev1.Node) bool { return rolloutfacts.ControlPlane(n) }

func platform(n *corev1.Node) string {
	return n.Status.NodeInfo.OperatingSystem + "/" + n.Status.NodeInfo.Architecture
}

// planInput gathers the planner's input, except for the nodes.
func (r *Reconciler) planInput(ctx context.Context, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate, headers []*bundle.Header) (updateplan.Input, error) {
	h := headers[0]
	in := updateplan.Input{AllowDowngrade: u.Spec.AllowDowngrade, LastDone: w.lastDone(), Only: u.Spec.Nodes,
		Target: targetOf(h), Then: hopsOf(headers), WorkersAtEnd: u.Spec.Workers == v1alpha1.WorkersLastHop}
	if err := r.readKubeadmConfig(ctx, &in); err != nil {
		return in, err
	}
	in.Payloads, in.OtherPayloads = payloads(h), w.approvedFiles()
	for i := range w.pools {
		in.Pools = append(in.Pools, updateplan.Pool{Name: w.pools[i].Name, Order: w.pools[i].Spec.Order, StepDeadlineSeconds: w.pools[i].Spec.StepDeadlineSeconds,
			UndoDeadlineSeconds: undoDeadline(&w.pools[i]),
			Kubeadm:             w.pools[i].Spec.ControlPlane == v1alpha1.ControlPlaneKubeadm, KubeadmPatches: w.pools[i].Spec.KubeadmPatches})
	}
	return in, nil
}

// undoDeadline is the pool's own, or the default for a pool from before there was one.
func undoDeadline(p *v1alpha1.UpdatePool) int32 {
	if s := p.Spec.UndoDeadlineSeconds; s != nil {
		return *s
	}
	return model.DefaultUndoDeadline
}

func payloads(h *bundle.Header) []updateplan.Payload {
	var out []updateplan.Payload
	for _, p := range h.Metadata.Payloads {
		out = append(out, updateplan.Payload{Name: p.Name, Platform: p.Platform, Digest: p.Digest, Size: p.Size})
	}
	return out
}

// approvedFiles are the files in all approved bundles: nodes store them.
func (w *rolloutSnapshot) approvedFiles() []updateplan.Payload {
	var out []updateplan.Payload
	for i := range w.bundles {
		b := &w.bundles[i]
		if b.Spec.Digest == "" && b.Status.Digest == "" || !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionApproved) {
			continue
		}
		h, err := w.header(cmp.Or(b.Spec.Digest, b.Status.Digest))
		if err != nil {
			continue // its header is not known yet
		}
		for _, p := range payloads(h) {
			if strings.HasPrefix(p.Name, bundle.PrefixFile) {
				out = append(out, p)
			}
		}
	}
	return out
}

// planNodes returns the planner's view of all nodes, with the offers of external updaters. An
// unchanged node is the same pointer as before, which the planner's cache relies on.
func (r *Reconciler) planNodes(ctx context.Context, w *rolloutSnapshot, in *updateplan.Input) ([]*updateplan.Node, error) {
	r.planNode.Under(poolsKey(w.pools), w.edition, w.nodes)
	configs := nodeconfigs.Reader{Client: r.Client, Live: r.Live}
	out := make([]*updateplan.Node, 0, len(w.nodes))
	for i, n := range w.nodes {
		nu := w.reports[i]
		pn, same := r.planNode.At(i, n, nu)
		if !same {
			now := w.planNode(n, nu)
			if err := configs.AddWanted(ctx, nu, &now); err != nil {
				r.planNode.Forget(i)
				return nil, err
			}
			*pn = plans.Reuse(*pn, now)
		}
		out = append(out, *pn)
	}
	return r.External.Offers(ctx, in, out, r.offered)
}

// planNode returns the planner's view of a node.
func (w *rolloutSnapshot) planNode(n *corev1.Node, nu *v1alpha1.NodeUpdate) updateplan.Node {
	var o v1alpha1.Observed
	if nu != nil && nu.Status.Observed != nil {
		o = *nu.Status.Observed
	}
	return updateplan.Node{Name: n.Name, ControlPlane: controlPlane(n), Pools: w.poolsOf(n),
		Kubelet: rolloutfacts.Kubelet(n, nu), ControlPlaneVersion: o.ControlPlane, Platform: platform(n), Current: o.Fields}
}

// lastDone returns the target of the last completed update of the whole cluster, nil if there
// is none.
func (w *rolloutSnapshot) lastDone() *model.Target {
	var last *v1alpha1.ClusterUpdate
	for i := range w.moves {
		u := &w.moves[i]
		if u.Spec.Bundle != "" && len(u.Spec.Nodes) == 0 && u.Status.Phase == v1alpha1.PhaseDone && u.Status.FinishedAt != nil && (last == nil || u.Status.FinishedAt.After(last.Status.FinishedAt.Time)) {
			last = u
		}
	}
	if last == nil {
		return nil
	}
	t := &model.Target{Bundle: last.Spec.Bundle, Version: last.Status.Version}
	for i := range w.bundles {
		if w.bundles[i].Status.Digest == last.Spec.Bundle {
			t.Name, t.Version = w.bundles[i].Status.Name, w.bundles[i].Status.Version
		}
	}
	return t
}

// readKubeadmConfig reads the planner's facts from kubeadm's ConfigMap. Without it
// KubeadmVersion stays empty: kubeadm did not create the cluster.
func (r *Reconciler) readKubeadmConfig(ctx context.Context, in *updateplan.Input) error {
	var cm corev1.ConfigMap
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, &cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read kube-system/kubeadm-config: %w", err)
	}
	var conf struct {
		KubernetesVersion string `json:"kubernetesVersion"`
		Etcd              struct {
			External *struct{} `json:"external"`
		} `json:"etcd"`
		FeatureGates map[string]bool `json:"featureGates"`
	}
	if err := yaml.Unmarshal([]byte(cm.Data["ClusterConfiguration"]), &conf); err != nil {
		return fmt.Errorf("kube-system/kubeadm-config: ClusterConfiguration: %w", err)
	}
	in.KubeadmVersion, in.ExternalEtcd, in.Rootless = conf.KubernetesVersion, conf.Etcd.External != nil, conf.FeatureGates["RootlessControlPlane"]
	return nil
}
