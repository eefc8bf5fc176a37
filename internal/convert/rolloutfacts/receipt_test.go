package rolloutfacts

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

var updateGolden = flag.Bool("update", false, "write the golden receipts anew")

const (
	receiptBundle = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	receiptPlan   = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

// site is a cluster of four nodes with an update.
type site struct {
	update *v1alpha1.ClusterUpdate
	plan   *model.Plan
	nodes  []corev1.Node
	nus    []v1alpha1.NodeUpdate
}

// newSite has an update in a phase; kubelets and runs are those of the nodes c1, w1, w2 and w3.
func newSite(phase string, done, failed int32, kubelets []string, runs []v1alpha1.NodeRunStatus) *site {
	at := metav1.NewTime(start)
	s := &site{update: &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-1.36.3", UID: types.UID("update-uid"), CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: receiptBundle}},
		plan: &model.Plan{Target: model.Target{Bundle: receiptBundle, Name: "demo", Version: "1.36.3", Kubernetes: "v1.36.3"}}}
	s.update.Status = v1alpha1.ClusterUpdateStatus{Phase: phase, Version: "1.36.3", PlanDigest: receiptPlan, NodesDone: done, NodesTotal: 4, NodesFailed: failed, StartedAt: &at,
		APIUnavailable: &v1alpha1.Unavailability{Seconds: 4, LongestSeconds: 3}}
	for i, name := range []string{"c1", "w1", "w2", "w3"} {
		n := node(name, nil)
		n.Status.NodeInfo.KubeletVersion = kubelets[i]
		s.nodes = append(s.nodes, *n)
		s.plan.Nodes = append(s.plan.Nodes, model.NodePlan{Node: name, From: "v1.35.4", To: "v1.36.3"})
		nu := v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if r := runs[i]; r.State != "" {
			nu.Spec.Run = &v1alpha1.NodeRun{UID: "update-uid", PlanDigest: receiptPlan, Attempt: 1}
			r.UID, r.PlanDigest, r.Attempt = "update-uid", receiptPlan, 1
			nu.Status.Run = &r
		}
		s.nus = append(s.nus, nu)
	}
	return s
}

func (s *site) facts() explain.ReceiptFacts {
	f := ReceiptFacts(s.update, s.plan, s.nodes, s.nus, nil)
	f.Now, f.Cluster, f.Site, f.Contact, f.Refit = start.Add(2*time.Hour), "0f3c6a1e-7a54-4b5e-9d3e-2f6a1d0c9b11", "north", []string{"Ann, +1 555 0100"}, "v0.1.0"
	return f
}

// The receipts of an update that is done, halted or running, and of one that waits for a person.
func TestGoldenReceipts(t *testing.T) {
	t.Parallel()
	const older, newer = "v1.35.4", "v1.36.3"
	ok, none := v1alpha1.NodeRunStatus{State: v1alpha1.RunSucceeded}, v1alpha1.NodeRunStatus{}
	failed := v1alpha1.NodeRunStatus{State: v1alpha1.RunFailed, Step: "kubelet", Reason: v1alpha1.ReasonInsufficientSpace}
	done := newSite(v1alpha1.PhaseDone, 4, 0, []string{newer, newer, newer, newer}, []v1alpha1.NodeRunStatus{ok, ok, ok, ok})
	end := metav1.NewTime(start.Add(23 * time.Minute))
	done.update.Status.FinishedAt = &end
	halted := newSite(v1alpha1.PhaseHalted, 2, 2, []string{newer, older, older, newer}, []v1alpha1.NodeRunStatus{ok, failed, none, ok})
	halted.update.Status.Blockers = []v1alpha1.Blocker{
		{Reason: v1alpha1.ReasonInsufficientSpace, Object: "Node/w1", Message: "node w1: step kubelet failed: write /usr/bin/kubelet: no space left on device, password=hunter2"},
		{Reason: v1alpha1.ReasonDrainBlocked, Object: "Node/w2", Message: "node w2: the drain took longer than the 10m that pool default allows"},
		{Reason: v1alpha1.ReasonNodeNotReady, Object: "Node/w1", Message: "node w1 is not Ready"}}
	running := newSite(v1alpha1.PhaseUpdating, 1, 0, []string{newer, older, older, older}, []v1alpha1.NodeRunStatus{ok, {State: v1alpha1.RunRunning, Step: "drain"}, none, none})
	ready := newSite(v1alpha1.PhaseReady, 0, 0, []string{older, older, older, older}, []v1alpha1.NodeRunStatus{none, none, none, none})
	ready.update.Status.StartedAt, ready.update.Status.APIUnavailable, ready.plan = nil, nil, nil
	for name, s := range map[string]*site{"done": done, "halted": halted, "running": running, "ready": ready} {
		file, err := explain.NewReceiptFile(explain.NewReceipt(s.facts()), nil)
		if err != nil {
			t.Fatal(err)
		}
		for extension, got := range map[string]string{".json": string(file.JSON()), ".txt": file.Text()} {
			path := filepath.Join("testdata", "receipt-"+name+extension)
			if *updateGolden {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
}

// A node that is tried again, that succeeded later or that failed in another update has not failed
// in this one.
func TestFailedNodesOfAReceipt(t *testing.T) {
	t.Parallel()
	failed := v1alpha1.NodeRunStatus{State: v1alpha1.RunFailed, Step: "kubelet"}
	none := v1alpha1.NodeRunStatus{}
	s := newSite(v1alpha1.PhaseUpdating, 0, 1, []string{"a", "a", "a", "a"}, []v1alpha1.NodeRunStatus{failed, failed, failed, none})
	s.nus[0].Spec.Run.Attempt = 2 // the agent has not started it yet
	s.update.Status.Blockers = []v1alpha1.Blocker{{Reason: v1alpha1.ReasonRetrying, Object: "Node/w1"}, {Reason: v1alpha1.ReasonNodeNotReady, Object: "Node/w3"}}
	want := []explain.FailedNode{{Node: "w2", Reason: v1alpha1.ReasonStepFailed, Step: "kubelet"}}
	if diff := cmp.Diff(want, s.facts().Failed); diff != "" {
		t.Error(diff)
	}
	for what, change := range map[string]func(*v1alpha1.ClusterUpdate){
		"the update is done": func(u *v1alpha1.ClusterUpdate) { u.Status.Phase = v1alpha1.PhaseDone },
		"no node has failed": func(u *v1alpha1.ClusterUpdate) { u.Status.NodesFailed = 0 },
		"another update":     func(u *v1alpha1.ClusterUpdate) { u.UID = "another" },
		"another plan":       func(u *v1alpha1.ClusterUpdate) { u.Status.PlanDigest = "sha256:other" },
	} {
		u := s.update.DeepCopy()
		if change(u); len(failedNodes(u, s.nus)) != 0 {
			t.Errorf("%s: %v", what, failedNodes(u, s.nus))
		}
	}
}

// Without a name the receipt is about the update that moved nodes last, and about a running one
// only if there is no other.
func TestChooseReceiptUpdate(t *testing.T) {
	t.Parallel()
	upd := func(name, phase string, created, started, finished int) v1alpha1.ClusterUpdate {
		at := func(n int) *metav1.Time {
			if n == 0 {
				return nil
			}
			v := metav1.NewTime(start.Add(time.Duration(n) * time.Hour))
			return &v
		}
		u := v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: *at(created)}}
		u.Status.Phase, u.Status.StartedAt, u.Status.FinishedAt = phase, at(started), at(finished)
		return u
	}
	for name, tc := range map[string]struct {
		all  []v1alpha1.ClusterUpdate
		want string
	}{
		"none":                                  {nil, ""},
		"the newest that is done":               {[]v1alpha1.ClusterUpdate{upd("a", "Done", 1, 5, 6), upd("b", "Done", 2, 3, 4)}, "a"},
		"a halted one after one that is done":   {[]v1alpha1.ClusterUpdate{upd("a", "Done", 1, 2, 3), upd("b", "Halted", 4, 5, 0)}, "b"},
		"one that is done before one that runs": {[]v1alpha1.ClusterUpdate{upd("a", "Updating", 8, 9, 0), upd("b", "Done", 1, 2, 3)}, "b"},
		"one that runs if there is no other":    {[]v1alpha1.ClusterUpdate{upd("a", "Ready", 9, 0, 0), upd("b", "Updating", 1, 2, 0)}, "b"},
	} {
		got := ""
		if u := ChooseReceiptUpdate(tc.all); u != nil {
			got = u.Name
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
