package bootimages_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/convert"
)

// machine of Cluster API or OpenShift that an object owns.
func (s *site) machine(apiVersion, ns, name string, owner *unstructured.Unstructured, provider string, status map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	spec := fmt.Sprintf("{clusterName: c1, providerID: %q, bootstrap: {dataSecretName: x}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSMachine, name: %s}}", provider, name)
	if strings.HasPrefix(apiVersion, "machine.openshift.io") {
		spec = fmt.Sprintf("{providerID: %q}", provider)
	}
	s.make(fmt.Sprintf(`
apiVersion: %s
kind: Machine
metadata:
  name: %s
  namespace: %s
  ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true}]
spec: %s`, apiVersion, name, ns, owner.GetAPIVersion(), owner.GetKind(), owner.GetName(), owner.GetUID(), spec)[1:])
	m := s.get(apiVersion, "Machine", ns, name)
	s.status(m, "machine-controller", status)
	return m
}

// status replaces the status as another client.
func (s *site) status(o *unstructured.Unstructured, who string, status map[string]any) {
	s.t.Helper()
	o.Object["status"] = status
	if err := s.admin.Status().Update(context.Background(), o, client.FieldOwner(who)); err != nil {
		s.t.Fatal(err)
	}
}

// conditionsOf an object, as "type status reason message" by type.
func conditionsOf(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		m, _ := c.(map[string]any)
		out[fmt.Sprint(m["type"])] = fmt.Sprint(m["status"], " ", m["reason"], " ", m["message"])
	}
	return out
}

func ready(status string) map[string]any {
	return map[string]any{"type": "Ready", "status": status, "reason": "Theirs", "message": "of others", "lastTransitionTime": "2026-11-20T00:00:00Z"}
}

