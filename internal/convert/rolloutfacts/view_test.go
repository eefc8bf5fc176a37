package rolloutfacts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Only steps of the permitted run count: those of an earlier run or plan are no progress, and
// an undo takes progress back.
func TestSteps(t *testing.T) {
	t.Parallel()
	permitted := func(undo bool) *v1alpha1.NodeRun {
		return &v1alpha1.NodeRun{UID: "u", PlanDigest: "p", Undo: undo, Steps: make([]v1alpha1.UpdateStep, 4)}
	}
	run := func(uid, plan string, done int32) *v1alpha1.NodeRunStatus {
		return &v1alpha1.NodeRunStatus{UID: uid, PlanDigest: plan, StepsDone: done}
	}
	for name, c := range map[string]struct {
		permitted   *v1alpha1.NodeRun
		run         *v1alpha1.NodeRunStatus
		done, total int
	}{
		"nothing permitted":                {nil, run("u", "p", 4), 0, 0},
		"permitted, not started":           {permitted(false), nil, 0, 4},
		"running":                          {permitted(false), run("u", "p", 3), 3, 4},
		"the last run was another update":  {permitted(false), run("before", "p", 3), 0, 4},
		"the last run had another plan":    {permitted(false), run("u", "before", 3), 0, 4},
		"an undo":                          {permitted(true), run("u", "p", 3), 0, 0},
		"a status that counts more than 4": {permitted(false), run("u", "p", 9), 4, 4},
	} {
		nu := &v1alpha1.NodeUpdate{}
		nu.Spec.Run, nu.Status.Run = c.permitted, c.run
		if done, total := steps(nu); done != c.done || total != c.total {
			t.Errorf("%s: %d of %d steps, want %d of %d", name, done, total, c.done, c.total)
		}
	}
}

// The release of a node of k0s is what its agent observed, in every view.
func TestReleaseOfANode(t *testing.T) {
	t.Parallel()
	n, nu := node("n1", nil), &v1alpha1.NodeUpdate{}
	n.Status.NodeInfo.KubeletVersion = "v1.36.3+k0s"
	nu.Name, nu.Status.Agent = "n1", &v1alpha1.AgentInfo{}
	for observed, want := range map[string]string{"": "v1.36.3+k0s", "v1.36.3+k0s.2": "v1.36.3+k0s.2"} {
		nu.Status.Observed = &v1alpha1.Observed{KubeletVersion: observed}
		receipt := ReceiptFacts(&v1alpha1.ClusterUpdate{}, nil, []corev1.Node{*n}, []v1alpha1.NodeUpdate{*nu}, nil)
		if Kubelet(n, nu) != want || FitNode(n, nu).Kubelet != want || statusNode(n, nu).Kubelet != want || receipt.Kubelets[0] != want {
			t.Errorf("observed %q: %s, %s, %s, %v", observed, Kubelet(n, nu), FitNode(n, nu).Kubelet, statusNode(n, nu).Kubelet, receipt.Kubelets)
		}
	}
	if Kubelet(n, nil) != "v1.36.3+k0s" {
		t.Error("without an agent")
	}
}
