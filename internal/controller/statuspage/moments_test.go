package statuspage

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

var update = flag.Bool("update", false, "write the golden pages")

var start = time.Date(2026, 11, 22, 13, 32, 0, 0, time.UTC)

// objects are a cluster in memory.
type objects struct {
	client.Client
	nodes   []corev1.Node
	nus     []v1alpha1.NodeUpdate
	bundles []v1alpha1.Bundle
	updates []v1alpha1.ClusterUpdate
	pools   []v1alpha1.UpdatePool
	tracks  []v1alpha1.ImageTrack
	sources []v1alpha1.MachineSource
	// ids are the uids of namespaces.
	ids map[string]string
	err error
}

func (o *objects) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	switch l := l.(type) {
	case *corev1.NodeList:
		l.Items = o.nodes
	case *v1alpha1.NodeUpdateList:
		l.Items = o.nus
	case *v1alpha1.BundleList:
		l.Items = o.bundles
	case *v1alpha1.ClusterUpdateList:
		l.Items = o.updates
	case *v1alpha1.UpdatePoolList:
		l.Items = o.pools
	case *v1alpha1.ImageTrackList:
		l.Items = o.tracks
	case *v1alpha1.MachineSourceList:
		l.Items = o.sources
	default:
		return fmt.Errorf("%T is not listed by the page", l)
	}
	return o.err
}

func (o *objects) Get(_ context.Context, k client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if ns, ok := to.(*corev1.Namespace); ok && o.ids[k.Name] != "" {
		ns.UID = types.UID(o.ids[k.Name])
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "contents"}, k.Name)
}

// plant is a cluster of a control-plane node and workers.
func plant(workers int) *objects {
	o := &objects{}
	for i := range workers + 1 {
		name, labels := fmt.Sprintf("worker-%d", i), map[string]string{"role": "worker"}
		if i == 0 {
			name, labels = "cp-1", map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}
		o.nodes = append(o.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.35.4"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
		o.nus = append(o.nus, v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.NodeUpdateStatus{Phase: "Idle", Agent: &v1alpha1.AgentInfo{Version: "0.9.0"}}})
	}
	o.pools = []v1alpha1.UpdatePool{
		{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpExists}}}}, Status: v1alpha1.UpdatePoolStatus{Nodes: 1}},
		{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}}},
			Status: v1alpha1.UpdatePoolStatus{Nodes: int32(workers), Window: "open until 2026-11-22 18:00 UTC"}},
	}
	o.sources = []v1alpha1.MachineSource{{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Status: v1alpha1.MachineSourceStatus{State: "Current", Referenced: &v1alpha1.BootImage{OS: "9.6"}}}}
	o.tracks = []v1alpha1.ImageTrack{{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: v1alpha1.ImageTrackSpec{Repository: "registry.example/shop/app"}, Status: v1alpha1.ImageTrackStatus{Preloaded: "2/2"}}}
	return o
}

const bundleDigest = "sha256:e7b0233c88a5e7b0233c88a5e7b0233c88a5e7b0233c88a5e7b0233c88a5aaaa"

// found adds a bundle on a medium of a worker.
func (o *objects) found(state string) {
	o.bundles = []v1alpha1.Bundle{{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes-1.36.3"}, Status: v1alpha1.BundleStatus{Digest: bundleDigest, Version: "1.36.3", Images: 9, SizeBytes: 756 << 20,
		SignedBy: []string{"release-team"}, Locations: []v1alpha1.BundleLocation{{Node: "worker-1", Device: "/dev/sdb"}}}}}
	o.nus[1].Status.Media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: bundleDigest, Name: "kubernetes", Version: "1.36.3", State: state, SignedBy: []string{"release-team"}}}
}

// approved approves the bundle, and has every node copy a part of it.
func (o *objects) approved(done int64, pinned int32) {
	o.found(v1alpha1.MediumCopying)
	if pinned == 9 {
		o.nus[1].Status.Media[0].State = v1alpha1.MediumCopied
	}
	o.bundles[0].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionTrue}}
	for i := range o.nus {
		o.nus[i].Status.Phase = "Copying"
		if pinned == 9 {
			o.nus[i].Status.Phase = "Ready"
		}
		o.nus[i].Status.Pins = &v1alpha1.PinStatus{ImagesTotal: 9, ImagesPinned: pinned, BytesTotal: 1000 << 20, BytesDone: done << 20, BytesFromMedia: done << 19, BytesFromPeers: done << 19}
	}
}

// updating adds an update in a phase.
func (o *objects) updating(phase string, done int32, blockers ...v1alpha1.Blocker) *v1alpha1.ClusterUpdateStatus {
	at, total := metav1.NewTime(start), int32(len(o.nodes))
	o.updates = []v1alpha1.ClusterUpdate{{ObjectMeta: metav1.ObjectMeta{Name: "to-1.36.3"}, Status: v1alpha1.ClusterUpdateStatus{Phase: phase, Version: "1.36.3", PlanDigest: "sha256:7466121cd246", Plan: "plan-1",
		NodesDone: done, NodesTotal: total, Progress: fmt.Sprintf("%d/%d", done, total), StartedAt: &at, Blockers: blockers, BlockerCount: int32(len(blockers)),
		Checks: []v1alpha1.GateCheck{{Name: "images", Result: v1alpha1.CheckPassed}}, Phases: []v1alpha1.PhaseTime{{Phase: phase, StartedAt: at}}}}}
	for i := range done {
		o.nodes[i].Status.NodeInfo.KubeletVersion = "v1.36.3"
	}
	return &o.updates[0].Status
}

