//go:build linux

package imagetracks

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

func noPreload(s *v1alpha1.ImageTrackSpec) {
	no := false
	s.Preload = &no
}

// Pods of a workload that replaces only what goes are evicted, one after
// the other, and the API server itself keeps the budget.
func TestOnDeleteGoesThroughTheEvictionAPI(t *testing.T) {
	w := newTestCluster(t)
	ctx := context.Background()
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	three := int32(3)
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: &three, ServiceName: "db",
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
		Selector:       &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate("db", w.reg.Ref("shop/app:2.6.2-rev1"))}}
	w.create(set)
	two := intstr.FromInt32(2)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	w.create(budget)
	w.allow(budget, 1)
	pod := func(name, image string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: image}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "app", ImageID: w.reg.Ref("shop/app@" + a)}}}}
		w.create(p)
	}
	ready := func(n int32) {
		w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(set), set))
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 3, ReadyReplicas: n, AvailableReplicas: n}
		w.must(w.admin.Status().Update(ctx, set))
	}
	names := []string{"db-0", "db-1", "db-2"}
	for _, n := range names {
		pod(n, w.reg.Ref("shop/app:2.6.2-rev1"))
	}
	ready(3)
	w.grant("shop")
	w.newTrack(noPreload, func(s *v1alpha1.ImageTrackSpec) {
		s.Targets = []v1alpha1.TrackTarget{{Kind: "StatefulSet", Namespace: "shop", Name: "db"}}
	})
	leaving := func() (out []string) {
		for _, n := range names {
			var p corev1.Pod
			w.must(w.admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: n}, &p))
			if p.DeletionTimestamp != nil {
				out = append(out, n)
			}
		}
		return out
	}
	w.reconcile("app")
	w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(set), set))
	pinned := w.reg.Ref("shop/app:2.6.2-rev1@" + a)
	if got := set.Spec.Template.Spec.Containers[0].Image; got != pinned || len(leaving()) > 0 {
		t.Fatalf("first the template: %s, leaving %v", got, leaving())
	}
	ready(3)
	for i, n := range names {
		w.reconcile("app")
		if got := leaving(); len(got) != 1 || got[0] != n {
			t.Fatalf("%v leave, it is the turn of %s", got, n)
		}
		ready(2)
		checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonImageRolling)
		if got := leaving(); len(got) != 1 {
			t.Fatalf("%v leave while one is not ready", got)
		}
		zero := int64(0)
		w.must(w.admin.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: n}}, &client.DeleteOptions{GracePeriodSeconds: &zero}))
		pod(n, pinned)
		ready(3)
		if i < len(names)-1 { // the API server has taken the one disruption
			o := w.reconcile("app")
			if got := leaving(); len(got) > 0 || !strings.Contains(o.Status.Workloads[0].Message, "allows no disruption") {
				t.Fatalf("the budget is used up, and %v leave: %s", got, o.Status.Workloads[0].Message)
			}
			w.allow(budget, 1)
		}
	}
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)

	t.Log("a DaemonSet: as many at once as its pool's budget, one without a pool")
	w.readyNodes()
	agents := map[string]string{"app": "agent"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		Selector:       &metav1.LabelSelector{MatchLabels: agents}, Template: podTemplate("agent", pinned)}}
	w.create(ds)
	available := func(n int32) {
		w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(ds), ds))
		ds.Status = appsv1.DaemonSetStatus{ObservedGeneration: ds.Generation, DesiredNumberScheduled: 3, NumberAvailable: n, NumberReady: n}
		w.must(w.admin.Status().Update(ctx, ds))
	}
	agent := func(node, image string) {
		w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent-" + node, Labels: agents},
			Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: image}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
	}
	replace := func(node string) {
		zero := int64(0)
		w.must(w.admin.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent-" + node}}, &client.DeleteOptions{GracePeriodSeconds: &zero}))
		agent(node, pinned)
	}
	for _, n := range []string{"n1", "n2", "n3"} { // n1 is of the control plane
		agent(n, w.reg.Ref("shop/app:2.6.2-rev1"))
	}
	available(3)
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Targets = []v1alpha1.TrackTarget{{Kind: "DaemonSet", Namespace: "shop", Name: "agent"}}
	})
	names = []string{"agent-n1", "agent-n2", "agent-n3"}
	expect := func(when, want string) {
		t.Helper()
		for range 2 { // the status of the DaemonSet still calls all available
			w.reconcile("app")
		}
		if got := strings.Join(leaving(), " "); got != want {
			t.Fatalf("%s: %s leave, want %s", when, got, want)
		}
	}
	expect("no pool", "agent-n1")
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &two,
		NodeSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpDoesNotExist}}}}}
	w.create(pool)
	cordon := func(is bool) {
		var n corev1.Node
		w.must(w.admin.Get(ctx, client.ObjectKey{Name: "n2"}, &n))
		n.Spec.Unschedulable = is
		w.must(w.admin.Update(ctx, &n))
	}
	cordon(true)
	expect("a cordoned node takes one of the budget", "agent-n1")
	cordon(false)
	expect("the pool allows two", "agent-n1 agent-n2")
	replace("n1")
	expect("one is back", "agent-n2 agent-n3")
	replace("n2")
	replace("n3")
	available(3)
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)
}

