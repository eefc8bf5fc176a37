package bootimages_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/convert"
)

const oneMachine = ", canary: {mode: Replica, healthyMinutes: 10, joinMinutes: 60}"

// canaries are the temporary managers of a namespace.
func (s *site) canaries(apiVersion, kind, ns string) []unstructured.Unstructured {
	s.t.Helper()
	var out []unstructured.Unstructured
	for _, o := range s.list(apiVersion, kind, ns) {
		if o.GetLabels()["refit.dev/boot-image-canary-of"] != "" && o.GetDeletionTimestamp() == nil {
			out = append(out, o)
		}
	}
	return out
}

func (s *site) canary(ns string) *unstructured.Unstructured {
	s.t.Helper()
	l := s.canaries(capiV, "MachineDeployment", ns)
	if len(l) != 1 {
		s.t.Fatalf("%s: %d canaries", ns, len(l))
	}
	return &l[0]
}

// boot does what Cluster API and a kubelet do for a canary: a machine with a Ready node.
func (s *site) boot(ns, node, installed string) {
	s.t.Helper()
	s.node(node, "v1.36.3", installed, nil)
	s.machine(capiV, ns, node, s.canary(ns), "aws:///r1/"+node, map[string]any{"nodeRef": map[string]any{"name": node}})
}

// later lets time pass; a restarted controller remembers nothing.
func (s *site) later(d time.Duration) {
	s.now = s.now.Add(d)
	s.restart()
}

func (s *site) waitsFor(what, source string, parts ...string) *v1alpha1.MachineSource {
	s.t.Helper()
	src := s.source(source)
	s.expect(what, says(src.Status.Conditions, v1alpha1.ConditionReady), parts...)
	return src
}

