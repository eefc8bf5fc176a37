package gatefacts_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/clusterfacts"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/gatefacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/gate"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	st := o.DeepCopyObject().(client.Object)
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
	switch o.(type) {
	case *corev1.Pod, *policyv1.PodDisruptionBudget:
		st.SetResourceVersion(o.GetResourceVersion())
		st.SetUID(o.GetUID())
		if err := c.Status().Update(t.Context(), st); err != nil {
			t.Fatalf("status of %s: %v", o.GetName(), err)
		}
	}
}

func pod(ns, name, node string, labels map[string]string, change ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app", UID: "1", Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "example.test/app:v1", ImagePullPolicy: corev1.PullIfNotPresent}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

// The facts of the gate are read from a real API server with the controller's
// own rights, and leads to sentences that name objects.
func TestFactsOfACluster(t *testing.T) {
	cfg := apitest.Start(t)
	admin := newClient(t, cfg)
	three := intstr.FromInt32(3)
	web := map[string]string{"app": "web"}
	create(t, admin, pod("default", "web-1", "n2", web))
	create(t, admin, pod("default", "tool", "n2", nil, func(p *corev1.Pod) { p.OwnerReferences = nil }))
	create(t, admin, pod("default", "puller", "n3", nil, func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways }))
	create(t, admin, pod("kube-system", "kube-apiserver-n1", "n1", map[string]string{"component": "kube-apiserver"}, func(p *corev1.Pod) {
		p.OwnerReferences = nil
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.Spec.Containers[0].Command = []string{"kube-apiserver", "--enable-admission-plugins=NodeRestriction,AlwaysPullImages"}
	}))
	create(t, admin, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:   policyv1.PodDisruptionBudgetSpec{MinAvailable: &three, Selector: &metav1.LabelSelector{MatchLabels: web}},
		Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3, DesiredHealthy: 3, ExpectedPods: 3}})
	webhook(t, admin)

	own := apitest.As(cfg, apitest.ControllerUser)
	metrics, err := clusterfacts.MetricsOf(own)
	if err != nil {
		t.Fatal(err)
	}
	g := &gatefacts.Gatherer{Live: newClient(t, own), APIMetrics: metrics}
	in := base()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u", UID: "1"}}
	fill := func() {
		w := testSnapshot()
		for i, n := range in.Nodes {
			w.Moves.Node(n, w.Nodes[i], nil, w.Now)
		}
		g.Fill(t.Context(), w, u, &in)
	}
	fill()
	if diff := cmp.Diff(map[string]string{}, in.Unknown); diff != "" {
		t.Errorf("with the controller's rights everything can be read:\n%s", diff)
	}
	r := gate.Decide(in)
	for _, want := range []string{
		"PodDisruptionBudget default/web allows no eviction, ever: minAvailable 3 wants 3 of 3 pods; the drain would wait for node n2: default/web-1",
		"node n2: pod default/tool has no owner",
		"1 pods have imagePullPolicy Always and do not start again without a registry: ReplicaSet default/app (1)",
		"API server kube-apiserver-n1 has the admission plugin AlwaysPullImages",
		"webhook pods.policy.test of ValidatingWebhookConfiguration/policy fails closed, and all its backends (policy/hook) are on node n2, which is drained; it is asked about their own pods too",
	} {
		if !said(r, want) {
			t.Errorf("%q is not said:\n%+v\n%+v", want, r.Blockers, r.Warnings)
		}
	}

	// What a person set for this update counts at the next look.
	u.Generation = 2
	u.Spec.Drain = &v1alpha1.DrainOptions{SkipSelector: &metav1.LabelSelector{MatchLabels: web}}
	in = base()
	fill()
	if said(gate.Decide(in), "default/web allows no eviction") {
		t.Error("a pod that stays is no obstacle")
	}
	t.Run("an API in use is read from the API server itself", func(t *testing.T) { apis(t, cfg, metrics) })
}

