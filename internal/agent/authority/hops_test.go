package authority

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// A node runs the steps of a hop for that hop alone: its UID, its bundle and its part of the plan
// that was approved whole.
func TestCheckRunOfAHop(t *testing.T) {
	t.Parallel()
	hop := func(bundle string) model.Plan {
		return model.Plan{Version: model.PlanVersion, Target: model.Target{Bundle: bundle}, Nodes: []model.NodePlan{{Node: "n1",
			Steps: []model.Step{{ID: "cordon", Updater: "cordon", By: model.ByController}, {ID: "kubelet", Updater: "kubelet", Verb: "swap", By: model.ByAgent, To: bundle}}}}}
	}
	plan := hop("first")
	plan.Then = []model.Plan{hop("last")}
	text, _ := plan.Store(model.PartLimit, func(string) string { return "" })
	name := v1alpha1.ContentName(v1alpha1.ContentPlan, text)
	u := v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "up", UID: "uid"}, Status: v1alpha1.ClusterUpdateStatus{Plan: name, PlanDigest: plan.Digest()},
		Spec: v1alpha1.ClusterUpdateSpec{Bundle: "last", Hops: []string{"first"}, Start: v1alpha1.StartImmediate, PlanDigest: plan.Digest()}}
	run := func(uid, bundle, to, digest string) *v1alpha1.NodeRun {
		return &v1alpha1.NodeRun{Name: "up", UID: uid, Bundle: bundle, PlanDigest: digest, Attempt: 1, Steps: []v1alpha1.UpdateStep{{ID: "kubelet", Updater: "kubelet", Verb: "swap", To: to}}}
	}
	for name, tc := range map[string]struct {
		run *v1alpha1.NodeRun
		why string
	}{
		"the first hop":                     {run("uid", "first", "first", plan.Digest()), ""},
		"the second hop":                    {run("uid-2", "last", "last", plan.Digest()), ""},
		"the second hop as the first":       {run("uid", "last", "last", plan.Digest()), `names the bundle "first"`},
		"the first hop as the second":       {run("uid-2", "first", "first", plan.Digest()), `names the bundle "last"`},
		"a hop that the update has not":     {run("uid-3", "last", "last", plan.Digest()), "has the UID uid"},
		"another number for the first":      {run("uid-1", "first", "first", plan.Digest()), "has the UID uid"},
		"steps of the first in the second":  {run("uid-2", "last", "first", plan.Digest()), "not those of the plan"},
		"a plan of the second hop alone":    {run("uid-2", "last", "last", plan.Then[0].Digest()), "was approved"},
		"a bundle that the update has not":  {run("uid-2", "other", "last", plan.Digest()), `names the bundle "last"`},
		"the whole update under a new name": {run("uid-2-2", "last", "last", plan.Digest()), "has the UID uid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &people{updates: []v1alpha1.ClusterUpdate{u}, contents: map[string]*v1alpha1.Content{u.Status.Plan: {Type: v1alpha1.ContentPlan, Data: text}}}
			v := CheckRun(t.Context(), p, nil, "n1", tc.run)
			switch {
			case tc.why == "" && v != nil:
				t.Errorf("refused: %+v", v)
			case tc.why != "" && (v == nil || v.Reason != v1alpha1.ReasonRunNotApproved || !strings.Contains(v.Message, tc.why)):
				t.Errorf("want a refusal with %q: %+v", tc.why, v)
			}
		})
	}
}