// testCanary: one machine after the other, manager by manager, before the image is written.
func testCanary(s *site) {
	defer s.clock()()
	s.namespace("canary")
	s.make(awsTemplate("canary", "w", "ami-135"))
	s.make(deployment("canary", "a", "OnDelete", "w", "v1.36.3"))
	s.make(deployment("canary", "b", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("canary", "canary", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", oneMachine))
	a, b := "machinedeployment.canary.a", "machinedeployment.canary.b"
	ref := func(name string) string { return refOf(s.get(capiV, "MachineDeployment", "canary", name)) }
	s.look()
	s.waitsFor("a starts one machine", a, "False BootImageCanary one machine starts from ami-136")
	s.waitsFor("b waits for it", b, "False BootImageCanary", "waits until the canary of MachineSource "+a+" has passed")
	copied := s.canary("canary")
	template := s.get(infraV, "AWSMachineTemplate", "canary", refOf(copied))
	image, _, _ := unstructured.NestedString(template.Object, "spec", "template", "spec", "ami", "id")
	replicas, _, _ := unstructured.NestedInt64(copied.Object, "spec", "replicas")
	if owner := copied.GetOwnerReferences(); image != "ami-136" || replicas != 1 || ref("a") != "w" || ref("b") != "w" || len(owner) != 1 || owner[0].Name != "a" {
		s.t.Errorf("image %s, %d replicas, %v", image, replicas, owner)
	}
	if w := s.look(); len(w) > 1 { // the record says that the machine starts
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	s.boot("canary", "canary-1", "9.6.20251023-0")
	s.look()
	if st := s.waitsFor("it is Ready", a, "canary/canary-1 started from ami-136 (9.6.20251023-0) and is Ready; the canary passes at").Status; st.Canary == nil || st.Canary.Machine != "canary/canary-1" || st.Staged != template.GetName() || st.Nodes != 0 || len(st.History) != 0 {
		s.t.Errorf("%+v", st)
	}
	s.later(9 * time.Minute)
	s.look()
	if ref("a") != "w" {
		s.t.Error("written before the canary has passed")
	}
	s.later(2 * time.Minute)
	s.look() // passes
	s.look() // is written, the canary goes, and the next manager begins
	if st := s.waitsFor("written", a, "True AsExpected").Status; ref("a") != template.GetName() || st.Canary == nil || st.Canary.PassedAt == nil || st.Canary.Object != "" || len(st.History) != 1 {
		s.t.Errorf("%s: %+v", ref("a"), st)
	}
	if c := s.canary("canary"); ref("b") != "w" || c.GetOwnerReferences()[0].Name != "b" {
		s.t.Errorf("b: %s, canary of %v", ref("b"), c.GetOwnerReferences())
	}
	// a policy without canaries takes the machine away and writes
	p := s.policy("canary")
	p.Spec.Managers[0].Canary.Mode = "None"
	if err := s.admin.Update(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	if len(s.canaries(capiV, "MachineDeployment", "canary")) != 0 || ref("b") == "w" {
		s.t.Errorf("mode None: %s", ref("b"))
	}
	s.end("canary")
	s.testCanaryRights()
}

// testCanaryHealth: the health checks of the pool of the machine's node decide, after it was Ready
// for long enough. A canary whose checks do not pass fails after the time for joining.
func testCanaryHealth(s *site) {
	defer s.clock()()
	s.namespace("ch")
	s.make(awsTemplate("ch", "w", "ami-135"))
	s.make(deployment("ch", "a", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("ch", "ch", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", oneMachine))
	pool := &v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "ch"}, Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"ch": "yes"}},
		HealthChecks: []v1alpha1.HealthCheck{{Name: "network", Objects: v1alpha1.CheckedObjects{APIVersion: "v1", Kind: "Node", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ch": "yes"}}},
			Expression: "has(object.metadata.annotations) && 'net' in object.metadata.annotations", Message: "its network is not set up"}}}}
	if err := s.admin.Create(context.Background(), pool); err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = s.admin.Delete(context.Background(), pool) }()
	const a = "machinedeployment.ch.a"
	s.look()
	s.node("ch-1", "v1.36.3", "9.6.20251023-0", map[string]string{"ch": "yes"})
	s.machine(capiV, "ch", "ch-1", s.canary("ch"), "aws:///r1/ch-1", map[string]any{"nodeRef": map[string]any{"name": "ch-1"}})
	s.look()
	s.waitsFor("it is Ready", a, "the canary passes at")
	s.later(11 * time.Minute)
	s.look()
	s.waitsFor("a check fails", a, "False BootImageCanary", "it passes when the health checks of its pool pass", "pool ch: health check network: Node ch-1: its network is not set up")
	s.later(time.Hour)
	s.look()
	if st := s.waitsFor("it failed for an hour", a, "the canary for ami-136", "failed (1 of 2)", "did not pass within 1h0m0s").Status; st.Canary == nil || len(st.Canary.Failures) != 1 || len(st.History) != 0 {
		s.t.Errorf("%+v", st.Canary)
	}
	s.look() // the next machine starts
	node := s.get("v1", "Node", "", "ch-1")
	s.merge(node, "person", `{"metadata":{"annotations":{"net":"up"}}}`)
	s.node("ch-2", "v1.36.3", "9.6.20251023-0", map[string]string{"ch": "yes"})
	s.merge(s.get("v1", "Node", "", "ch-2"), "person", `{"metadata":{"annotations":{"net":"up"}}}`)
	s.machine(capiV, "ch", "ch-2", s.canary("ch"), "aws:///r1/ch-2", map[string]any{"nodeRef": map[string]any{"name": "ch-2"}})
	s.look()
	s.later(11 * time.Minute)
	s.look()
	s.look()
	s.waitsFor("written", a, "True AsExpected")
	s.end("ch")
}

// clock returns what sets the time back: stories after this one begin now.
func (s *site) clock() func() {
	before := s.now
	s.now = time.Now().Truncate(time.Second)
	return func() { s.now = before; s.restart() }
}

// testCanaryRights: the identity of the controller makes and removes nothing but canaries, and
// a policy cannot ask for what cannot be.
func (s *site) testCanaryRights() {
	s.t.Helper()
	c := s.client(apitest.As(s.cfg, apitest.ControllerUser))
	for what, o := range map[string]*unstructured.Unstructured{"delete": s.get(capiV, "MachineDeployment", "canary", "a"), "create": nil} {
		var err error
		if o != nil {
			err = c.Delete(context.Background(), o)
		} else {
			o = s.get(capiV, "MachineDeployment", "canary", "a").DeepCopy()
			o.SetName("mine")
			o.SetResourceVersion("")
			err = c.Create(context.Background(), o)
		}
		if err == nil || !strings.Contains(err.Error(), "marked as canaries") {
			s.t.Errorf("%s: %v", what, err)
		}
	}
	p := &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "impossible"}, Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"v1.36"},
		Managers: []v1alpha1.MachineSelection{{Group: "cluster.x-k8s.io", Kind: "MachineDeployment", Namespaces: []string{"none"}, Mode: "Observe", Canary: &v1alpha1.BootImageCanary{Mode: "Replica"}}}}}
	if err := s.admin.Create(context.Background(), p.DeepCopy()); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "modes that write") {
		s.t.Errorf("mode Observe: %v", err)
	}
	p.Spec.Managers[0].Group, p.Spec.Managers[0].Kind, p.Spec.Managers[0].Mode = "controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "Roll"
	if err := s.admin.Create(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	s.expect("a control plane has no canary", says(s.policy("impossible").Status.Conditions, v1alpha1.ConditionStalled), "True BootImageUnknown spec.managers[0].canary: a KubeadmControlPlane cannot be copied")
	s.end("impossible")
}

