package clusterupdates

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"pgregory.net/rapid"
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

// shelf is a client of a kubeadm cluster that has Contents alone, and takes every
// status.
type shelf struct {
	client.Client
	contents map[string]*v1alpha1.Content
	hold     *v1alpha1.Content
}

func (s *shelf) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if c, ok := o.(*v1alpha1.Content); ok && s.contents[k.Name] != nil {
		*c = *s.contents[k.Name]
		return nil
	}
	if c, ok := o.(*corev1.ConfigMap); ok && k.Name == "kubeadm-config" {
		c.Data = map[string]string{"ClusterConfiguration": "kubernetesVersion: v1.35.4"}
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, k.Name)
}

func (s *shelf) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (s *shelf) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	s.contents[o.GetName()] = o.(*v1alpha1.Content)
	return nil
}

func (s *shelf) Status() client.SubResourceWriter { return statuses{} }

type statuses struct{ client.SubResourceWriter }

func (statuses) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return nil
}

// preparing is a large cluster of which half of the nodes hold the bundle.
func preparing(t testing.TB, nodes int) (*Reconciler, *rolloutSnapshot, *v1alpha1.ClusterUpdate) {
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	digest := "sha256:1"
	h := &bundle.Header{Digest: digest, Metadata: &bundle.Metadata{Name: "b", Version: "1.36.3", KubernetesVersion: "v1.36.3"}}
	for i := range 40 {
		h.Metadata.Images = append(h.Metadata.Images, bundle.Image{Name: fmt.Sprintf("registry.test/app-%02d:1", i), Digest: fmt.Sprintf("sha256:%d", i)})
	}
	for _, p := range []string{bundle.PayloadKubeadm, bundle.PayloadKubectl, bundle.PayloadKubelet} {
		h.Metadata.Payloads = append(h.Metadata.Payloads, bundle.Payload{Name: p, Platform: "linux/amd64", Digest: "sha256:" + p})
	}
	list := pin.FromBundle(h, pin.Needs{Platform: "linux/amd64", ControlPlane: true})
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	hold := v1alpha1.ContentName(v1alpha1.ContentPins, string(data))
	s := &shelf{contents: map[string]*v1alpha1.Content{hold: {ObjectMeta: metav1.ObjectMeta{Name: hold}, Type: v1alpha1.ContentPins, Data: string(data)}}}
	s.hold = s.contents[hold]
	r := &Reconciler{Client: s, Live: s, Plans: &plans.Store{Client: s, Live: s}, Gate: &gatefacts.Gatherer{Live: s}, External: &plans.ExternalUpdaters{Client: s, Now: func() time.Time { return now }}, Events: &events.FakeRecorder{}, Now: func() time.Time { return now }}
	budget := intstr.FromInt32(int32(max(1, nodes/20)))
	w := &rolloutSnapshot{now: now, edition: 1,
		pools: []v1alpha1.UpdatePool{{ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "p"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &budget, NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"w": "y"}}}}},
		bundles: []v1alpha1.Bundle{{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.BundleSpec{Digest: digest},
			Status: v1alpha1.BundleStatus{Digest: digest, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionTrue}}}}}}
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"w": "y", "kubernetes.io/hostname": name}, Annotations: map[string]string{"a": "b"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.35.4", OperatingSystem: "linux", Architecture: "amd64"}}}
		nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1alpha1.NodeUpdateSpec{Pins: hold},
			Status: v1alpha1.NodeUpdateStatus{Phase: "Ready", Agent: &v1alpha1.AgentInfo{Heartbeat: metaNow(now.Add(-time.Minute)),
				Updaters: []string{"control-plane", "kubeadm", "kubelet", "settle", "programs"}, Formats: model.ContentFormats()},
				Observed:    &v1alpha1.Observed{KubeletVersion: "v1.35.4", Fields: map[string]string{"kubernetes/kubelet": "v1.35.4", "a": "b"}},
				Pins:        &v1alpha1.PinStatus{Content: hold, ImagesTotal: 40, ImagesReady: 40, ImagesPinned: 40, PayloadsTotal: 3, PayloadsReady: 3},
				FileSystems: []v1alpha1.FileSystem{{Name: "state", ID: "a", FreeBytes: 1000}, {Name: "images", ID: "a", FreeBytes: 1000}}}}
		if i%2 == 1 {
			nu.Status.Pins.ImagesReady, nu.Status.Pins.ImagesPinned = 7, 7
		}
		w.nodes, w.reports = append(w.nodes, n), append(w.reports, nu)
	}
	w.poolsOf = rolloutfacts.PoolMatcher(w.pools)
	w.header = func(string) (*bundle.Header, error) { return h, nil }
	return r, w, &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u", UID: "u"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest}}
}

// change shows a node's report anew, as a cache does.
func (w *rolloutSnapshot) change(i int, do func(*v1alpha1.NodeUpdate)) {
	nu := w.reports[i].DeepCopy()
	do(nu)
	w.reports[i] = nu
}

// BenchmarkPrepare30000 reconciles an update of 30,000 nodes that is being prepared: half
// of them still load images, and a few have reported since the last reconcile.
func BenchmarkPrepare30000(b *testing.B) {
	r, w, u := preparing(b, 30000)
	i := 0
	look := func() {
		if started, err := r.prepare(context.Background(), w, u, ""); err != nil || started || u.Status.BlockerCount != 15000 || u.Status.NodesTotal != 30000 {
			b.Fatalf("started %v, %v, %d blockers, %d nodes: %+v", started, err, u.Status.BlockerCount, u.Status.NodesTotal, u.Status.Blockers[0])
		}
		if err := r.releaseOrphans(context.Background(), w); err != nil {
			b.Fatal(err)
		}
	}
	look()
	b.ReportAllocs()
	for b.Loop() {
		for range 60 {
			i = (i + 7919) % len(w.nodes)
			w.change(i, func(nu *v1alpha1.NodeUpdate) { nu.Status.Agent.Heartbeat = metaNow(w.now) })
		}
		w.now = w.now.Add(200 * time.Millisecond)
		look()
	}
}