// moments are five moments of one update.
func moments() map[string]*objects {
	out := map[string]*objects{}
	one := plant(3)
	one.found(v1alpha1.MediumFound)
	out["1-found"] = one // and waits for its approval
	two := plant(3)
	two.approved(410, 3)
	two.updating(v1alpha1.PhasePreparing, 0)
	out["2-copying"] = two
	three := plant(3)
	three.approved(1000, 9)
	since := metav1.NewTime(start.Add(7 * time.Minute))
	st := three.updating(v1alpha1.PhaseUpdating, 2, v1alpha1.Blocker{Reason: v1alpha1.ReasonDisruptionBudget, Since: &since,
		Message: "node worker-2: pod shop/app-6c67f4b857-h574m is protected by PodDisruptionBudget shop/app, which allows 0 disruptions: 2 of 2 pods are healthy, 2 are wanted",
		Fix:     "make more pods of ReplicaSet app-6c67f4b857 healthy or add replicas"})
	st.Current = []string{"worker-2"}
	st.Estimate = &v1alpha1.Estimate{Earliest: metav1.NewTime(start.Add(17 * time.Minute)), Latest: metav1.NewTime(start.Add(22 * time.Minute)), Samples: 2}
	three.nus[2].Status.Phase, three.nus[2].Status.Run = nodeUpdating, &v1alpha1.NodeRunStatus{Step: "drain"}
	three.nodes[2].Spec.Unschedulable = true
	three.pools[0].Status.Updated, three.pools[1].Status.Updated, three.pools[1].Status.Updating, three.pools[1].Status.Unavailable = 1, 1, 1, 1
	out["3-updating"] = three
	four := plant(3)
	four.approved(1000, 9)
	four.updating(v1alpha1.PhaseHalted, 2, v1alpha1.Blocker{Reason: "NodeFailed", Message: "node worker-2: kubelet did not start: exit status 1", Fix: "refit explain node/worker-2"})
	four.nus[2].Status.Phase, four.nus[2].Status.Message = nodeFailed, "kubelet did not start: exit status 1"
	out["4-halted"] = four
	five := plant(3)
	five.approved(1000, 9)
	st = five.updating(v1alpha1.PhaseDone, 4)
	end := metav1.NewTime(start.Add(20 * time.Minute))
	st.FinishedAt = &end
	out["5-done"] = five
	return out
}

var testPlan = groupPlan(model.Plan{Nodes: []model.NodePlan{
	{Node: "cp-1", Pool: "control-plane", Role: model.RoleControlPlane, From: "v1.35.4", To: "v1.36.3", Steps: []model.Step{{ID: "drain", Disruption: model.DisruptionDrain}, {ID: "control-plane"}}},
	{Node: "worker-1", Pool: "default", Role: model.RoleWorker, Wave: 1, From: "v1.35.4", To: "v1.36.3", Steps: []model.Step{{ID: "drain", Disruption: model.DisruptionDrain}, {ID: "kubelet"}}},
	{Node: "worker-2", Pool: "default", Role: model.RoleWorker, Wave: 1, From: "v1.35.4", To: "v1.36.3", Steps: []model.Step{{ID: "drain", Disruption: model.DisruptionDrain}, {ID: "kubelet"}}},
}})

// serverOf is a server over objects in memory that asks for no token.
func serverOf(o *objects) *Server {
	s := New(o, logr.Discard(), Options{Address: "127.0.0.1:0", WithoutToken: true, Now: func() time.Time { return start.Add(8 * time.Minute) }})
	s.plans = planCache{name: "plan-1", last: planSummary{Groups: testPlan}}
	return s
}

func stateOfObjects(t testing.TB, o *objects) *state {
	t.Helper()
	st, err := serverOf(o).snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs: go test -update writes it\n%s", path, got)
	}
}

func TestMoments(t *testing.T) {
	for name, o := range moments() {
		st := stateOfObjects(t, o)
		var b bytes.Buffer
		if err := renderPage(&b, st, filter{page: 1}); err != nil {
			t.Fatal(err)
		}
		compare(t, name+".html", b.Bytes())
		b.Reset()
		if err := renderTechnician(&b, st); err != nil {
			t.Fatal(err)
		}
		compare(t, name+"-technician.html", b.Bytes())
	}
}

// A technician may pull the medium when all nodes have all, and not before.
func TestMediumAdvice(t *testing.T) {
	refused := plant(1)
	refused.found(v1alpha1.MediumRefused)
	silent := plant(1)
	silent.approved(1000, 9)
	silent.nus[0].Status.Agent = nil
	unpinned := plant(1)
	unpinned.approved(1000, 8)
	copied := plant(1)
	copied.approved(1000, 9)
	for name, tc := range map[string]struct {
		o    *objects
		want string
	}{"no medium": {plant(1), ""}, "refused": {refused, explain.MediumPull}, "a node without an agent": {silent, explain.MediumStay}, "an image is missing": {unpinned, explain.MediumStay}, "all have all": {copied, explain.MediumPull}} {
		if got := stateOfObjects(t, tc.o).technician().Medium; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestPlanGroups(t *testing.T) {
	if len(testPlan) != 2 || testPlan[1].Nodes != 2 || testPlan[1].Steps != "drain > kubelet" || testPlan[0].Disruption != "drain" {
		t.Errorf("%+v", testPlan)
	}
	s := serverOf(moments()["3-updating"])
	s.plans = planCache{}
	st, err := s.snapshot(context.Background())
	if err != nil || !strings.Contains(st.page(filter{page: 1}).PlanMissing, "Run refit plan") {
		t.Errorf("a missing plan is not explained: %v %+v", err, st.plan)
	}
}