// testCanaryRefused: after two machines that could not be used nothing is written, and a person
// decides.
func testCanaryRefused(s *site) {
	defer s.clock()()
	s.namespace("candidate")
	s.make(awsTemplate("candidate", "w", "ami-135"))
	s.make(deployment("candidate", "a", "OnDelete", "w", "v1.36.3"))
	s.make(deployment("candidate", "b", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("candidate", "candidate", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", oneMachine))
	a, b := "machinedeployment.candidate.a", "machinedeployment.candidate.b"
	s.look()
	first := s.canary("candidate")
	s.machine(capiV, "candidate", "m1", first, "aws:///r1/m1", map[string]any{"phase": "Provisioned"})
	_, made, err := convert.NewJoinToken("w", s.now.Add(time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	made.Annotations[convert.AnnotationRefused], made.Annotations[convert.AnnotationRefusedFrom] = "This machine cannot join pool w: too old", "10.9.8.1"
	made.Annotations[convert.AnnotationRefusedAt], made.Annotations[convert.AnnotationMachine] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339), "candidate/m1"
	if err := s.admin.Create(context.Background(), &corev1.Secret{ObjectMeta: made}); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	s.waitsFor("the first is refused", a, "False BootImageCanary the canary for ami-136 (9.6.20251023-0) failed (1 of 2): machine candidate/m1: This machine cannot join pool w: too old")
	s.look()
	second := s.canary("candidate")
	if second.GetName() == first.GetName() {
		s.t.Error("the second machine has a manager of its own")
	}
	s.later(61 * time.Minute)
	s.look()
	s.waitsFor("the second does not join", a, "False BootImageCanaryFailed 2 canaries for ami-136 (9.6.20251023-0) failed, so refit does not write it", "was not Ready 1h0m0s after its start", "refit bootimage retry SOURCE")
	s.look()
	none := func(what string) {
		s.t.Helper()
		if n := len(s.canaries(capiV, "MachineDeployment", "candidate")); n != 0 || refOf(s.get(capiV, "MachineDeployment", "candidate", "a")) != "w" || refOf(s.get(capiV, "MachineDeployment", "candidate", "b")) != "w" {
			s.t.Errorf("%s: %d canaries", what, n)
		}
	}
	none("after two failures")
	s.waitsFor("others do not begin", b, "False BootImageCanary", "until the canary of MachineSource "+a)
	s.later(100 * time.Hour)
	s.look()
	none("nothing begins again by itself")
	decide := func(source, action string) {
		s.t.Helper()
		o := s.source(source)
		o.Spec.Canary = &v1alpha1.CanaryDecision{Image: "ami-136", Action: action, By: "ann", At: metav1.NewTime(s.now)}
		if err := s.admin.Update(context.Background(), o); err != nil {
			s.t.Fatal(err)
		}
	}
	decide(a, "Retry")
	s.look()
	if third := s.canary("candidate"); third.GetName() == second.GetName() || third.GetName() == first.GetName() {
		s.t.Errorf("a retry has a manager of its own: %s", third.GetName())
	}
	s.later(time.Hour)
	decide(a, "Accept")
	s.look()
	if len(s.source(a).Status.History) != 1 {
		s.t.Errorf("accepted: %+v", s.source(a).Status)
	}
	s.end("candidate")
	s.look()
	if len(s.canaries(capiV, "MachineDeployment", "candidate")) != 0 {
		s.t.Error("without a policy no canary stays")
	}
}

// testCanaryCrash cuts the line at every write until the image is written.
func testCanaryCrash(s *site) {
	defer s.clock()()
	for n := 1; n <= 9; n++ {
		for _, after := range []bool{false, true} {
			ns := fmt.Sprintf("boot-%d-%t", n, after)
			s.namespace(ns)
			s.make(awsTemplate(ns, "w", "ami-135"))
			s.make(deployment(ns, "workers", "OnDelete", "w", "v1.36.3"))
			s.make(policyOf("boot", ns, "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", oneMachine))
			most, left, booted := 0, n, false
			for range 7 {
				s.line.writes, s.line.cut, s.line.after = nil, left, after
				_, _ = s.r.Reconcile(context.Background(), ctrl.Request{})
				if left -= len(s.line.writes); left <= 0 {
					left = 0
				}
				s.line.cut = 0
				s.restart()
				l := s.canaries(capiV, "MachineDeployment", ns)
				if most = max(most, len(l)); len(l) == 1 && !booted {
					s.boot(ns, ns, "")
					booted = true
					s.later(20 * time.Minute)
				}
			}
			src := s.source("machinedeployment." + ns + ".workers")
			if st := src.Status; most != 1 || len(s.canaries(capiV, "MachineDeployment", ns)) != 0 || st.State != v1alpha1.SourceCurrent || len(st.History) != 1 || st.Canary == nil || st.Canary.PassedAt == nil || len(st.Canary.Failures) != 0 {
				s.t.Errorf("%s: %d canaries at once, %+v", ns, most, st)
			}
			if w := s.look(); len(w) != 0 || len(s.list(infraV, "AWSMachineTemplate", ns)) != 2 {
				s.t.Errorf("%s: it does not come to rest: %v", ns, w)
			}
			s.end("boot")
			s.look()
			s.now = time.Now().Truncate(time.Second)
			if err := s.admin.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}); client.IgnoreNotFound(err) != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// testCanaryOpenShift: the copy holds the image itself, and its machines are not those of the set.
func testCanaryOpenShift(s *site) {
	defer s.clock()()
	const v = "machine.openshift.io/v1beta1"
	s.namespace("canary-ocp")
	s.make(fmt.Sprintf(`
apiVersion: %s
kind: MachineSet
metadata: {name: w, namespace: canary-ocp, annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: kubernetes.io/arch=amd64}}
spec:
  replicas: 2
  selector: {matchLabels: {machine.openshift.io/cluster-api-cluster: c, machine.openshift.io/cluster-api-machineset: w}}
  template:
    metadata: {labels: {machine.openshift.io/cluster-api-cluster: c, machine.openshift.io/cluster-api-machineset: w, machine.openshift.io/cluster-api-machine-role: worker}}
    spec: {providerSpec: {value: {apiVersion: machine.openshift.io/v1beta1, kind: GCPMachineProviderSpec, region: r9, disks: [{boot: true, image: projects/p/global/images/i-135}]}}}
`, v)[1:])
	s.make(policyOf("canary-ocp", "canary-ocp", "machine.openshift.io", "MachineSet", "NewMachinesOnly", oneMachine))
	s.look()
	l := s.canaries(v, "MachineSet", "canary-ocp")
	if len(l) != 1 {
		s.t.Fatalf("%d canaries: %+v", len(l), s.source("machineset.machine.canary-ocp.w").Status)
	}
	labels, _, _ := unstructured.NestedStringMap(l[0].Object, "spec", "template", "metadata", "labels")
	if text := without(s.t, &l[0]); !strings.Contains(text, "i-136") || strings.Contains(text, "i-135") || labels["machine.openshift.io/cluster-api-machineset"] != l[0].GetName() ||
		labels["machine.openshift.io/cluster-api-cluster"] != "c" || labels["machine.openshift.io/cluster-api-machine-role"] != "worker" {
		s.t.Errorf("%s %v", text, labels)
	}
	if text := without(s.t, s.get(v, "MachineSet", "canary-ocp", "w")); strings.Contains(text, "i-136") {
		s.t.Errorf("the set was written: %s", text)
	}
	s.node("canary-ocp", "v1.36.3", "", nil)
	s.machine(v, "canary-ocp", "m", &l[0], "", map[string]any{"nodeRef": map[string]any{"name": "canary-ocp"}})
	s.later(20 * time.Minute)
	for range 3 {
		s.look()
	}
	if text := without(s.t, s.get(v, "MachineSet", "canary-ocp", "w")); !strings.Contains(text, "i-136") || len(s.canaries(v, "MachineSet", "canary-ocp")) != 0 {
		s.t.Errorf("%s", text)
	}
	s.end("canary-ocp")
}
