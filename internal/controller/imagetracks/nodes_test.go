//go:build linux

package imagetracks

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// mirror is a static pod as the kubelet shows it.
func (w *testCluster) mirror(name, node, image, digest string) {
	w.t.Helper()
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name + "-" + node, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
		Spec: corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{Name: "app", Image: image}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, ImageID: w.reg.Ref("shop/app@" + digest)}}}})
}

// manifest changes the image of a static pod, as the kubelet shows it.
func (w *testCluster) manifest(node, image string) {
	w.t.Helper()
	var p corev1.Pod
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "proxy-" + node}, &p))
	p.Spec.Containers[0].Image = image
	w.must(w.admin.Update(context.Background(), &p))
}

func (w *testCluster) node(name string) *v1alpha1.NodeUpdate {
	w.t.Helper()
	nu := &v1alpha1.NodeUpdate{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, nu))
	return nu
}

// run of a node, nil if it was permitted nothing.
func (w *testCluster) run(name string) *v1alpha1.NodeRun { return w.node(name).Spec.Run }

// report is what the node's agent says of its run; it also lives.
func (w *testCluster) report(name string, state v1alpha1.RunState, reason, message string) {
	w.t.Helper()
	nu := w.node(name)
	began := metav1.NewTime(w.now)
	nu.Status.Agent.Heartbeat = &began
	if r := nu.Spec.Run; r != nil {
		nu.Status.Run = &v1alpha1.NodeRunStatus{UID: r.UID, PlanDigest: r.PlanDigest, Attempt: r.Attempt, State: state, Reason: reason, Message: message, StartedAt: &began}
		if state != v1alpha1.RunRunning {
			end := metav1.NewTime(w.now.Add(40 * time.Second))
			nu.Status.Run.FinishedAt = &end
		}
	}
	w.must(w.admin.Status().Update(context.Background(), nu))
}

// succeed simulates an agent that runs the permitted step with success.
func (w *testCluster) succeed(name string) {
	w.t.Helper()
	p := model.StaticPodImages{}
	w.must(p.Read(w.run(name).Steps[0].Params))
	w.manifest(name, p.To["app"])
	w.report(name, v1alpha1.RunSucceeded, v1alpha1.ReasonUpdated, "")
}

// permitted are the nodes that were permitted something and have not ended it.
func (w *testCluster) permitted() string {
	var out []string
	var l v1alpha1.NodeUpdateList
	w.must(w.admin.List(context.Background(), &l, client.InNamespace(v1alpha1.NodesNamespace)))
	for i := range l.Items {
		if r, s := l.Items[i].Spec.Run, l.Items[i].Status.Run; r != nil && (s == nil || s.UID != r.UID || s.Attempt != r.Attempt || s.State == v1alpha1.RunRunning) {
			out = append(out, l.Items[i].Name)
		}
	}
	return strings.Join(out, " ")
}

func (w *testCluster) readyNodes() {
	w.t.Helper()
	for _, name := range []string{"n1", "n2", "n3"} {
		var n corev1.Node
		w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: name}, &n))
		if name == "n1" {
			n.Labels["node-role.kubernetes.io/control-plane"] = ""
			w.must(w.admin.Update(context.Background(), &n))
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.must(w.admin.Status().Update(context.Background(), &n))
	}
}

// checkWorkload checks the state of a workload in the status of a track, and the words of its
// message.
func checkWorkload(t *testing.T, o *v1alpha1.ImageTrack, workload, state string, words ...string) {
	t.Helper()
	for _, k := range o.Status.Workloads {
		if k.Workload != workload {
			continue
		}
		for _, word := range words {
			if !strings.Contains(k.Message, word) {
				t.Fatalf("%s does not say %q: %s", workload, word, k.Message)
			}
		}
		if k.State != state {
			t.Fatalf("%s is %s, want %s: %s", workload, k.State, state, k.Message)
		}
		return
	}
	t.Fatalf("no %s in %+v", workload, o.Status.Workloads)
}

