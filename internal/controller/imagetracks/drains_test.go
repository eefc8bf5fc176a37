//go:build linux

package imagetracks

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// drainSite is a DaemonSet with OnDelete on n2 and n3, and a pod of a Deployment on n2 with a budget.
type drainSite struct {
	*testCluster
	ds        *appsv1.DaemonSet
	budget    *policyv1.PodDisruptionBudget
	old, want string
}

func newDrainSite(t *testing.T) *drainSite {
	t.Helper()
	w := &drainSite{testCluster: newTestCluster(t)}
	digest := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	w.old, w.want = w.reg.Ref("shop/app:2.6.2-rev1"), w.reg.Ref("shop/app:2.6.2-rev1@"+digest)
	w.readyNodes()
	labels := map[string]string{"app": "net"}
	w.ds = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "net"}, Spec: appsv1.DaemonSetSpec{
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		Selector:       &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate("net", w.old)}}
	w.create(w.ds)
	w.agent("n2", w.old, true)
	w.agent("n3", w.old, true)
	w.available(2)
	one := intstr.FromInt32(1)
	web := map[string]string{"app": "web"}
	w.budget = &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: web}}}
	w.create(w.budget)
	w.allow(w.budget, 0)
	yes := true
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: web,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1", Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
	w.grant("shop")
	w.newTrack(noPreload, func(s *v1alpha1.ImageTrackSpec) {
		s.Targets = []v1alpha1.TrackTarget{{Kind: "DaemonSet", Namespace: "shop", Name: "net"}}
		s.Drain = &v1alpha1.DrainOptions{}
	})
	return w
}

// agent is the pod of the DaemonSet on a node.
func (w *drainSite) agent(node, image string, ready bool) {
	w.t.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	yes := true
	w.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "net-" + node, Labels: map[string]string{"app": "net"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "net", UID: w.ds.UID, Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: image}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}})
}

func (w *drainSite) available(n int32) {
	w.t.Helper()
	w.must(w.admin.Get(context.Background(), client.ObjectKeyFromObject(w.ds), w.ds))
	w.ds.Status = appsv1.DaemonSetStatus{ObservedGeneration: w.ds.Generation, DesiredNumberScheduled: 2, NumberAvailable: n, NumberReady: n}
	w.must(w.admin.Status().Update(context.Background(), w.ds))
}

func (w *drainSite) gone(pod string) {
	w.t.Helper()
	zero := int64(0)
	w.must(w.admin.Delete(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod}}, &client.DeleteOptions{GracePeriodSeconds: &zero}))
}

// leaving is whether the API server has a pod on its way out.
func (w *drainSite) leaving(pod string) bool {
	w.t.Helper()
	var p corev1.Pod
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: pod}, &p))
	return p.DeletionTimestamp != nil
}

func (w *drainSite) readNode(name string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	w.must(w.admin.Get(context.Background(), client.ObjectKey{Name: name}, n))
	return n
}