// decided is what a look decides of an update that is being prepared.
func decided(t interface{ Fatal(...any) }, r *Reconciler, w *rolloutSnapshot, u *v1alpha1.ClusterUpdate) (gate.Result, string) {
	ctx := context.Background()
	h, _ := w.header("")
	headers := []*bundle.Header{h}
	in, err := r.planInput(ctx, w, u, headers)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := r.planNodes(ctx, w, &in)
	if err != nil {
		t.Fatal(err)
	}
	made := r.maker.Make(string(u.UID), in, nodes)
	st := r.newStatus(w, u)
	st.out.PlanDigest = made.Digest
	gin, err := r.gateInput(ctx, w, st, headers, made, "", r.newRolloutInput(w, made.Plan).Pools)
	if err != nil {
		t.Fatal(err)
	}
	gin.Pending = nil // the pods are read in the background, at any time
	return r.gateIndexFor(u.UID).decide(gin), made.Digest
}

// What the gate says from what is remembered of the nodes is what it says when
// all nodes are read again, after every change and any time.
func TestTheGateFromMemoryIsTheGate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r, w, u := preparing(t, 6)
		forgets := &Reconciler{Client: r.Client, Live: r.Live, Gate: r.Gate, External: r.External} // has heard the same agents
		decided(rt, r, w, u)
		decided(rt, forgets, w, u)
		for range rapid.IntRange(1, 8).Draw(rt, "looks") {
			for range rapid.IntRange(0, 3).Draw(rt, "changes") {
				disturb(rt, r.Client.(*shelf), w)
			}
			got, plan := decided(rt, r, w, u)
			r.dropUnusedGates()
			forgets.gatesBefore, forgets.gates, forgets.planNode, forgets.poolIndex = nil, nil, nodeindex.Row[*updateplan.Node]{}, poolIndex{}
			want, wantPlan := decided(rt, forgets, w, u)
			if diff := cmp.Diff(want, got); diff != "" || plan != wantPlan {
				rt.Fatalf("from scratch (-) and from memory (+): %s\nplans %s, %s", diff, wantPlan, plan)
			}
		}
	})
}

// disturb changes something in a snapshot that is being prepared.
func disturb(t *rapid.T, s *shelf, w *rolloutSnapshot) {
	i := rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")
	node := func(do func(*corev1.Node)) {
		n := w.nodes[i].DeepCopy()
		do(n)
		w.nodes[i] = n
	}
	report := func(do func(*v1alpha1.NodeUpdate)) {
		if w.reports[i] != nil {
			w.change(i, do)
		}
	}
	minutes := func(what string, from, to int) time.Duration {
		return time.Duration(rapid.IntRange(from, to).Draw(t, what)) * time.Minute
	}
	switch rapid.IntRange(0, 10).Draw(t, "what") {
	case 0:
		w.now = w.now.Add(minutes("passes", 0, 90))
	case 1:
		report(func(nu *v1alpha1.NodeUpdate) { nu.Status.Agent.Heartbeat = metaNow(w.now.Add(minutes("beat", -5, 5))) })
	case 2:
		node(func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
	case 3:
		node(func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] })
	case 4:
		node(func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
	case 5:
		report(func(nu *v1alpha1.NodeUpdate) {
			nu.Status.Pins.ImagesPinned = rapid.Int32Range(38, 40).Draw(t, "pinned")
		})
	case 6: // the hold lists come and go
		for name, c := range s.contents {
			if c.Type == v1alpha1.ContentPins {
				delete(s.contents, name)
				return
			}
		}
		s.contents[s.hold.Name] = s.hold
	case 7:
		report(func(nu *v1alpha1.NodeUpdate) {
			nu.Status.Health = &v1alpha1.NodeHealth{Certificates: []v1alpha1.CertificateExpiry{{Name: "kubelet.crt", NotAfter: metav1.NewTime(w.now.Add(minutes("ends", -10, 200)))}}}
		})
	case 8: // a node leaves
		if len(w.nodes) > 2 {
			w.nodes, w.reports, w.edition = slices.Delete(slices.Clone(w.nodes), i, i+1), slices.Delete(slices.Clone(w.reports), i, i+1), w.edition+1
		}
	case 9:
		node(func(n *corev1.Node) { n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""} })
	case 10: // its runtime ignores pins
		node(func(n *corev1.Node) { n.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.2" })
	}
}

// A look does not sort tens of thousands of verdicts, and takes the same ones first.
func TestTheFirstVerdictsAreTheFirstOfAllSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var vs []model.Blocker
		for i := range rapid.IntRange(0, 30).Draw(t, "verdicts") {
			vs = append(vs, model.Blocker{Message: fmt.Sprint(i), Waiting: rapid.Bool().Draw(t, "waiting"), Reason: rapid.SampledFrom([]string{"A", v1alpha1.ReasonUpdating}).Draw(t, "reason")})
		}
		n := rapid.IntRange(0, 20).Draw(t, "n")
		want := slices.Clone(vs)
		slices.SortStableFunc(want, func(a, b model.Blocker) int { return rank(a) - rank(b) })
		if diff := cmp.Diff(want[:min(n, len(want))], firstByRank(vs, n), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