// events returns those emitted since the last call.
func (s *site) events() []string {
	var out []string
	for {
		select {
		case e := <-s.recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// testProvenance: which node came from where, and what a machine that cannot join
// says.
func testProvenance(s *site) {
	s.namespace("prov")
	s.events()
	s.make(awsTemplate("prov", "w", "ami-134"))
	s.make(deployment("prov", "workers", "OnDelete", "w", "v1.36.3"))
	md := s.get(capiV, "MachineDeployment", "prov", "workers")
	s.make(fmt.Sprintf(`
apiVersion: %s
kind: MachineSet
metadata: {name: workers-1, namespace: prov, ownerReferences: [{apiVersion: %s, kind: MachineDeployment, name: workers, uid: %s, controller: true}]}
spec: {clusterName: c1, replicas: 3, selector: {matchLabels: {pool: workers}}, template: {metadata: {labels: {pool: workers}}, spec: {clusterName: c1, version: v1.36.3, bootstrap: {dataSecretName: x}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSMachineTemplate, name: w}}}}`, capiV, capiV, md.GetUID())[1:])
	ms := s.get(capiV, "MachineSet", "prov", "workers-1")
	s.nodeOf("prov-1", "aws:///r1/i-1", v1alpha1.Observed{InstalledImage: "9.2.20240101-0", Machine: map[string]string{"cpu": "x86-64-v2", "shim": "15.4"}})
	s.nodeOf("prov-2", "aws:///r1/i-2", v1alpha1.Observed{InstalledImage: "9.4.20250101-0", Machine: map[string]string{"cpu": "x86-64-v3"}})
	s.nodeOf("prov-3", "aws:///r1/i-3", v1alpha1.Observed{InstalledImage: "9.6.20251023-0"})
	s.machine(capiV, "prov", "m1", ms, "aws:///r1/i-1", map[string]any{"nodeRef": map[string]any{"name": "prov-1"}})
	s.machine(capiV, "prov", "m2", ms, "aws:///r1/i-2", map[string]any{"phase": "Provisioned"}) // by its provider's name alone
	s.machine(capiV, "prov", "elsewhere", ms, "aws:///r9/i-9", map[string]any{"nodeRef": map[string]any{"name": "prov-3"}})
	s.machine(capiV, "prov", "m4", ms, "aws:///r1/i-4", map[string]any{"conditions": []any{ready("False")}})
	s.make(policyOf("prov", "prov", "cluster.x-k8s.io", "MachineDeployment", "Observe", "") + "  skew: {rules: [{name: cpu, targets: ['1.38'], minimumFacts: {cpu: x86-64-v3}}]}\n")
	s.look()
	const name = "machinedeployment.prov.workers"
	src := s.source(name)
	if st := src.Status; st.Nodes != 2 || st.Joining != 1 || len(st.InstalledImages) != 2 || len(st.Machines) != 2 || st.Machines[0] != (v1alpha1.MachineFact{Name: "cpu", Least: "x86-64-v2", Nodes: 1, Example: "prov-1"}) ||
		st.Machines[1] != (v1alpha1.MachineFact{Name: "shim", Least: "15.4", Nodes: 1, Example: "prov-1", Silent: 1}) {
		s.t.Errorf("what came from it: %+v", st)
	}
	cpu := ""
	for _, f := range src.Status.Skew {
		if f.Rule == "cpu" {
			cpu = f.Target + ": " + f.Message
		}
	}
	s.expect("an old processor keeps a release back", cpu, "1.38.0: node prov-1 has cpu x86-64-v2, at least x86-64-v3 is wanted")
	s.expect("the source", says(src.Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageTooOld")

	machine := func(n string) map[string]string { return conditionsOf(s.get(capiV, "Machine", "prov", n)) }
	const kind = v1alpha1.ConditionMachineImage
	s.expect("it says why it cannot join", machine("m4")[kind], "False BootImageTooOld MachineSource "+name+": its image is of release 1.34.1, at least 1.35.0 is wanted")
	if got := machine("m4")["Ready"]; got != "False Theirs of others" || len(machine("m1")) != 0 {
		s.t.Errorf("others' conditions, and machines that joined, are left alone: %q %v", got, machine("m1"))
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	// its own controller writes all conditions again
	joining := s.get(capiV, "Machine", "prov", "m4")
	list, _, _ := unstructured.NestedSlice(joining.Object, "status", "conditions")
	for i, c := range list {
		if c.(map[string]any)["type"] == "Ready" {
			list[i] = ready("Unknown")
		}
	}
	s.status(joining, "machine-controller", map[string]any{"conditions": list})
	s.restart()
	s.look()
	events := 0
	for _, e := range s.events() {
		if strings.Contains(e, "MachineSource "+name) {
			events++
		}
	}
	if events != 1 { // over three reconciles and a restart
		s.t.Errorf("%d events of one machine", events)
	}
	// it joined after all
	s.status(s.get(capiV, "Machine", "prov", "m4"), "machine-controller", map[string]any{"nodeRef": map[string]any{"name": "prov-4"}, "conditions": s.get(capiV, "Machine", "prov", "m4").Object["status"].(map[string]any)["conditions"]})
	s.look()
	if got := machine("m4"); got[kind] != "" || got["Ready"] != "Unknown Theirs of others" {
		s.t.Errorf("fixed: %v", got)
	}
	testForeignCondition(s, ms)
	s.end("prov")
}

// testForeignCondition: refit does not change a condition of that name that another
// field manager owns.
func testForeignCondition(s *site, owner *unstructured.Unstructured) {
	theirs := map[string]any{"type": v1alpha1.ConditionMachineImage, "status": "True", "reason": "Theirs", "message": "mine", "lastTransitionTime": "2026-11-20T00:00:00Z"}
	s.machine(capiV, "prov", "m5", owner, "aws:///r1/i-5", map[string]any{"conditions": []any{theirs}})
	s.events()
	s.look()
	if got := conditionsOf(s.get(capiV, "Machine", "prov", "m5"))[v1alpha1.ConditionMachineImage]; got != "True Theirs mine" || len(s.events()) != 0 {
		s.t.Errorf("taken from another field manager: %s", got)
	}
}

// testRefused: the server or the machine's own check refused it; the Machine (in
// OpenShift's shape) and the source show it.
func testRefused(s *site) {
	const v = "machine.openshift.io/v1beta1"
	objs, err := config.Joins()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range objs {
		if err := s.admin.Create(context.Background(), o); err != nil {
			s.t.Fatal(err)
		}
	}
	s.namespace("refused")
	s.make(fmt.Sprintf(`
apiVersion: %s
kind: MachineSet
metadata: {name: w, namespace: refused}
spec: {template: {spec: {providerSpec: {value: {kind: GCPMachineProviderSpec, disks: [{boot: true, image: projects/p/global/images/i-136}]}}}}}`, v)[1:])
	set := s.get(v, "MachineSet", "refused", "w")
	s.machine(v, "refused", "by-address", set, "", map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.9.9.1"}}})
	s.machine(v, "refused", "by-name", set, "", map[string]any{"phase": "Provisioned"})
	s.machine(v, "refused", "neither", set, "", map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "10.9.9.3"}}})
	refuse := func(from, machine string, at time.Time) *corev1.Secret {
		_, made, err := convert.NewJoinToken("w", s.now.Add(time.Hour))
		if err != nil {
			s.t.Fatal(err)
		}
		made.Annotations[convert.AnnotationRefused], made.Annotations[convert.AnnotationRefusedFrom] = "This machine cannot join pool w: too old", from
		made.Annotations[convert.AnnotationRefusedAt], made.Annotations[convert.AnnotationMachine] = at.UTC().Format(time.RFC3339), machine
		record := &corev1.Secret{ObjectMeta: made}
		if err := s.admin.Create(context.Background(), record); err != nil {
			s.t.Fatal(err)
		}
		return record
	}
	later := time.Now().Add(time.Minute)
	first := refuse("10.9.9.1", "", later)
	refuse("10.9.9.7", "refused/by-name", later)
	refuse("10.9.9.3", "", time.Now().Add(-time.Hour)) // another machine had that address before
	s.make(policyOf("refused", "refused", "machine.openshift.io", "MachineSet", "NewMachinesOnly", ""))
	const kind = v1alpha1.ConditionMachineImage
	machine := func(n string) string { return conditionsOf(s.get(v, "Machine", "refused", n))[kind] }
	s.events()
	for end := time.Now().Add(30 * time.Second); machine("by-address") == "" && time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // the authorizer hears of new rights in its time
		s.look()
	}
	for _, n := range []string{"by-address", "by-name"} {
		s.expect(n, machine(n), "False BootImageTooOld This machine cannot join pool w: too old")
	}
	if got := machine("neither"); got != "" {
		s.t.Errorf("a refusal of another machine: %s", got)
	}
	list, _, _ := unstructured.NestedSlice(s.get(v, "Machine", "refused", "by-name").Object, "status", "conditions")
	if len(list) != 1 || list[0].(map[string]any)["severity"] != "Warning" {
		s.t.Errorf("OpenShift's shape: %v", list)
	}
	src := s.source("machineset.machine.refused.w")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageTooOld machine refused/by-address could not join: This machine cannot join pool w")
	if len(src.Status.Refused) != 2 || src.Status.Joining != 3 || len(s.events()) != 2 {
		s.t.Errorf("%+v", src.Status)
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	if err := s.admin.Delete(context.Background(), first); err != nil { // its record has ended
		s.t.Fatal(err)
	}
	s.look()
	if got := machine("by-address"); got != "" {
		s.t.Errorf("not true any more: %s", got)
	}
	s.end("refused")
}

// nodeOf a machine, as its provider and its agent say it.
func (s *site) nodeOf(name, provider string, o v1alpha1.Observed) {
	s.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: provider}}
	if err := s.admin.Create(context.Background(), n); err != nil {
		s.t.Fatal(err)
	}
	n.Status = corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", Architecture: "amd64"}}
	if err := s.admin.Status().Update(context.Background(), n); err != nil {
		s.t.Fatal(err)
	}
	nu := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name}}
	if err := s.client(apitest.As(s.cfg, apitest.ControllerUser)).Create(context.Background(), nu); err != nil {
		s.t.Fatal(err)
	}
	nu.Status.Observed = &o
	if err := s.client(apitest.AsNode(s.cfg, name)).Status().Update(context.Background(), nu); err != nil {
		s.t.Fatal(err)
	}
}