// Spec 2.5: what a GitOps tool owns is proposed, with the whole patch; a CronJob has
// it at its next run.
func TestWhatIsProposed(t *testing.T) {
	w := newTestCluster(t)
	ctx := context.Background()
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	argo := deployment("argo", w.reg.Ref("shop/app:2.6.2-rev1"), 1)
	argo.Labels = map[string]string{"argocd.argoproj.io/instance": "shop"}
	w.create(argo)
	job := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "job"}, Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *",
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: podTemplate("job", w.reg.Ref("shop/app:2.6.2-rev1"))}}}}
	job.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(job)
	w.grant("shop")
	w.newTrack(noPreload, func(s *v1alpha1.ImageTrackSpec) {
		s.Targets = []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop"}, {Kind: "CronJob", Namespace: "shop", Name: "job"}}
	})
	w.reconcile("app")
	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageProposed, "Argo CD")
	pinned := w.reg.Ref("shop/app:2.6.2-rev1@" + a)
	if got := w.image("argo"); got != w.reg.Ref("shop/app:2.6.2-rev1") {
		t.Fatalf("what Argo CD owns was changed: %s", got)
	}
	w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(job), job))
	if got := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image; got != pinned {
		t.Fatalf("the CronJob has %s", got)
	}
	var cm corev1.ConfigMap
	w.must(w.admin.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "track-app"}, &cm))
	if len(cm.Data) != 1 || !strings.Contains(cm.Data["deployment.shop.argo.yaml"], pinned) {
		t.Fatalf("%v", cm.Data)
	}
	w.checkNothingWritten("app")

	t.Log("when it was taken over, nothing is proposed any more")
	w.setImage("argo", pinned)
	w.setRollout("argo", 1, true)
	w.reconcile("app")
	w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(&cm), &cm))
	if len(cm.Data) != 0 {
		t.Fatalf("%v", cm.Data)
	}

	t.Log("a track that only proposes writes nothing, also where it may")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Mode, s.Automatic = v1alpha1.ModePropose, all })
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	w.nextPoll()
	o = w.reconcile("app")
	w.must(w.admin.Get(ctx, client.ObjectKeyFromObject(job), job))
	if got := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image; got != pinned || o.Status.Approved.Digest != b {
		t.Fatalf("the CronJob has %s, approved %+v", got, o.Status.Approved)
	}
}

