package config_test

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// The API server itself refuses to let a node move before the gate was
// open, and to approve another plan than the one that is there.
func testGateBeforeRun(t *testing.T, cfg *rest.Config, admin client.Client) {
	ctx := context.Background()
	waitForPolicies(t, admin)
	controller := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	u := &v1alpha1.ClusterUpdate{ObjectMeta: meta("gated"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA}}
	mustCreate(t, admin, u)
	nu := &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta("gated-1")}
	mustCreate(t, controller, nu)

	run := func(plan string) error {
		changed := nu.DeepCopy()
		changed.Spec.Run = &v1alpha1.NodeRun{Name: u.Name, UID: string(u.UID), Bundle: digestA, PlanDigest: plan, Attempt: 1, Steps: []v1alpha1.UpdateStep{}}
		err := controller.Patch(ctx, changed, client.MergeFrom(nu))
		if err == nil {
			nu = changed
		}
		return err
	}
	refused(t, run("sha256:p"), "the gate of ClusterUpdate gated is not open for this run: node gated-1")

	u.Status.PlanDigest = "sha256:p"
	refused(t, admin.Status().Update(ctx, u), "written by refit's controller alone")
	if err := controller.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	refused(t, run("sha256:p"), "is not open for this run")

	// Another plan than the one that is there is not approved.
	approve := func(plan string) error {
		patch := client.MergeFrom(u.DeepCopy())
		u.Spec.Start, u.Spec.PlanDigest = v1alpha1.StartImmediate, plan
		return admin.Patch(ctx, u, patch)
	}
	refused(t, approve("sha256:q"), "the plan of this update is sha256:p, not sha256:q: read it with refit plan")
	reread(t, admin, u)
	if err := approve("sha256:p"); err != nil {
		t.Fatalf("the plan that is there can be approved: %v", err)
	}

	// The plan may change later: what else a person says is still heard, and the
	// gate (PlanChanged) keeps it from starting.
	u.Status.PlanDigest = "sha256:r"
	if err := controller.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	u.Spec.Paused = true
	if err := admin.Update(ctx, u); err != nil {
		t.Errorf("an update can be paused with any plan: %v", err)
	}

	now := metav1.NewTime(time.Now())
	u.Status.PlanDigest, u.Status.StartedAt = "sha256:p", &now
	if err := controller.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	refused(t, run("sha256:other"), "is not open for this run")
	var err error
	for range 50 { // the API server notices the start a moment later
		if err = run("sha256:p"); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("an open gate lets the node run: %v", err)
	}
	u.Spec.PlanDigest = "sha256:p2"
	refused(t, admin.Update(ctx, u), "another plan is another ClusterUpdate")
	patch := client.MergeFrom(nu.DeepCopy())
	nu.Spec.Run = nil
	if err := controller.Patch(ctx, nu, patch); err != nil {
		t.Errorf("a run can always be undone: %v", err)
	}
}

func reread(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
}

// A run that names no ClusterUpdate passes no gate: it may only write static pods.
func testTracksWriteStaticPods(t *testing.T, cfg *rest.Config, admin client.Client) {
	ctx := context.Background()
	waitForPolicies(t, admin)
	controller := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	nu := &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta("tracked-1")}
	mustCreate(t, controller, nu)
	kubeSystem := map[string]string{"namespace": metav1.NamespaceSystem, "pod": "proxy"}
	run := func(name, updater string) error {
		changed := nu.DeepCopy()
		changed.Spec.Run = &v1alpha1.NodeRun{Name: name, UID: "u-1", PlanDigest: "sha256:p", Attempt: 1, Steps: []v1alpha1.UpdateStep{
			{ID: "a", Updater: "static-pod", Verb: "write", Params: kubeSystem}, {ID: "b", Updater: updater, Verb: "x", Params: kubeSystem}}}
		return controller.Patch(ctx, changed, client.MergeFrom(nu))
	}
	const no = "may only write static pods"
	refused(t, run("ImageTrack/proxy", "kubeadm"), no)
	refused(t, run("Other/proxy", "static-pod"), "no node runs for nobody")
	refused(t, run("ImageTrack/proxy", "static-pod"), "bind the ClusterRole refit-image-writer there")
	mustCreate(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "refit-image-writer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "refit-image-writer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "refit-controller"}}})
	var err error
	for range 50 { // the API server notices the grant a moment later
		if err = run("ImageTrack/proxy", "static-pod"); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("a track has a static pod written: %v", err)
	}
}