// certificate of an authority that ends at a time.
func (s *site) certificate(end time.Time) string {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// stub as OpenShift makes it, with numbers and spaces that a JSON library would
// write otherwise.
func stub(ca, more string) string {
	return `{ "ignition":{"config":{"merge":[{"source":"https://api-int.c1:22623/config/worker"}]},"security":{"tls":{"certificateAuthorities":[{"source":"` + ca + `"}` + more + `]}},"version":"3.2.0"}, "storage": {"size": 1.50e2,"x":"<&>"} }`
}

func sourceOf(pem string) string {
	return "data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(pem))
}

// The server's authority rotates, and every first-boot configuration
// that selected managers refer to gets it.
func testAuthority(s *site) {
	s.namespace("ca")
	ctx := context.Background()
	const v = "machine.openshift.io/v1beta1"
	for name, data := range map[string]string{"worker-user-data-managed": stub("data:,old", ""), "custom": stub("data:,old", ""), "two": stub("data:,old", `,{"source":"data:,b"}`),
		"elsewhere": strings.ReplaceAll(stub("data:,old", ""), "api-int.c1:22623", "mine:1"), "cloud": "#cloud-config"} {
		if err := s.admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ca", Name: name, Labels: map[string]string{"keep": "me"}}, Data: map[string][]byte{"userData": []byte(data), "disableTemplating": []byte("true")}}, client.FieldOwner("installer")); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, secret := range map[string]string{"a": "worker-user-data-managed", "b": "worker-user-data-managed", "c": "custom", "d": "two", "e": "elsewhere", "f": "cloud"} {
		s.make(fmt.Sprintf(`
apiVersion: %s
kind: MachineSet
metadata: {name: %s, namespace: ca}
spec: {template: {spec: {providerSpec: {value: {kind: GCPMachineProviderSpec, disks: [{boot: true, image: projects/p/global/images/i-136}], userDataSecret: {name: %s}}}}}}`, v, name, secret)[1:])
	}
	s.make(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user-data, namespace: ca}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: refit-boot-images-user-data}
subjects: [{kind: ServiceAccount, name: refit-controller, namespace: refit-system}]`[1:])
	first, second, ended := s.certificate(s.now.Add(24*time.Hour)), s.certificate(s.now.Add(48*time.Hour)), s.certificate(s.now.Add(-time.Hour))
	server := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ca", Name: "machine-config-server-ca"}, Data: map[string]string{"ca-bundle.crt": first}}
	if err := s.admin.Create(ctx, server); err != nil {
		s.t.Fatal(err)
	}
	s.make(policyOf("ca", "ca", "machine.openshift.io", "MachineSet", "Observe", "") + "  authority: {configMap: {namespace: ca, name: machine-config-server-ca}, servers: ['api-int.c1:22623']}\n")
	data := func(name string) string {
		o := &corev1.Secret{}
		if err := s.admin.Get(ctx, client.ObjectKey{Namespace: "ca", Name: name}, o); err != nil {
			s.t.Fatal(err)
		}
		if o.Labels["keep"] != "me" || string(o.Data["disableTemplating"]) != "true" {
			s.t.Errorf("something else of Secret %s was changed: %v", name, o)
		}
		return string(o.Data["userData"])
	}
	says := func(source string) string {
		return says(s.source("machineset.machine.ca."+source).Status.Conditions, v1alpha1.ConditionAuthority)
	}
	mode := func(m v1alpha1.BootImageMode) {
		p := s.policy("ca")
		p.Spec.Managers[0].Mode = m
		if err := s.admin.Update(ctx, p); err != nil {
			s.t.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // the authorizer hears of new rights in its time
		s.look()
		if !strings.Contains(says("a"), "forbidden") {
			break
		}
	}
	s.expect("a mode that does not write", says("a"), "False AuthorityOutdated Secret ca/worker-user-data-managed", "mode Observe writes nothing")
	if data("custom") != stub("data:,old", "") {
		s.t.Error("mode Observe wrote")
	}
	mode("NewMachinesOnly")
	secrets := 0
	for _, w := range s.look() {
		if strings.Contains(w, "/secrets/") {
			secrets++
		}
	}
	want := stub(sourceOf(first), "")
	if data("worker-user-data-managed") != want || data("custom") != want || secrets != 2 {
		s.t.Errorf("every other byte stays, two writes: %d\n%s\n%s", secrets, data("worker-user-data-managed"), want)
	}
	for name, is := range map[string]string{"a": "True AsExpected", "b": "True AsExpected", "c": "True AsExpected", "d": "False AuthorityUnusable Secret ca/two: it has 2 certificate authorities",
		"e": "True AsExpected Secret ca/elsewhere: it fetches from mine:1", "f": "True AsExpected Secret ca/cloud: it is no Ignition configuration"} {
		s.expect(name, says(name), is)
	}
	if data("two") != stub("data:,old", `,{"source":"data:,b"}`) || data("cloud") != "#cloud-config" || strings.Contains(data("elsewhere"), "base64") {
		s.t.Error("what is none of ours was changed")
	}
	if n := len(s.source("machineset.machine.ca.b").Status.Authority.Writes); n != 1 {
		s.t.Errorf("the write is in the records of all that refer to it: %d", n)
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	rotate := func(to string) {
		server.Data["ca-bundle.crt"] = to
		if err := s.admin.Update(ctx, server); err != nil {
			s.t.Fatal(err)
		}
		s.look()
	}
	rotate(ended)
	s.expect("an authority that has ended is given to nobody", says("a"), "False AuthorityUnusable", "expired at")
	if data("custom") != want {
		s.t.Error("an authority that has ended was written")
	}
	rotate(second)
	want = stub(sourceOf(second), "")
	if data("custom") != want || data("worker-user-data-managed") != want {
		s.t.Error("the next authority did not come")
	}
	testAuthorityContested(s, want, data, says)
	s.end("ca")
}

// testAuthorityContested: another client removes the authority again and again.
func testAuthorityContested(s *site, want string, data func(string) string, says func(string) string) {
	undo := func(who string) {
		o := s.get("v1", "Secret", "ca", "custom")
		s.merge(o, who, fmt.Sprintf(`{"data":{"userData":%q}}`, base64.StdEncoding.EncodeToString([]byte(stub("data:,older", "")))))
	}
	for i := range 2 { // the first write of this authority was the rotation's
		undo("night-script")
		s.now = s.now.Add(time.Minute)
		s.restart()
		s.look()
		if data("custom") != want {
			s.t.Fatalf("write %d did not come", i+1)
		}
	}
	undo("night-script")
	s.restart()
	s.look()
	s.expect("writing stops", says("c"), "False AuthorityContested Secret ca/custom: the server's authority was written 3 times and reverted by night-script")
	s.restart()
	if w := s.look(); len(w) != 0 || data("custom") == want {
		s.t.Errorf("after a restart as well: %v", w)
	}
	s.now = s.now.Add(70 * time.Minute)
	s.look()
	if data("custom") != want {
		s.t.Error("after a quiet time it is tried again")
	}
	undo("argocd-controller")
	s.look()
	s.expect("a tool that brings back what it wrote", says("c"), "False AuthorityOutdated", "argocd-controller writes it")
}