// Two tracks that want the same workload do not take turns.
func TestTwoTracksDoNotTakeTurns(t *testing.T) {
	w := newTestCluster(t)
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.reg.Push("shop/app", build("two"), "2.6.3-rev1-b1.1", "2.6.3-rev1")
	w.create(deployment("app", w.reg.Ref("shop/app:2.6.2-rev1"), 1))
	w.runDigests("app", a)
	w.grant("shop")
	w.newTrack(noPreload)
	w.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.ImageTrackSpec{Repository: w.reg.Ref("shop/app"),
		Follow: v1alpha1.TrackFollow{Tag: "2.6.3-rev1"}, Mode: v1alpha1.ModeWrite, Automatic: all, Preload: w.track("app").Spec.Preload,
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}})
	written := map[string]int{}
	last := w.image("app")
	for range 8 {
		for _, name := range []string{"app", "other"} {
			w.nextPoll()
			w.reconcile(name)
			if now := w.image("app"); now != last {
				written[now]++
				last = now
			}
			w.setRollout("app", 1, true)
		}
	}
	for image, n := range written {
		if n > 1 {
			t.Errorf("%s was written %d times", image, n)
		}
	}
	if len(written) == 0 {
		t.Error("neither wrote")
	}

	t.Log("nodes are marked while their pods do not run the newest image")
	ctx := context.Background()
	for _, name := range []string{"app", "other"} {
		w.must(w.admin.Delete(ctx, w.track(name)))
	}
	w.runDigests("app", a, a)
	marks := func() string {
		var nodes corev1.NodeList
		w.must(w.admin.List(ctx, &nodes))
		var out []string
		for i := range nodes.Items {
			if mark, is := nodes.Items[i].Annotations["updates.refit.dev/marks"]; is {
				out = append(out, nodes.Items[i].Name+": "+mark)
			}
		}
		return strings.Join(out, ", ")
	}
	marked := func(when, want string, count int32) {
		t.Helper()
		w.restart()
		w.nextPoll()
		w.reconcile("marks")
		o := w.reconcile("marks") // which counts those that it removed
		if got := marks(); got != want || o.Status.MarkedNodes != count {
			t.Fatalf("%s: %q, want %q; %d counted", when, got, want, o.Status.MarkedNodes)
		}
		w.api.takeCounts()
		w.nextPoll()
		w.reconcile("marks")
		if _, writes := w.api.takeCounts(); len(writes) > 0 {
			t.Fatalf("%s: nothing was new, and it wrote: %v", when, writes)
		}
	}
	no := false
	w.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "marks"}, Spec: v1alpha1.ImageTrackSpec{Repository: w.reg.Ref("shop/app"), NodeMarks: true,
		Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}, Mode: v1alpha1.ModePropose, Automatic: all, Preload: &no,
		Targets: []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop", Name: "app"}}}})
	marked("as published", "", 0)
	b := w.reg.Push("shop/app", registrytest.Image{Version: "2.6.2", Layers: []string{"b"}, Labels: map[string]string{"dev.refit.severity": "disruptive"}}, "2.6.2-rev1-b5.2", "2.6.2-rev1")
	marked("a disruptive image", "n1: disruptive 2.6.2-rev1-b5.2, n2: disruptive 2.6.2-rev1-b5.2", 2)
	if c := w.track("marks").Status.Candidates; len(c) != 1 || c[0].Severity != "disruptive" || c[0].Decision != v1alpha1.DecisionApproval {
		t.Fatalf("%+v", c)
	}
	w.editSpec("marks", func(s *v1alpha1.ImageTrackSpec) { s.RequestReboot = true })
	for _, name := range []string{"n1", "n2"} {
		var n corev1.Node
		w.must(w.admin.Get(ctx, client.ObjectKey{Name: name}, &n))
		n.Status.NodeInfo.BootID = "boot of " + name
		w.must(w.admin.Status().Update(ctx, &n))
	}
	w.runDigests("app", b, a)
	marked("one pod has it", "n2: disruptive 2.6.2-rev1-b5.2", 1)
	if r := w.node("n1").Spec.Reboot; r == nil || r.BootID != "boot of n1" || r.Cause != "ImageTrack marks: pods of this node run 2.6.2-rev1-b5.2 since this boot" {
		t.Errorf("n1 has taken a disruptive image: %+v", r)
	}
	var none v1alpha1.NodeUpdate
	if err := w.admin.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n2"}, &none); err == nil && none.Spec.Reboot != nil {
		t.Errorf("n2 has not taken it: %+v", none.Spec.Reboot)
	}
	w.editSpec("marks", func(s *v1alpha1.ImageTrackSpec) { s.NodeMarks, s.RequestReboot = false, false })
	w.reconcile("marks")
	marked("switched off", "", 0)
	w.editSpec("marks", func(s *v1alpha1.ImageTrackSpec) { s.NodeMarks = true })
	w.reconcile("marks")
	if marks() == "" {
		t.Fatal("it does not mark again")
	}
	w.must(w.admin.Delete(ctx, w.track("marks")))
	_, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: "marks"}})
	w.must(err)
	if got := marks(); got != "" {
		t.Fatalf("the track is gone, and %s", got)
	}

	t.Log("a controller that starts removes the marks of tracks that were deleted meanwhile")
	long := strings.Repeat("a", 100)
	var n1 corev1.Node
	w.must(w.admin.Get(ctx, client.ObjectKey{Name: "n1"}, &n1))
	before := n1.DeepCopy()
	metav1.SetMetaDataAnnotation(&n1.ObjectMeta, markKey("gone"), "security 1")
	metav1.SetMetaDataAnnotation(&n1.ObjectMeta, markKey("gone-too"), "available 1")
	metav1.SetMetaDataAnnotation(&n1.ObjectMeta, markKey(long), "available 1")
	metav1.SetMetaDataAnnotation(&n1.ObjectMeta, "example.com/gone", "a person's")
	w.must(w.admin.Patch(ctx, &n1, client.MergeFrom(before)))
	w.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: long}, Spec: v1alpha1.ImageTrackSpec{Repository: w.reg.Ref("shop/app"), NodeMarks: true,
		Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}, Mode: v1alpha1.ModePropose}})
	w.must(w.r.removeOldMarks(ctx))
	w.must(w.admin.Get(ctx, client.ObjectKey{Name: "n1"}, &n1))
	if a := n1.Annotations; a[markKey("gone")]+a[markKey("gone-too")] != "" || a[markKey(long)] == "" || a["example.com/gone"] == "" {
		t.Fatal(a)
	}
}