// apis: componentstatuses is deprecated and has no end: asked for, it is in the
// metrics, and it is no reason against.
func apis(t *testing.T, cfg *rest.Config, metrics clusterfacts.Metrics) {
	if err := newClient(t, cfg).List(t.Context(), &corev1.ComponentStatusList{}); err != nil {
		t.Fatal(err)
	}
	body, err := metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(text), `resource="componentstatuses"`) {
		t.Fatalf("the metric does not name what was asked for (%v)", err)
	}
	got, err := clusterfacts.DeprecatedAPIs(t.Context(), metrics)
	if err != nil || len(got) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func webhook(t *testing.T, admin client.Client) {
	t.Helper()
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "policy"}})
	none, path := admissionv1.SideEffectClassNone, "/validate"
	fail, n2, ready := admissionv1.Fail, "n2", true
	create(t, admin, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "pods.policy.test", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "policy", Name: "hook", Path: &path}},
		// Not in force in this test, or it would refuse the test's own writes.
		MatchConditions: []admissionv1.MatchCondition{{Name: "never", Expression: "false"}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}}}}})
	create(t, admin, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "policy", Name: "hook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}, NodeName: &n2, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}})
}

func base() gate.Input {
	in := gate.Input{Now: time.Now(), Approved: true}
	for _, n := range []string{"n1", "n2", "n3"} {
		in.Nodes = append(in.Nodes, &gate.Node{Name: n, InPlan: true, Ready: true, ControlPlane: n == "n1"})
	}
	return in
}

func testSnapshot() gatefacts.Snapshot {
	w := gatefacts.Snapshot{Now: time.Now()}
	plan := model.Plan{Target: model.Target{Kubernetes: "v1.36.3"}}
	for _, n := range []string{"n1", "n2", "n3"} {
		w.Nodes = append(w.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
		plan.Nodes = append(plan.Nodes, model.NodePlan{Node: n, Pool: "default", Steps: []model.Step{{ID: rollout.Drained}}})
	}
	w.Moves = gatefacts.MovesOf(plan)
	return w
}

func said(r gate.Result, part string) bool {
	for _, v := range append(append([]model.Blocker{}, r.Blockers...), r.Warnings...) {
		if strings.Contains(v.Message, part) {
			return true
		}
	}
	return false
}

// What nodes and agents report becomes facts of the gate, without any client.
func TestFactsOfNodes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	w := testSnapshot()
	w.Now = now
	w.Nodes[1].Spec.Unschedulable = true
	w.Nodes[2].Spec.Unschedulable = true
	w.Nodes[2].Annotations = map[string]string{v1alpha1.AnnotationCordonedBy: "refit-controller: ClusterUpdate u"}
	w.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse}}
	skew := int32(-200)
	updates := make([]*v1alpha1.NodeUpdate, len(w.Nodes))
	updates[0] = &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Health: &v1alpha1.NodeHealth{ClockSkewSeconds: &skew, PullVerification: "AlwaysVerify",
		Certificates: []v1alpha1.CertificateExpiry{{Name: "apiserver.crt", NotAfter: metav1.NewTime(now.Add(time.Minute))}},
		Etcd:         &v1alpha1.EtcdHealth{Message: "NOSPACE", SizeBytes: 10, QuotaBytes: 10}}}}
	ahead := metav1.NewTime(now.Add(time.Hour))
	updates[1] = &v1alpha1.NodeUpdate{Status: v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{Heartbeat: &ahead}}}
	in := base()
	in.Now = now
	for i, g := range in.Nodes {
		if passing := w.Moves.Node(g, w.Nodes[i], updates[i], now); passing != (i == 1) {
			t.Errorf("node %s is to be asked again: %v", g.Name, passing)
		}
	}
	(&gatefacts.Gatherer{Live: failing{}}).Fill(t.Context(), w, &v1alpha1.ClusterUpdate{}, &in)
	r := gate.Decide(in)
	for _, want := range []string{"node n2 reports DiskPressure", "node n2 was cordoned, but not by refit", "certificate apiserver.crt of node n1", "etcd on node n1 is not healthy: NOSPACE",
		"90 percent of its quota", "clock of node n1 is more than 2m0s behind", "clock of node n2 is more than 2m0s ahead of", "kubelet of node n1",
		"check budgets (can the nodes be drained?) could not be asked in full: list disruption budgets: the API server is unavailable", "check webhooks"} {
		if !said(r, want) {
			t.Errorf("%q is not said:\n%+v\n%+v", want, r.Blockers, r.Warnings)
		}
	}
	if said(r, "node n3 was cordoned") {
		t.Error("our own cordon counts as that of another")
	}
}

// failing is an unavailable API server.
type failing struct{ client.Reader }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errUnavailable
}

var errUnavailable = errString("the API server is unavailable")

type errString string

func (e errString) Error() string { return string(e) }