// cordoned are the nodes that the track has cordoned.
func (w *drainSite) cordoned() string {
	w.t.Helper()
	var out []string
	for _, name := range []string{"n1", "n2", "n3"} {
		if n := w.readNode(name); n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationDrainedFor] == "app" {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// untilDrained reconciles until n2 is cordoned and its only pod waits for a budget.
func (w *drainSite) untilDrained() {
	w.t.Helper()
	w.reconcile("app") // the template
	w.available(2)
	w.reconcile("app") // the cordon, and the evictions
	if got := w.cordoned(); got != "n2" {
		w.t.Fatalf("cordoned: %q", got)
	}
}

// A network agent is replaced on one node after the other, each drained before and released after.
func TestTracksDrainNodes(t *testing.T) {
	w := newDrainSite(t)
	w.untilDrained()
	o := w.reconcile("app")
	checkWorkload(t, o, "DaemonSet/shop/net", "Rolling", "node n2 is drained: 1 pod left", "shop/web")
	if w.leaving("web") || w.leaving("net-n2") || o.Status.Turn == nil || o.Status.Turn.Node != "n2" {
		t.Fatalf("a pod goes against its budget: %+v", o.Status)
	}
	if by := w.readNode("n2").Annotations[v1alpha1.AnnotationCordonedBy]; !strings.Contains(by, "ImageTrack app") {
		t.Errorf("the cordon is of %q", by)
	}
	w.allow(w.budget, 1)
	w.restart() // a controller that has forgotten everything goes on
	w.reconcile("app")
	if !w.leaving("web") || w.leaving("net-n2") {
		t.Fatal("first the pods of others, then the agent")
	}
	w.gone("web")
	w.reconcile("app")
	if !w.leaving("net-n2") {
		t.Fatal("the node is empty, and its agent is not replaced")
	}
	w.gone("net-n2")
	w.agent("n2", w.want, false)
	w.available(1)
	o = w.reconcile("app")
	checkWorkload(t, o, "DaemonSet/shop/net", "Rolling", "stays cordoned until its new pod is Ready")
	if got := w.cordoned(); got != "n2" {
		t.Fatalf("cordoned: %q", got)
	}
	w.gone("net-n2")
	w.agent("n2", w.want, true)
	w.available(2)
	w.reconcile("app")
	if got := w.cordoned(); got != "n3" {
		t.Fatalf("then the next node: %q", got)
	}
	w.reconcile("app")
	w.gone("net-n3")
	w.agent("n3", w.want, true)
	checkCondition(t, w.reconcile("app"), v1alpha1.ConditionReady, v1alpha1.ReasonAsExpected)
	for _, name := range []string{"n2", "n3"} {
		if n := w.readNode(name); n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationDrainedFor] != "" || n.Annotations[v1alpha1.AnnotationCordonedBy] != "" {
			t.Errorf("%s is not as before: %v %v", name, n.Spec.Unschedulable, n.Annotations)
		}
	}
	w.checkNothingWritten("app")
}

// A node is released whenever the track has no business with it any more.
func TestDrainedNodesAreReleased(t *testing.T) {
	ctx := context.Background()
	for name, end := range map[string]func(w *drainSite){
		"frozen":    func(w *drainSite) { w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Freeze = true }) },
		"no drains": func(w *drainSite) { w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Drain = nil }) },
		"it only proposes": func(w *drainSite) {
			w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Mode = v1alpha1.ModePropose })
		},
		"no target":         func(w *drainSite) { w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Targets = nil }) },
		"the track is gone": func(w *drainSite) { w.must(w.admin.Delete(ctx, w.track("app"))) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDrainSite(t)
			w.untilDrained()
			end(w)
			if name == "the track is gone" {
				w.must(w.r.removeOldMarksOnce(ctx)) // as after a restart
			} else {
				w.reconcile("app")
			}
			if n := w.readNode("n2"); n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationDrainedFor] != "" {
				t.Errorf("n2 stays as it is: %v %v", n.Spec.Unschedulable, n.Annotations)
			}
		})
	}
}

// Cordons of a person and of a ClusterUpdate stay.
func TestForeignCordonsStay(t *testing.T) {
	w := newDrainSite(t)
	ctx := context.Background()
	n := w.readNode("n2")
	n.Spec.Unschedulable = true
	w.must(w.admin.Update(ctx, n))
	w.untilDrained()
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Freeze = true })
	w.reconcile("app")
	if n := w.readNode("n2"); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationDrainedFor] != "" {
		t.Errorf("a person had cordoned n2: %v %v", n.Spec.Unschedulable, n.Annotations)
	}

	t.Log("a ClusterUpdate starts on a node that a track has cordoned: the cordon becomes its own")
	n = w.readNode("n2")
	n.Spec.Unschedulable = false
	w.must(w.admin.Update(ctx, n))
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Freeze = false })
	w.reconcile("app")
	n = w.readNode("n2")
	n.Annotations[v1alpha1.AnnotationUpdating] = "uid 1 2026-11-20T12:00:00Z"
	w.must(w.admin.Update(ctx, n))
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Freeze = true })
	w.reconcile("app")
	if n := w.readNode("n2"); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationDrainedFor] != "" || n.Annotations[v1alpha1.AnnotationCordonedBy] == "" {
		t.Errorf("a ClusterUpdate works on n2: %v %v", n.Spec.Unschedulable, n.Annotations)
	}
}
