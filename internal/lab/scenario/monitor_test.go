package scenario

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/supervisor"
)

func TestAPIMonitorCountsFromTheLastGoodLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &APIMonitor{}
		var down atomic.Bool
		go m.run(ctx, func() bool { return !down.Load() })
		time.Sleep(time.Second)
		down.Store(true)
		time.Sleep(3 * time.Second)
		down.Store(false)
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		if got := m.Unavailable(); got < 3*time.Second || got > 3*time.Second+2*pollEvery {
			t.Errorf("unavailable %s, want 3s to 3.2s", got)
		}
	})
}

func TestReadyPodsLeavesOutWhatIsOnItsWayOut(t *testing.T) {
	t.Parallel()
	ready := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	now := metav1.Now()
	pods := []corev1.Pod{{Status: ready}, {Status: ready, ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, {}}
	if got := readyPods(pods); got != 1 {
		t.Errorf("ready %d, want 1", got)
	}
}

func TestCheckFindsEveryBrokenPromise(t *testing.T) {
	t.Parallel()
	s := &Scenario{Options: Options{Nodes: 2, From: "v1", To: "v2"}, Lab: &lab.Lab{Config: &supervisor.Config{Nodes: []string{"n1", "n2"}, ControlPlanes: []string{"n1"}}}}
	b := Bundle{Images: map[string]string{"a": "x", "b": "y"}, Groups: map[string]string{"a": "control-plane", "b": "node"}}
	good := Result{Nodes: []Node{{Name: "n1", Before: "v1", After: "v2", Images: 2, Pinned: 2}, {Name: "n2", Before: "v1", After: "v2", Images: 1, Pinned: 1}}, Workload: Workload{Budget: 2, MinReady: 2, Samples: 9}}
	s.evaluate(&good, b)
	if !good.OK {
		t.Fatalf("a good result is refused: %v", good.Problems)
	}
	for name, spoil := range map[string]func(*Result){
		"a node that did not move":        func(r *Result) { r.Nodes[0].After = "v1" },
		"an image that is not pinned":     func(r *Result) { r.Nodes[0].Pinned = 1 },
		"an image of another role":        func(r *Result) { r.Nodes[1].NotNeeded = 1 },
		"a workload below its budget":     func(r *Result) { r.Workload.MinReady = 1 },
		"a workload that was not sampled": func(r *Result) { r.Workload.Samples = 0 },
		"a node that is missing":          func(r *Result) { r.Nodes = r.Nodes[:1] },
		"a problem that was found early":  func(r *Result) { r.Problems = []string{"x"} },
	} {
		r := Result{Nodes: append([]Node(nil), good.Nodes...), Workload: good.Workload}
		spoil(&r)
		if s.evaluate(&r, b); r.OK {
			t.Errorf("%s is called ok", name)
		}
	}
}

func TestImageMonitorCountsEachContainerOnce(t *testing.T) {
	t.Parallel()
	waiting := func(uid, reason string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "n2"},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Image: "i:2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}}
	}
	m, now := &ImageMonitor{waits: map[string]*ImageWait{}}, time.Now()
	m.sample([]corev1.Pod{waiting("a", "ErrImagePull"), waiting("b", "ContainerCreating")}, now)
	m.sample([]corev1.Pod{waiting("a", "ImagePullBackOff"), {}}, now.Add(9*time.Second))
	want := []ImageWait{{Node: "n2", Pod: "kube-system/a", Image: "i:2", Reasons: []string{"ErrImagePull", "ImagePullBackOff"}, Seconds: 9}}
	if diff := cmp.Diff(want, m.Waits(), cmpopts.IgnoreUnexported(ImageWait{})); diff != "" {
		t.Error("(-want +got):", diff)
	}
}