// Static pods follow the other workloads. The agents write the manifests one node after the
// other, the control plane last. A failed write is undone and halts the track; manifests of
// kubeadm stay unchanged. A controller that restarts between any two reconciles resumes.
func TestStaticPodsAreWrittenNodeByNode(t *testing.T) {
	w := newTestCluster(t)
	const proxy, etcd = "StaticPod/kube-system/proxy", "StaticPod/kube-system/etcd"
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	tagged := w.reg.Ref("shop/app:2.6.2-rev1")
	w.readyNodes()
	w.create(deployment("app", tagged, 3))
	w.runDigests("app", a, a, a)
	for _, n := range []string{"n1", "n2", "n3"} {
		w.mirror("proxy", n, tagged, a)
	}
	w.mirror("etcd", "n1", tagged, a)
	b := w.reg.Push("shop/app", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) {
		s.Targets = append([]v1alpha1.TrackTarget{{Kind: "StaticPod", Namespace: metav1.NamespaceSystem}}, s.Targets...)
	})
	// look reconciles with a controller that was just started.
	look := func() *v1alpha1.ImageTrack {
		t.Helper()
		w.restart()
		return w.reconcile("app")
	}
	o := look()
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonImageNeedsApproval)
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) {
		s.Approvals = []v1alpha1.TrackApproval{{Digest: b, Serial: o.Status.Candidates[0].Serial, ApprovedBy: "ann", Reason: "CVE-2026-1"}}
	})
	look()
	w.simulateAgents("app", true)
	w.grant("shop")
	checkWorkload(t, look(), proxy, "Waiting", "it is the turn of Deployment/shop/app")
	w.runDigests("app", b, b, b)
	checkWorkload(t, look(), proxy, "Blocked", "kubectl -n kube-system create rolebinding")
	if got := w.permitted(); got != "" {
		t.Fatalf("without the right to, %s was permitted", got)
	}
	w.grant(metav1.NamespaceSystem)

	t.Log("nothing starts while a ClusterUpdate runs")
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-next"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: a, Start: v1alpha1.StartImmediate}}
	w.create(u)
	u.Status.StartedAt = &metav1.Time{Time: w.now}
	w.must(w.ctl.Status().Update(t.Context(), u))
	checkWorkload(t, look(), proxy, "Waiting", "ClusterUpdate to-next")
	w.must(w.admin.Delete(t.Context(), u))

	t.Log("only one worker starts, with exactly that image")
	o = look()
	checkWorkload(t, o, proxy, "Rolling", "node n2")
	checkWorkload(t, o, etcd, "Blocked", "only a ClusterUpdate changes it")
	if o.Status.Turn == nil || o.Status.Turn.Node != "n2" || w.permitted() != "n2" {
		t.Fatalf("turn %+v, permitted %q", o.Status.Turn, w.permitted())
	}
	first := w.run("n2")
	p := model.StaticPodImages{}
	w.must(p.Read(first.Steps[0].Params))
	long := w.reg.Ref("shop/app:2.6.2-rev1-b5.2@" + b)
	if p.Pod != "proxy" || p.To["app"] != long || p.Was["app"] != tagged || p.ReadySeconds != 300 || first.Name != "ImageTrack/app" || first.Steps[0].Updater != "static-pod" {
		t.Fatalf("%+v %+v", first, p)
	}
	w.report("n2", v1alpha1.RunRunning, v1alpha1.ReasonUpdating, "the kubelet starts it")
	checkWorkload(t, look(), proxy, "Rolling", "the kubelet starts it")
	w.api.takeCounts()
	look()
	_, writes := w.api.takeCounts()
	if writes = slices.DeleteFunc(writes, func(call string) bool { return strings.Contains(call, "selfsubjectaccessreviews") }); len(writes) > 0 {
		t.Fatalf("nothing was new, and it wrote %v", writes)
	}
	w.succeed("n2")
	checkWorkload(t, look(), proxy, "Rolling", "node n3", "1 of 3")

	t.Log("a run that hangs is undone, and the track halts")
	w.report("n3", v1alpha1.RunFailed, v1alpha1.ReasonStepDeadline, "it hung")
	look()
	if r := w.run("n3"); !r.Undo || r.Attempt != 2 || r.Cause != "it hung" || w.permitted() != "n3" {
		t.Fatalf("%+v", r)
	}
	w.report("n3", v1alpha1.RunUndone, v1alpha1.ReasonUndone, "as before")
	for range 3 {
		o = look()
		checkWorkload(t, o, proxy, "Blocked", "node n3", "it hung", "spec.retry")
	}
	if w.permitted() != "" || o.Status.Turn != nil || o.Status.Releases[0].Result != v1alpha1.ReleaseHalted {
		t.Fatalf("%q %+v", w.permitted(), o.Status.Releases)
	}

	t.Log("spec.retry starts it again")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Retry = 1 })
	look()
	if r := w.run("n3"); r.Undo || r.Attempt != 1 || r.UID == first.UID || w.permitted() != "n3" {
		t.Fatalf("%+v", r)
	}
	w.succeed("n3")

	t.Log("the control plane is last, and waits while one of its pods is not Ready")
	ill := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler-n1", Labels: map[string]string{"tier": "control-plane", "component": "kube-scheduler"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "s", Image: "registry.example/kube-scheduler:v1.36.3"}}}}
	w.create(ill)
	checkWorkload(t, look(), proxy, "Waiting", "kube-scheduler-n1 not Ready")
	w.must(w.admin.Delete(t.Context(), ill, client.GracePeriodSeconds(0)))
	look()
	if w.permitted() != "n1" {
		t.Fatalf("permitted %q", w.permitted())
	}
	w.succeed("n1")
	o = look()
	checkWorkload(t, o, proxy, "Current")
	if k := o.Status.Workloads[0]; o.Status.Turn != nil || o.Status.Approved.Digest != b || k.TookSeconds != 40 && o.Status.Workloads[1].TookSeconds != 40 {
		t.Fatalf("%+v", o.Status)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if w.node(n).Spec.Pins == "" {
			t.Fatalf("the permission removed the pin set of %s", n)
		}
	}

	t.Log("a manifest that is restored by hand rolls the track back")
	w.manifest("n2", w.reg.Ref("shop/app:2.6.2-rev1-b5.1@"+a))
	o = look()
	if o.Status.Approved == nil || o.Status.Approved.Digest != a || o.Status.RolledBack[0].Actor != proxy {
		t.Fatalf("%+v", o.Status)
	}
	if r := o.Status.Releases; r[1].Result != v1alpha1.ReleaseRolledBack || r[1].Actor != "ann: CVE-2026-1" || r[0].Actor != proxy || r[0].From != b {
		t.Fatalf("%+v", r)
	}
}

// Of all tracks together one has a turn.
func TestOneTrackHasTheTurn(t *testing.T) {
	w := newTestCluster(t)
	w.readyNodes()
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	for _, n := range []string{"n2", "n3"} {
		w.mirror("proxy", n, w.reg.Ref("shop/app:2.6.2-rev1"), a)
	}
	w.grant(metav1.NamespaceSystem)
	for _, name := range []string{"one", "two"} {
		w.create(&v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ImageTrackSpec{Repository: w.reg.Ref("shop/app"),
			Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}, Mode: v1alpha1.ModeWrite, Targets: []v1alpha1.TrackTarget{{Kind: "StaticPod", Namespace: metav1.NamespaceSystem, Name: "proxy"}}}})
		w.reconcile(name)
	}
	w.simulateAgents("one", true) // the other one's images are the same
	w.reconcile("one")
	checkWorkload(t, w.reconcile("two"), "StaticPod/kube-system/proxy", "Waiting")
	if w.permitted() != "n2" || w.run("n2").Name != "ImageTrack/one" {
		t.Fatalf("permitted %q", w.permitted())
	}
	w.succeed("n2")
	w.reconcile("one")
	if w.permitted() != "n3" {
		t.Fatalf("permitted %q", w.permitted())
	}
}

// Several batches begin in one window, as long as what they took fits; what does
// not fit waits for the next.
func TestBatchesInAWindow(t *testing.T) {
	w := newTestCluster(t) // it is 12:00
	a := w.reg.Push("shop/app", registrytest.Image{Version: "2.6.2", Layers: []string{"one"}}, "2.6.2-rev1-b5.1", "2.6.2-rev1")
	tagged := w.reg.Ref("shop/app:2.6.2-rev1")
	apps := []string{"a", "b", "c"}
	for _, app := range apps {
		w.create(deployment(app, tagged, 1))
		w.runDigests(app, a)
	}
	w.grant("shop")
	w.newTrack(noPreload, func(s *v1alpha1.ImageTrackSpec) {
		s.Targets = []v1alpha1.TrackTarget{{Kind: "Deployment", Namespace: "shop"}}
		s.Windows = []v1alpha1.Window{{Start: "13:00", DurationMinutes: 60}}
	})
	o := w.reconcile("app")
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonOutsideWindow, "opens Fri 2026-11-20 13:00")
	written := func() string {
		out := ""
		for _, app := range apps {
			if w.image(app) != tagged {
				out += app
			}
		}
		return out
	}
	at := func(clock string) {
		t.Helper()
		h, err := time.Parse("15:04", clock)
		w.must(err)
		w.now = time.Date(2026, 11, 20, h.Hour(), h.Minute(), 0, 0, time.UTC)
		w.reconcile("app")
	}
	if at("12:59"); written() != "" {
		t.Fatalf("before the window %s", written())
	}
	at("13:00")
	w.setRollout("a", 1, false)
	if at("13:01"); written() != "a" {
		t.Fatalf("one at a time: %s", written())
	}
	w.setRollout("a", 1, true)
	at("13:20") // it took 20 minutes
	if at("13:20"); written() != "ab" {
		t.Fatalf("the next begins in the same window: %s", written())
	}
	w.setRollout("b", 1, true)
	at("13:45")
	if at("13:45"); written() != "abc" {
		t.Fatalf("nothing is known of c, the window is open: %s", written())
	}
	w.setRollout("c", 1, true)
	if o = w.reconcile("app"); len(o.Status.Workloads) != 3 || o.Status.Workloads[0].TookSeconds != 20*60 {
		t.Fatalf("%+v", o.Status.Workloads)
	}

	t.Log("the next build: a rollout that took 20 minutes does not start 10 minutes before the window closes")
	b := w.reg.Push("shop/app", registrytest.Image{Version: "2.6.2", Layers: []string{"two"}}, "2.6.2-rev1-b5.2", "2.6.2-rev1")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassRebuild} })
	pinned := w.reg.Ref("shop/app:2.6.2-rev1@" + b)
	if at("13:50"); w.image("a") == pinned || w.image("b") == pinned {
		t.Fatal("the rollout was started")
	}
	o = w.track("app")
	if o.Status.Approved.Digest != b || !strings.Contains(o.Status.Workloads[0].Message, "took 20m the last time") {
		t.Fatalf("%+v", o.Status.Workloads)
	}
}
