package bootimages_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

const (
	capiV    = "cluster.x-k8s.io/v1beta2"
	infraV   = "infrastructure.cluster.x-k8s.io/v1beta2"
	controlV = "controlplane.cluster.x-k8s.io/v1beta2"
)

// streams of two releases, and a policy over them.
const streams = `
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: v1.35}
spec:
  inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.35.4","images":[
    {"architecture":"amd64","platform":"aws","region":"r1","version":"9.4.20250101-0","attributes":{"image":"ami-135"}},
    {"architecture":"arm64","platform":"aws","region":"r1","version":"9.4.20250101-0","attributes":{"image":"ami-135-arm"}},
    {"architecture":"amd64","platform":"gcp","version":"9.4.20250101-0","attributes":{"selfLink":"projects/p/global/images/i-135"}},
    {"architecture":"amd64","platform":"mine","version":"9.4.20250101-0","attributes":{"image":"mine-135"}}]}'
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: v1.36}
spec:
  rules: [{name: from-135, targets: ["1.36"], minimumRelease: 1.35.0}]
  inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[
    {"architecture":"amd64","platform":"aws","region":"r1","version":"9.6.20251023-0","attributes":{"image":"ami-136"}},
    {"architecture":"arm64","platform":"aws","region":"r1","version":"9.6.20251023-0","attributes":{"image":"ami-136-arm"}},
    {"architecture":"amd64","platform":"gcp","version":"9.6.20251023-0","attributes":{"selfLink":"projects/p/global/images/i-136"}},
    {"architecture":"amd64","platform":"mine","version":"9.6.20251023-0","attributes":{"image":"mine-136"}}]}'
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: v1.34}
spec:
  inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.34.1","images":[
    {"architecture":"amd64","platform":"aws","region":"r1","version":"9.2.20240101-0","attributes":{"image":"ami-134"}},
    {"architecture":"amd64","platform":"gcp","version":"9.2.20240101-0","attributes":{"selfLink":"projects/p/global/images/i-134"}},
    {"architecture":"amd64","platform":"mine","version":"9.2.20240101-0","attributes":{"image":"mine-134"}}]}'
`

// policyOf selects one kind in one namespace.
func policyOf(name, ns, group, kind, mode, more string) string {
	return fmt.Sprintf(`
apiVersion: refit.dev/v1alpha1
kind: BootImagePolicy
metadata: {name: %s}
spec:
  streams: [v1.34, v1.35, v1.36]
  managers: [{group: %q, kind: %s, mode: %s, namespaces: [%s], region: r1, architecture: amd64%s}]
`, name, group, kind, mode, ns, more)
}

func awsTemplate(ns, name, image string) string {
	return fmt.Sprintf(`
apiVersion: %s
kind: AWSMachineTemplate
metadata: {name: %s, namespace: %s, labels: {cluster.x-k8s.io/cluster-name: c1}, annotations: {argocd.argoproj.io/tracking-id: x, note: mine}}
spec: {template: {spec: {ami: {id: %s}, instanceType: m6i.large, rootVolume: {size: 9007199254740993, ratio: 2.5}, notYetInvented: {deep: [1, null, {x: "y"}]}}}}
`, infraV, name, ns, image)
}

func deployment(ns, name, strategy, template, version string) string {
	return fmt.Sprintf(`
apiVersion: %s
kind: MachineDeployment
metadata: {name: %s, namespace: %s}
spec:
  clusterName: c1
  replicas: 3
  selector: {matchLabels: {pool: %s}}
  rollout: {strategy: {type: %s}}
  template:
    metadata: {labels: {pool: %s}}
    spec:
      clusterName: c1
      version: %s
      bootstrap: {dataSecretName: x}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSMachineTemplate, name: %s}
`, capiV, name, ns, name, strategy, name, version, template)
}

func controlPlane(ns, template, version string) string {
	return fmt.Sprintf(`
apiVersion: %s
kind: KubeadmControlPlane
metadata: {name: cp, namespace: %s}
spec:
  replicas: 3
  version: %s
  kubeadmConfigSpec: {format: cloud-config}
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSMachineTemplate, name: %s}}}
`, controlV, ns, version, template)
}

func (s *site) namespace(name string) {
	s.t.Helper()
	s.make("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}")
}

// end takes a policy away and decides about its sources, so that the next story stands alone.
func (s *site) end(policy string) {
	s.t.Helper()
	if err := s.admin.Delete(context.Background(), &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}); err != nil {
		s.t.Fatal(err)
	}
	var all v1alpha1.MachineSourceList
	if err := s.admin.List(context.Background(), &all); err != nil {
		s.t.Fatal(err)
	}
	for i := range all.Items {
		if o := &all.Items[i]; o.Spec.Skew == "" && o.Spec.Manager != nil {
			o.Spec.Skew = "None"
			if err := s.admin.Update(context.Background(), o); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func refOf(o *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "infrastructureRef", "name")
	return name
}

// One API server, one story after the other, each in a namespace of its own.
func TestBootImages(t *testing.T) {
	s := newSite(t)
	s.node("cp1", "v1.36.3", "", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	s.make(strings.TrimSpace(streams))
	for _, story := range []struct {
		name string
		run  func(*site)
	}{
		{"streams say what they are for", testStreams},
		{"one node, or images of the release: nothing is enforced", testNothingToEnforce},
		{"A2 A5 a MachineDeployment with OnDelete gets the new image, every other field survives", testOnDelete},
		{"A1 a MachineDeployment that rolls is not written, and says why", testRolling},
		{"A3 a control plane gets version and image in one write", testPiggyback},
		{"A4 an image that is newer is left alone", testNewer},
		{"A6 another field manager owns the field", testOwned},
		{"A7 who undoes it is named, writing stops and begins again after quiet", testContested},
		{"A8 a custom image is unknown and a violation unless waived", testCustom},
		{"A9 a declaration that a joining node contradicts", testDeclared},
		{"A10 one major step of the OS is allowed, two are refused, a waiver holds until its end", testMajorStep},
		{"A11 a first-boot configuration is converted before the image, or the image stays", testUserData},
		{"A12 the target's policy keeps a minor version back, a patch passes", testTargetBlocked},
		{"an image that must be out for some days is written after them", testSoak},
		{"a policy that is deleted leaves a decision to a person", testPolicyDeleted},
		{"nothing is written while an update or a rollout runs", testUpdateRuns},
		{"an image is rolled back, stays rejected, and a newer one follows", testRollback},
		{"an image that the policy refuses is never written", testRefusedImage},
		{"a crash at every write of a rollback converges", testRollbackCrash},
		{"A13 a crash at every write converges", testCrash},
		{"Partial selects by labels, and skew is automatic only where all is written", testSelection},
		{"mode Roll waits for its window", testRollWindow},
		{"a write that fails is no history, and does not stop the next object", testFailingWrite},
		{"A14 excluded objects never look current", testExcluded},
		{"what is not ours is not collected, what is not used is", testCollect},
		{"OpenShift's machine sets are written in place", testOpenShift},
		{"a node class drifts unless it is held", testKarpenter},
		{"rows of users", testRows},
		{"the vendor's own image of another release is stock", testStock},
		{"a file is named when it was uploaded", testUploads},
		{"the region is that of the infrastructure", testRegion},
		{"a template that makes old Ignition keeps its image", testOldIgnition},
		{"a node class is of the nodes' region", testRegionOfNodes},
		{"installed images by Machine and owner, and the condition of a machine that cannot join", testProvenance},
		{"a machine that was refused says so in OpenShift's shape", testRefused},
		{"one machine starts from a new image before it is written", testCanary},
		{"the health checks of the pool decide about a canary", testCanaryHealth},
		{"two machines that cannot join refuse a candidate", testCanaryRefused},
		{"a crash at every write of a canary converges", testCanaryCrash},
		{"a canary of OpenShift's machine sets", testCanaryOpenShift},
		{"the authority of first-boot configurations rotates", testAuthority},
		{"a template that cannot be read once is no news", testUnread},
		{"a kind that may not be read is reported, and nothing is forgotten", testForbidden},
	} {
		t.Run(story.name, func(t *testing.T) {
			s.t = t
			story.run(s)
			s.t = t
		})
		s.t = t
	}
}

func testStreams(s *site) {
	s.make(`
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: bad}
spec: {inline: '{"architectures":{}}'}
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: later}
spec: {kubernetes: 1.37.0, release: 4.24.0, configMap: {namespace: refit-nodes, name: coreos-bootimages}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coreos-bootimages, namespace: refit-nodes}
data: {releaseVersion: 4.24.0, stream: '{"architectures":{"x86_64":{"images":{"gcp":{"release":"9.8.20260101-0","project":"p","name":"n"}}}}}'}
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: nameless}
spec: {release: 4.24.0, inline: '{"architectures":{"x86_64":{"images":{"gcp":{"release":"9.8.20260101-0","project":"p","name":"n"}}}}}'}`[1:])
	s.look()
	for name, want := range map[string]string{
		"v1.36": "True AsExpected 4 images for release 1.36.3", "bad": "False StreamUnusable boot image stream: it holds no image",
		"later": "False StreamNotStamped it is for Kubernetes 1.37.0", "nameless": "False StreamNotStamped the Kubernetes version of release 4.24.0 is unknown",
	} {
		o := &v1alpha1.BootImageStream{}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Name: name}, o); err != nil {
			s.t.Fatal(err)
		}
		s.expect(name, says(o.Status.Conditions, v1alpha1.ConditionReady), want)
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	for _, name := range []string{"bad", "later", "nameless"} {
		if err := s.admin.Delete(context.Background(), &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func testOnDelete(s *site) {
	s.namespace("a2")
	s.make(awsTemplate("a2", "w", "ami-135"))
	s.make(deployment("a2", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("a2", "a2", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	before := s.get(infraV, "AWSMachineTemplate", "a2", "w")
	md := s.get(capiV, "MachineDeployment", "a2", "workers")
	writes := s.look()
	after := s.get(capiV, "MachineDeployment", "a2", "workers")
	clone := s.get(infraV, "AWSMachineTemplate", "a2", refOf(after))
	if a, b := without(s.t, before, "ami-135"), without(s.t, clone, "ami-136"); a != b || strings.Contains(a, "ami-1") {
		s.t.Errorf("fields are lost:\n%s\n%s", a, b)
	}
	if a, b := without(s.t, md, `"w"`), without(s.t, after, `"`+refOf(after)+`"`); a != b || after.GetGeneration() != md.GetGeneration()+1 {
		s.t.Errorf("one write changes the reference alone:\n%s\n%s", a, b)
	}
	if now := s.get(infraV, "AWSMachineTemplate", "a2", "w"); now.GetResourceVersion() != before.GetResourceVersion() {
		s.t.Error("the old template was touched")
	}
	if an := clone.GetAnnotations(); an["note"] != "mine" || an["argocd.argoproj.io/tracking-id"] != "" || len(clone.GetOwnerReferences()) != 0 {
		s.t.Errorf("marks of others are not taken over: %v", an)
	}
	src := s.source("machinedeployment.a2.workers")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "True AsExpected", "ami-136 (9.6.20251023-0)")
	if h := src.Status.History; len(h) != 1 || h[0].From != "ami-135" || h[0].To != "ami-136" || h[0].FromObject != "w" || h[0].Object != clone.GetName() || src.Status.SkewMode != "Automatic" {
		s.t.Errorf("%+v", src.Status)
	}
	own := 0
	for _, w := range writes {
		if strings.Contains(w, "bootimagepolicies") || strings.Contains(w, "bootimagestreams") {
			continue
		}
		own++
	}
	if own != 4 { // the record is made once, then: clone, reference, record
		s.t.Errorf("writes: %v", writes)
	}
	s.expect("policy", says(s.policy("a2").Status.Conditions, v1alpha1.ConditionReady), "True AsExpected all 1 sources are current")
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	s.end("a2")
}

func testRolling(s *site) {
	s.namespace("a1")
	s.make(awsTemplate("a1", "w", "ami-135"))
	s.make(deployment("a1", "workers", "RollingUpdate", "w", "v1.36.3"))
	s.make(policyOf("a1", "a1", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	md := s.get(capiV, "MachineDeployment", "a1", "workers")
	s.look()
	if now := s.get(capiV, "MachineDeployment", "a1", "workers"); now.GetResourceVersion() != md.GetResourceVersion() || len(s.list(infraV, "AWSMachineTemplate", "a1")) != 1 {
		s.t.Error("something was written")
	}
	src := s.source("machinedeployment.a1.workers")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False WouldReplaceMachines", "would replace running machines", "set the strategy OnDelete")
	if src.Status.Proposal == "" || src.Status.ProposalObject != "AWSMachineTemplate/w" || src.Status.State != v1alpha1.SourceOutdated {
		s.t.Errorf("the proposal is missing: %+v", src.Status)
	}
	// the strategy is the person's to change, and then it goes on by itself
	s.merge(md, "person", `{"spec":{"rollout":{"strategy":{"type":"OnDelete"}}}}`)
	s.look()
	s.expect("source", says(s.source(src.Name).Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.end("a1")
}

func testPiggyback(s *site) {
	s.namespace("a3")
	s.make(awsTemplate("a3", "cp", "ami-134"))
	s.make(controlPlane("a3", "cp", "v1.35.4"))
	s.make(policyOf("a3", "a3", "controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "Piggyback", ""))
	kcp := s.get(controlV, "KubeadmControlPlane", "a3", "cp")
	s.look()
	src := s.source("kubeadmcontrolplane.a3.cp")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageStaged", "ami-135", "refit.dev/wanted-version")
	if now := s.get(controlV, "KubeadmControlPlane", "a3", "cp"); now.GetResourceVersion() != kcp.GetResourceVersion() || src.Status.Staged == "" || len(s.list(infraV, "AWSMachineTemplate", "a3")) != 2 {
		s.t.Errorf("the template is ready, and nothing else was written: %+v", src.Status)
	}
	s.merge(kcp, "person", `{"metadata":{"annotations":{"refit.dev/wanted-version":"v1.36.3"}}}`)
	s.look()
	now := s.get(controlV, "KubeadmControlPlane", "a3", "cp")
	version, _, _ := unstructured.NestedString(now.Object, "spec", "version")
	name, _, _ := unstructured.NestedString(now.Object, "spec", "machineTemplate", "spec", "infrastructureRef", "name")
	image, _, _ := unstructured.NestedString(s.get(infraV, "AWSMachineTemplate", "a3", name).Object, "spec", "template", "spec", "ami", "id")
	if version != "v1.36.3" || image != "ami-136" || now.GetGeneration() != kcp.GetGeneration()+1 || now.GetAnnotations()["refit.dev/wanted-version"] != "" {
		s.t.Errorf("one write with both: %s %s, generation %d after %d, %v", version, image, now.GetGeneration(), kcp.GetGeneration(), now.GetAnnotations())
	}
	// by hand, without the image, the next minor would be kept back
	rule := s.policy("a3")
	rule.Spec.Skew.Rules = []v1alpha1.SkewRule{{Name: "next", Targets: []string{"1.37"}, MinimumRelease: "1.37.0"}}
	if err := s.admin.Update(context.Background(), rule); err != nil {
		s.t.Fatal(err)
	}
	s.merge(now, "person", `{"metadata":{"annotations":{"refit.dev/wanted-version":"v1.37.0"}}}`)
	s.look()
	s.expect("its own target is evaluated too", says(s.source(src.Name).Status.Conditions, v1alpha1.ConditionReady), "BootImageTooOld version v1.37.0 is refused: its image is of release 1.36.3, at least 1.37.0 is wanted")
	// a version that is too far is refused
	s.merge(now, "person", `{"metadata":{"annotations":{"refit.dev/wanted-version":"v1.38.0"}}}`)
	s.look()
	s.expect("source", says(s.source(src.Name).Status.Conditions, v1alpha1.ConditionReady), "VersionSkew", "more than one minor")
	s.end("a3")
}

func testNewer(s *site) {
	s.namespace("a4")
	s.make(awsTemplate("a4", "w", "ami-136"))
	s.make(deployment("a4", "workers", "OnDelete", "w", "v1.35.4"))
	s.make(policyOf("a4", "a4", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ", adopt: true"))
	s.look()
	src := s.source("machinedeployment.a4.workers")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageNewer", "ami-136 (9.6.20251023-0) is newer than ami-135")
	if len(s.list(infraV, "AWSMachineTemplate", "a4")) != 1 || src.Status.State != v1alpha1.SourceSkipped || src.Status.Proposal != "" {
		s.t.Errorf("%+v", src.Status)
	}
	s.end("a4")
}

func testOwned(s *site) {
	s.namespace("a6")
	s.make(awsTemplate("a6", "w", "ami-135"))
	s.make(deployment("a6", "workers", "OnDelete", "w", "v1.36.3"))
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"infrastructureRef": map[string]any{
		"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachineTemplate", "name": "w"}}}}}}
	u.SetAPIVersion(capiV)
	u.SetKind("MachineDeployment")
	u.SetName("workers")
	u.SetNamespace("a6")
	if err := s.admin.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops"), client.ForceOwnership); err != nil {
		s.t.Fatal(err)
	}
	s.make(policyOf("a6", "a6", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	before := s.get(capiV, "MachineDeployment", "a6", "workers")
	s.look()
	src := s.source("machinedeployment.a6.workers")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageOwned gitops writes it")
	s.expect("proposal", src.Status.Proposal, `"op":"replace"`, `"value":"ami-136"`)
	p := s.policy("a6")
	s.expect("the pool is shown as out of date", says(p.Status.Conditions, v1alpha1.ConditionReady), "False BootImageOutdated 0 of 1 sources are current, 1 left unchanged")
	s.expect("it is no failure", says(p.Status.Conditions, v1alpha1.ConditionStalled), "False")
	if now := s.get(capiV, "MachineDeployment", "a6", "workers"); now.GetResourceVersion() != before.GetResourceVersion() || len(s.list(infraV, "AWSMachineTemplate", "a6")) != 1 {
		s.t.Error("something was written")
	}
	s.end("a6")
}

func testContested(s *site) {
	s.namespace("a7")
	s.make(awsTemplate("a7", "w", "ami-135"))
	s.make(deployment("a7", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("a7", "a7", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	undo := func() {
		s.merge(s.get(capiV, "MachineDeployment", "a7", "workers"), "night-script", `{"spec":{"template":{"spec":{"infrastructureRef":{"name":"w"}}}}}`)
	}
	is := func() string { return refOf(s.get(capiV, "MachineDeployment", "a7", "workers")) }
	for i := range 3 {
		s.look()
		if is() == "w" {
			s.t.Fatalf("write %d did not come", i+1)
		}
		undo()
		s.now = s.now.Add(time.Minute)
		s.restart() // it remembers nothing by itself
	}
	s.look()
	src := s.source("machinedeployment.a7.workers")
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageContested", "written 3 times and reverted by night-script")
	if is() != "w" || src.Status.State != v1alpha1.SourceContested || len(src.Status.History) != 3 {
		s.t.Errorf("writing stops: %s %+v", is(), src.Status)
	}
	s.restart()
	if w := s.look(); len(w) != 0 || is() != "w" {
		s.t.Errorf("after a restart as well: %v", w)
	}
	s.now = s.now.Add(55 * time.Minute)
	s.look()
	if is() != "w" {
		s.t.Error("not quiet for long enough")
	}
	s.now = s.now.Add(10 * time.Minute)
	s.look()
	if is() == "w" || s.source(src.Name).Status.State != v1alpha1.SourceCurrent {
		s.t.Error("after a quiet time it is tried again")
	}
	s.end("a7")
}

func testCustom(s *site) {
	s.namespace("a8")
	s.make(awsTemplate("a8", "w", "ami-golden"))
	s.make(deployment("a8", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("a8", "a8", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	const name = "machinedeployment.a8.workers"
	src := s.source(name)
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageCustom", "no stream lists its image ami-golden")
	s.expect("skew", says(src.Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageUnknown", "ami-golden is in no stream")
	if b := s.policy("a8").Status.Blocked; len(b) == 0 || b[0].Source != name || b[0].Minor != 36 {
		s.t.Errorf("%+v", b)
	}
	// declared, that counts; an invalid value is a violation
	declare := func(release, os string) {
		src := s.source(name)
		src.Spec.Declared = &v1alpha1.DeclaredImage{Release: release, OS: os}
		if err := s.admin.Update(context.Background(), src, client.FieldOwner("person")); err != nil {
			s.t.Fatal(err)
		}
		s.look()
	}
	declare("", "golden-final-2")
	s.expect("unreadable", says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageUnknown", `"golden-final-2"`)
	p := s.policy("a8")
	p.Spec.Skew.Waivers = []v1alpha1.SkewWaiver{{Source: name, Reason: "booted by hand", Until: metav1.NewTime(s.now.Add(time.Hour))}}
	if err := s.admin.Update(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	s.expect("waived", says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), "True BootImageWaived", "booted by hand")
	if b := s.policy("a8").Status.Blocked; len(b) != 0 {
		s.t.Errorf("%+v", b)
	}
	s.now = s.now.Add(2 * time.Hour)
	s.look()
	s.expect("the waiver has ended", says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageUnknown")
	declare("1.34.1", "")
	s.expect("the stream's own rule", says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageTooOld", "release 1.34.1, at least 1.35.0")
	declare("1.35.4", "")
	s.expect("a release says nothing of the OS", says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageUnknown the OS version of its image is not known")
	declare("1.35.4", "9.4.20250101-0")
	s.expect("new enough", says(s.source(name).Status.Conditions, v1alpha1.ConditionNewEnough), "True AsExpected")
	s.end("a8")
}

func testDeclared(s *site) {
	s.now = time.Now().Truncate(time.Second).Add(-time.Minute) // nodes join by the API server's clock
	s.make(`
apiVersion: refit.dev/v1alpha1
kind: MachineSource
metadata: {name: pxe}
spec: {declared: {os: 9.6.20251023-0, release: 1.36.3}, nodeSelector: {matchLabels: {rack: r1}}}`[1:])
	s.node("old-one", "v1.36.3", "9.2.20240101-0", map[string]string{"rack": "r0"})
	s.look()
	s.expect("declared", says(s.source("pxe").Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.node("r1-a", "v1.36.3", "9.6.20251023-0", map[string]string{"rack": "r1"})
	s.look()
	s.expect("a node that says the same", says(s.source("pxe").Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.node("r1-b", "v1.36.3", "9.2.20240101-0", map[string]string{"rack": "r1"})
	s.look() // the next look comes within half a minute, and a node that joins calls for one
	src := s.source("pxe")
	s.expect("contradicted", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageDeclared declared is OS 9.6.20251023-0, but node r1-b, which joined later, was installed from 9.2.20240101-0")
	s.expect("and not new enough", says(src.Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageUnknown")
	if len(src.Status.InstalledImages) != 2 || src.Status.InstalledImages[0].Nodes != 1 {
		s.t.Errorf("%+v", src.Status.InstalledImages)
	}
	if err := s.admin.Delete(context.Background(), src); err != nil {
		s.t.Fatal(err)
	}
	// a declaration of a release alone: the older image of a node counts
	s.make(`
apiVersion: refit.dev/v1alpha1
kind: MachineSource
metadata: {name: pxe-release}
spec: {declared: {release: 4.19.3}, nodeSelector: {matchLabels: {rack: r2}}}
---
apiVersion: refit.dev/v1alpha1
kind: BootImagePolicy
metadata: {name: a9}
spec: {streams: [v1.36], skew: {rules: [{name: from-418, minimumRelease: 4.18.0}, {name: any-step, majorSteps: 9}]}}`[1:])
	s.look()
	s.expect("as declared", says(s.source("pxe-release").Status.Conditions, v1alpha1.ConditionNewEnough), "BootImageUnknown the OS version of its image is not known")
	s.node("r2-a", "v1.36.3", "416.94.202410100000-0", map[string]string{"rack": "r2"})
	s.look()
	src = s.source("pxe-release")
	s.expect("the older counts", says(src.Status.Conditions, v1alpha1.ConditionNewEnough), "False BootImageTooOld the image that node r2-a was installed from is of release 4.16.0, at least 4.18.0 is wanted")
	if o := src.Status.OldestInstalled; o == nil || o.OS != "416.94.202410100000-0" || o.Example != "r2-a" {
		s.t.Errorf("%+v", src.Status)
	}
	if err := s.admin.Delete(context.Background(), src); err != nil {
		s.t.Fatal(err)
	}
	s.end("a9")
}

func testUserData(s *site) {
	s.namespace("a11")
	const v = "machine.openshift.io/v1beta1"
	const old = `{"ignition":{"version":"2.2.0","config":{"append":[{"source":"https://api-int:22623/config/worker"}]}},"storage":{"disks":[{"device":"/dev/sdb","partitions":[{"label":"containers","size":409600}]}]}}`
	for name, data := range map[string]string{"good": old, "bad": `{"ignition":{"version":"2.2.0"},"mine":{"a":1}}`, "cloud": "#cloud-config"} {
		if err := s.admin.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a11", Name: name}, Data: map[string][]byte{"userData": []byte(data)}}); err != nil {
			s.t.Fatal(err)
		}
		s.make(fmt.Sprintf(`
apiVersion: %s
kind: MachineSet
metadata: {name: %s, namespace: a11}
spec: {template: {spec: {providerSpec: {value: {kind: GCPMachineProviderSpec, disks: [{boot: true, image: projects/p/global/images/i-135}], userDataSecret: {name: %s}}}}}}`, v, name, name)[1:])
	}
	s.make(policyOf("a11", "a11", "machine.openshift.io", "MachineSet", "NewMachinesOnly", ""))
	image := func(name string) string {
		out := without(s.t, s.get(v, "MachineSet", "a11", name))
		return out[strings.Index(out, "i-13") : strings.Index(out, "i-13")+5]
	}
	s.look()
	s.expect("without the right to read it", says(s.source("machineset.machine.a11.good").Status.Conditions, v1alpha1.ConditionReady), "False UserDataUnusable", "Secret a11/good", "forbidden")
	if got := image("good") + image("bad") + image("cloud"); got != "i-135i-135i-135" {
		s.t.Error(got)
	}
	s.make(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user-data, namespace: a11}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: refit-boot-images-user-data}
subjects: [{kind: ServiceAccount, name: refit-controller, namespace: refit-system}]`[1:])
	for end := time.Now().Add(30 * time.Second); image("cloud") != "i-136" && time.Now().Before(end); time.Sleep(200 * time.Millisecond) { // the authorizer hears of it in its time
		s.look()
	}
	if got := image("good") + " " + image("bad") + " " + image("cloud"); got != "i-136 i-135 i-136" {
		s.t.Error(got)
	}
	s.expect("the image stays", says(s.source("machineset.machine.a11.bad").Status.Conditions, v1alpha1.ConditionReady), "False UserDataUnusable Secret a11/bad: it cannot be converted", ".mine")
	secret := func(name string) *corev1.Secret {
		o := &corev1.Secret{}
		if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: "a11", Name: name}, o); err != nil {
			s.t.Fatal(err)
		}
		return o
	}
	s.expect("converted, with its partition", string(secret("good").Data["userData"]), `"version":"3.0.0"`, `"sizeMiB":200`, `"merge"`)
	s.expect("noted", secret("good").Annotations["refit.dev/user-data-upgraded"], "2.2.0 to 3.0.0 at ")
	if string(secret("bad").Data["userData"]) != `{"ignition":{"version":"2.2.0"},"mine":{"a":1}}` || string(secret("cloud").Data["userData"]) != "#cloud-config" {
		s.t.Error("something else was changed")
	}
	s.end("a11")
}

func testSoak(s *site) {
	s.namespace("soak")
	s.make(awsTemplate("soak", "w", "ami-135"))
	s.make(deployment("soak", "workers", "OnDelete", "w", "v1.36.3"))
	before := s.now
	built := time.Date(2025, 10, 23, 0, 0, 0, 0, time.UTC)
	days := int(before.Sub(built).Hours()/24) + 3
	written := built.Add(time.Duration(days) * 24 * time.Hour)
	s.make(policyOf("soak", "soak", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", "") + fmt.Sprintf("  skew: {rules: [{name: soak, minAgeDays: %d}]}\n", days))
	s.look()
	const source = "machinedeployment.soak.workers"
	if ref := refOf(s.get(capiV, "MachineDeployment", "soak", "workers")); ref != "w" {
		s.t.Fatalf("an image that is too young was written: %s", ref)
	}
	src := s.source(source)
	s.expect("the wait names the image, its day and its end", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageTooFresh", "ami-136 (9.6.20251023-0) was built on 2025-10-23",
		fmt.Sprintf("rule soak wants images of at least %d days: refit writes it from %s on", days, written.Format(time.DateOnly)))
	if w := src.Status.Wait; w == nil || w.Image != "ami-136" || w.OS != "9.6.20251023-0" || !w.Built.Time.Equal(built) || !w.Until.Time.Equal(written) || src.Status.Proposal != "" {
		s.t.Errorf("%+v", src.Status)
	}
	s.now = written.Add(-time.Second)
	s.restart()
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("an unchanged wait costs no write: %v", w)
	}
	s.now = written
	s.look()
	if w := s.source(source).Status.Wait; w != nil {
		s.t.Errorf("the wait has ended: %+v", w)
	}
	if ref := refOf(s.get(capiV, "MachineDeployment", "soak", "workers")); ref == "w" {
		s.t.Fatal("an image that is old enough was not written")
	}
	s.expect("what refit wrote is old enough for its own rule", says(s.source(source).Status.Conditions, v1alpha1.ConditionNewEnough), "True AsExpected")
	s.end("soak")
	s.now = before
}

// expectMove waits until a dry run of a patch is refused with a text, or passes if the text is
// empty: the API server sees parameters of its policies a moment later.
func (s *site) expectMove(o *unstructured.Unstructured, patch, want string) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = s.admin.Patch(context.Background(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
			return
		}
	}
	s.t.Errorf("%s %s: %v, want %q", o.GetKind(), o.GetName(), err, want)
}

func testPolicyDeleted(s *site) {
	s.namespace("pd")
	s.make(awsTemplate("pd", "w", "ami-136"))
	s.make(controlPlane("pd", "w", "v1.36.3"))
	s.make(deployment("pd", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(deployment("pd", "free", "OnDelete", "w", "v1.36.3"))
	policy := policyOf("pd", "pd", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ", select: Partial, selector: {matchLabels: {pool: a}}")
	s.merge(s.get(capiV, "MachineDeployment", "pd", "workers"), "person", `{"metadata":{"labels":{"pool":"a"}}}`)
	s.make(policy)
	const source, minor, patch = "machinedeployment.pd.workers", `{"spec":{"template":{"spec":{"version":"v1.37.0"}}}}`, `{"spec":{"template":{"spec":{"version":"v1.36.9"}}}}`
	workers, free, cp := s.get(capiV, "MachineDeployment", "pd", "workers"), s.get(capiV, "MachineDeployment", "pd", "free"), s.get(controlV, "KubeadmControlPlane", "pd", "cp")
	s.expectMove(workers, minor, "BootImagePolicy pd was not evaluated yet")
	s.expectMove(workers, patch, "")
	s.look()
	s.expectMove(workers, minor, "")
	if err := s.admin.Delete(context.Background(), &v1alpha1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "pd"}}); err != nil {
		s.t.Fatal(err)
	}
	s.restart()
	s.look()
	src := s.source(source)
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImagePolicyDeleted BootImagePolicy pd was deleted", "updates to another minor version wait", "kubectl patch machinesource "+source)
	if d := src.Status.PolicyDeleted; d == nil || d.Name != "pd" || d.SeenAt.IsZero() {
		s.t.Errorf("%+v", src.Status)
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("the record stays without a write: %v", w)
	}
	const undecided = "BootImagePolicy pd was deleted, and no one has decided about MachineSource " + source
	s.expectMove(workers, minor, undecided)
	s.expectMove(cp, `{"spec":{"version":"v1.37.0"}}`, undecided)
	s.expectMove(workers, patch, "")
	s.expectMove(free, minor, "")
	s.make(policy)
	s.look()
	if src = s.source(source); src.Status.PolicyDeleted != nil || src.Status.State != v1alpha1.SourceCurrent {
		s.t.Errorf("a policy selects it again: %+v", src.Status)
	}
	s.end("pd") // which accepts the risk
	s.look()
	if src = s.source(source); src.Status.PolicyDeleted == nil {
		s.t.Errorf("%+v", src.Status)
	}
	s.expect("decided", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageExcluded no policy selects it")
	s.expectMove(workers, minor, "")
	s.expectMove(cp, `{"spec":{"version":"v1.37.0"}}`, "")
}

// setStatus writes the status of an object, of kinds with and without the subresource.
func (s *site) setStatus(o *unstructured.Unstructured, patch string) {
	s.t.Helper()
	raw := client.RawPatch(types.MergePatchType, []byte(patch))
	err := s.admin.Status().Patch(context.Background(), o, raw)
	if apierrors.IsNotFound(err) {
		err = s.admin.Patch(context.Background(), o, raw)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func testUpdateRuns(s *site) {
	s.namespace("upd")
	s.make(awsTemplate("upd", "w", "ami-135"))
	s.make(deployment("upd", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(deployment("upd", "rolls", "RollingUpdate", "w", "v1.36.3"))
	s.make(policyOf("upd", "upd", "cluster.x-k8s.io", "MachineDeployment", "Roll", ""))
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-next"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:" + strings.Repeat("a", 64), Start: "Immediate"}}
	if err := s.admin.Create(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
	controller := s.client(apitest.As(s.cfg, apitest.ControllerUser))
	at := metav1.NewTime(s.now)
	u.Status.StartedAt, u.Status.Phase = &at, v1alpha1.PhaseHalted
	if err := controller.Status().Update(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
	s.setStatus(s.get(capiV, "MachineDeployment", "upd", "rolls"), `{"status":{"observedGeneration":1,"replicas":3,"upToDateReplicas":2}}`)
	uses := func(name string) string { return refOf(s.get(capiV, "MachineDeployment", "upd", name)) }
	const workers, rolls = "machinedeployment.upd.workers", "machinedeployment.upd.rolls"
	s.look()
	for _, name := range []string{workers, rolls} {
		src := s.source(name)
		s.expect(name, says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageUpdateRunning", "refit writes ami-136 (9.6.20251023-0) when ClusterUpdate/to-next has ended")
		if w := src.Status.Wait; w == nil || w.For != "ClusterUpdate/to-next" || w.Image != "ami-136" {
			s.t.Errorf("%s: %+v", name, src.Status.Wait)
		}
	}
	if uses("workers") != "w" || uses("rolls") != "w" || len(s.list(infraV, "AWSMachineTemplate", "upd")) != 1 {
		s.t.Error("something was written")
	}
	s.restart()
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("an unchanged wait costs no write: %v", w)
	}
	u.Status.Phase = v1alpha1.PhaseDone
	if err := controller.Status().Update(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	if uses("workers") == "w" || uses("rolls") != "w" {
		s.t.Errorf("the update is done, the rollout is not: %s %s", uses("workers"), uses("rolls"))
	}
	s.expect("its own rollout", says(s.source(rolls).Status.Conditions, v1alpha1.ConditionReady), "False BootImageUpdateRunning", "when the rollout of MachineDeployment/rolls has ended")
	s.setStatus(s.get(capiV, "MachineDeployment", "upd", "rolls"), `{"status":{"upToDateReplicas":3}}`)
	s.look()
	if uses("rolls") == "w" {
		s.t.Error("the rollout has ended, and nothing is written")
	}
	// a rollback does not wait: the image may be why the rollout does not end
	s.rollBack(rolls, "ami-135", "ami-136", "9.6.20251023-0")
	s.look()
	if uses("rolls") != "w" {
		s.t.Errorf("the rollback waits: %+v", s.source(rolls).Status)
	}
	if err := s.admin.Delete(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
	s.end("upd")
}

// rollBack writes the rollback of a source as a person does.
func (s *site) rollBack(source, to, rejected, rejectedOS string) {
	s.t.Helper()
	src := s.source(source)
	src.Spec.Rollback = &v1alpha1.ImageRollback{To: to, Rejected: v1alpha1.BootImage{Image: rejected, OS: rejectedOS}, By: "ann", Reason: "machines do not start"}
	if err := s.admin.Update(context.Background(), src, client.FieldOwner("person")); err != nil {
		s.t.Fatal(err)
	}
}

// nextStream is a later list for the same version.
const nextStream = `
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: next}
spec:
  kubernetes: 1.36.3
  inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.4","images":[
    {"architecture":"amd64","platform":"aws","region":"r1","version":"9.6.20251120-0","attributes":{"image":"ami-next"}}]}'
`

func testRollback(s *site) {
	s.namespace("rb")
	s.make(awsTemplate("rb", "w", "ami-135"))
	s.make(deployment("rb", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("rb", "rb", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	const source = "machinedeployment.rb.workers"
	s.look()
	ref := func() string { return refOf(s.get(capiV, "MachineDeployment", "rb", "workers")) }
	if h := s.source(source).Status.History; ref() == "w" || len(h) != 1 || h[0].By != "BootImagePolicy/rb" || h[0].FromAttributes["image"] != "ami-135" || h[0].Attributes["image"] != "ami-136" || h[0].FromOS != "9.4.20250101-0" {
		s.t.Fatalf("%s %+v", ref(), h)
	}
	s.rollBack(source, "ami-none", "ami-136", "9.6.20251023-0")
	s.look()
	s.expect("an image that refit never wrote", says(s.source(source).Status.Conditions, v1alpha1.ConditionReady), "False BootImageUnknown", `image "ami-none", which is not in the history`)
	s.rollBack(source, "ami-135", "ami-136", "9.6.20251023-0")
	s.look()
	src := s.source(source)
	s.expect("source", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageRolledBack", "new machines start from ami-135 (9.4.20250101-0) again: ann rejected ami-136 (9.6.20251023-0) (machines do not start)")
	if h := src.Status.History; ref() != "w" || len(h) != 2 || !h[1].Rollback || h[1].By != "ann" || h[1].Reason == "" || h[1].To != "ami-135" || src.Status.State != v1alpha1.SourceSkipped {
		s.t.Fatalf("the former template is used again: %s %+v", ref(), src.Status)
	}
	s.restart()
	s.now = s.now.Add(24 * time.Hour)
	if w := s.look(); len(w) != 0 || ref() != "w" {
		s.t.Errorf("the rejected image stays rejected: %v", w)
	}
	s.expect("summary", says(s.policy("rb").Status.Conditions, v1alpha1.ConditionReady), "0 of 1 sources are current, 1 left unchanged")
	s.make(nextStream[1:])
	p := s.policy("rb")
	p.Spec.Streams = []string{"next", "v1.35", "v1.36"}
	p.Spec.Skew.Rules = []v1alpha1.SkewRule{{Name: "old", MinimumOS: "9.6"}}
	if err := s.admin.Update(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	if src = s.source(source); src.Status.Referenced.Image != "ami-next" || src.Status.State != v1alpha1.SourceCurrent || len(src.Status.History) != 3 {
		s.t.Errorf("a newer image ends the rollback: %+v", src.Status)
	}
	s.rollBack(source, "ami-135", "ami-next", "9.6.20251120-0")
	s.look()
	s.expect("no rollback to an image that is too old", says(s.source(source).Status.Conditions, v1alpha1.ConditionReady), "False BootImageTooOld", "its machines could not join", "at least 9.6 is wanted")
	if src = s.source(source); src.Status.Referenced.Image != "ami-next" {
		s.t.Errorf("%+v", src.Status)
	}
	src.Spec.Rollback = nil
	if err := s.admin.Update(context.Background(), src); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	s.expect("ended", says(s.source(source).Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.end("rb")
	s.now = s.now.Add(-24 * time.Hour)
}

func testRefusedImage(s *site) {
	s.namespace("rf")
	s.make(awsTemplate("rf", "w", "ami-135"))
	s.make(awsTemplate("rf", "bad", "ami-136"))
	s.make(deployment("rf", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(deployment("rf", "early", "OnDelete", "bad", "v1.36.3"))
	s.make(policyOf("rf", "rf", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", "") + "  refused: [{os: 9.6.20251023-0, reason: its disks are read-only}]\n")
	s.look()
	src := s.source("machinedeployment.rf.workers")
	s.expect("not written", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageRefused", "it uses ami-135 (9.4.20250101-0); the policy refuses ami-136 (9.6.20251023-0): its disks are read-only")
	if refOf(s.get(capiV, "MachineDeployment", "rf", "workers")) != "w" || len(s.list(infraV, "AWSMachineTemplate", "rf")) != 2 || src.Status.Proposal != "" {
		s.t.Errorf("%+v", src.Status)
	}
	s.expect("in use", says(s.source("machinedeployment.rf.early").Status.Conditions, v1alpha1.ConditionReady), "False BootImageRefused", "it uses ami-136 (9.6.20251023-0), which the policy refuses", "refit bootimage rollback")
	p := s.policy("rf")
	p.Spec.Refused, p.Spec.Streams = append(p.Spec.Refused, v1alpha1.RefusedImage{Image: "ami-x", Reason: "another one"}), []string{"next", "v1.35", "v1.36"}
	if err := s.admin.Update(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	for _, name := range []string{"machinedeployment.rf.workers", "machinedeployment.rf.early"} {
		if got := s.source(name).Status.Referenced.Image; got != "ami-next" {
			s.t.Errorf("the next image is written: %s has %s", name, got)
		}
	}
	s.end("rf")
	if err := s.admin.Delete(context.Background(), &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "next"}}); err != nil {
		s.t.Fatal(err)
	}
}

// testRollbackCrash cuts the line at every write of a rollback.
func testRollbackCrash(s *site) {
	for n := 1; n <= 4; n++ {
		for _, after := range []bool{false, true} {
			ns := fmt.Sprintf("rc-%d-%t", n, after)
			s.namespace(ns)
			s.make(awsTemplate(ns, "w", "ami-135"))
			s.make(deployment(ns, "workers", "OnDelete", "w", "v1.36.3"))
			s.make(policyOf("rc", ns, "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
			s.look()
			source := "machinedeployment." + ns + ".workers"
			clone := refOf(s.get(capiV, "MachineDeployment", ns, "workers"))
			// the former template has changed since, so the rollback makes one of its own
			s.merge(s.get(infraV, "AWSMachineTemplate", ns, "w"), "person", `{"spec":{"template":{"spec":{"instanceType":"m7i.large"}}}}`)
			s.rollBack(source, "ami-135", "ami-136", "9.6.20251023-0")
			s.line.writes, s.line.cut, s.line.after = nil, n, after
			_, _ = s.r.Reconcile(context.Background(), ctrl.Request{})
			s.line.cut = 0
			s.restart()
			for range 3 {
				s.look()
			}
			if w := s.look(); len(w) != 0 {
				s.t.Errorf("%s: it does not come to rest: %v", ns, w)
			}
			ref, src := refOf(s.get(capiV, "MachineDeployment", ns, "workers")), s.source(source)
			if len(s.list(infraV, "AWSMachineTemplate", ns)) != 3 || ref == "w" || ref == clone || src.Status.Referenced.Image != "ami-135" || src.Status.State != v1alpha1.SourceSkipped || len(src.Status.History) != 2 {
				s.t.Errorf("%s: reference %s, %+v", ns, ref, src.Status)
			}
			s.end("rc")
			s.look()
		}
	}
}

func testTargetBlocked(s *site) {
	s.namespace("a12")
	s.make(awsTemplate("a12", "cp", "ami-136"))
	s.make(awsTemplate("a12", "w", "ami-134"))
	s.make(controlPlane("a12", "cp", "v1.36.3"))
	s.make(deployment("a12", "workers", "RollingUpdate", "w", "v1.36.3"))
	s.make(deployment("a12", "fresh", "RollingUpdate", "cp", "v1.36.3"))
	s.make(policyOf("a12", "a12", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", "") + "  skew: {rules: [{name: next-wants-135, targets: ['1.37'], minimumRelease: 1.35.0, why: sigstore policies}]}\n")
	s.look()
	p := s.policy("a12")
	var minors []int32
	for _, b := range p.Status.Blocked {
		minors = append(minors, b.Minor)
	}
	if fmt.Sprint(minors) != "[36 37]" {
		s.t.Fatalf("%+v", p.Status.Blocked)
	}
	move := func(kind, apiVersion, name, patch string) error {
		o := s.get(apiVersion, kind, "a12", name)
		return s.admin.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	const own = `{"spec":{"template":{"spec":{"version":"%s"}}}}`
	for what, tc := range map[string]struct {
		do   func() error
		want string
	}{
		"the control plane to the next minor":     {func() error { return move("KubeadmControlPlane", controlV, "cp", `{"spec":{"version":"v1.37.0"}}`) }, "machinedeployment.a12.workers: its image is of release 1.34.1, at least 1.35.0 is wanted (sigstore policies)"},
		"the pool itself":                         {func() error { return move("MachineDeployment", capiV, "workers", fmt.Sprintf(own, "v1.37.0")) }, "refit bootimage check --target v1.37.0"},
		"another pool, whose image is new enough": {func() error { return move("MachineDeployment", capiV, "fresh", fmt.Sprintf(own, "v1.37.0")) }, ""},
		"a patch":        {func() error { return move("KubeadmControlPlane", controlV, "cp", `{"spec":{"version":"v1.36.9"}}`) }, ""},
		"something else": {func() error { return move("MachineDeployment", capiV, "workers", `{"spec":{"replicas":5}}`) }, ""},
	} {
		err := tc.do()
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			s.t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
	// what is incompatible keeps its own pool back, and no control plane
	p = s.policy("a12")
	p.Spec.Skew.Rules = []v1alpha1.SkewRule{{Name: "no-runc", Targets: []string{"1.38"}, Incompatible: &v1alpha1.IncompatibleFacts{Facts: map[string]string{"runtime": "runc"}}}}
	if err := s.admin.Update(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	src := s.source("machinedeployment.a12.workers")
	src.Spec.Facts = map[string]string{"runtime": "runc"}
	if err := s.admin.Update(context.Background(), src); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	s.expectMove(s.get(capiV, "MachineDeployment", "a12", "workers"), fmt.Sprintf(own, "v1.38.0"), "runtime")
	s.expectMove(s.get(controlV, "KubeadmControlPlane", "a12", "cp"), `{"spec":{"version":"v1.38.0"}}`, "")
	s.end("a12")
}

// testCrash cuts the line at every write, before and after it was done, and lets
// a new controller go on.
func testCrash(s *site) {
	for n := 1; n <= 6; n++ {
		for _, after := range []bool{false, true} {
			ns := fmt.Sprintf("a13-%d-%t", n, after)
			s.namespace(ns)
			s.make(awsTemplate(ns, "w", "ami-135"))
			s.make(awsTemplate(ns, "foreign", "ami-x"))
			s.make(deployment(ns, "workers", "OnDelete", "w", "v1.36.3"))
			s.make(policyOf("a13", ns, "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
			s.line.writes, s.line.cut, s.line.after = nil, n, after
			_, _ = s.r.Reconcile(context.Background(), ctrl.Request{})
			s.line.cut = 0
			s.restart()
			for range 3 {
				s.look()
			}
			if w := s.look(); len(w) != 0 {
				s.t.Errorf("%s: it does not come to rest: %v", ns, w)
			}
			templates := s.list(infraV, "AWSMachineTemplate", ns)
			ref := refOf(s.get(capiV, "MachineDeployment", ns, "workers"))
			src := s.source("machinedeployment." + ns + ".workers")
			if len(templates) != 3 || ref == "w" || src.Status.State != v1alpha1.SourceCurrent {
				s.t.Errorf("%s: %d templates, reference %s, %s", ns, len(templates), ref, src.Status.State)
			}
			if h := src.Status.History; len(h) != 1 || h[0].From != "ami-135" || h[0].FromObject != "w" || h[0].FromAttributes["image"] != "ami-135" || h[0].To != "ami-136" || h[0].Object != ref {
				s.t.Errorf("%s: the write is recorded once: %+v", ns, h)
			}
			s.end("a13")
			s.look()
		}
	}
}

func testExcluded(s *site) {
	s.namespace("a14")
	s.make(awsTemplate("a14", "w", "ami-136"))
	s.make(deployment("a14", "linux", "OnDelete", "w", "v1.36.3"))
	s.make(strings.Replace(deployment("a14", "windows", "OnDelete", "w", "v1.36.3"), "{labels: {pool: windows}}", "{labels: {pool: windows, kubernetes.io/os: windows}}", 1))
	s.make(policyOf("a14", "a14", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	p := s.policy("a14")
	got := says(p.Status.Conditions, v1alpha1.ConditionReady)
	s.expect("summary", got, "1 of 2 sources are current", "1 excluded on purpose: their images are not known", "1 not known to be new enough")
	if strings.Contains(got, "all ") || p.Status.Excluded != 1 || p.Status.Current != 1 || p.Status.Sources != 2 {
		s.t.Errorf("%s %+v", got, p.Status)
	}
	s.expect("the source", says(s.source("machinedeployment.a14.windows").Status.Conditions, v1alpha1.ConditionReady), "False BootImageExcluded its machines run Windows")
	// with the risk taken for it, it is still not "all"
	src := s.source("machinedeployment.a14.windows")
	src.Spec.Skew = "None"
	if err := s.admin.Update(context.Background(), src); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	got = says(s.policy("a14").Status.Conditions, v1alpha1.ConditionReady)
	s.expect("summary", got, "True BootImageExcluded 1 of 2 sources are current, 1 excluded")
	s.end("a14")
}

func testCollect(s *site) {
	s.namespace("gc")
	s.make(awsTemplate("gc", "w", "ami-134"))
	s.make(deployment("gc", "workers", "OnDelete", "w", "v1.34.1"))
	s.make(policyOf("gc", "gc", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	md := func() *unstructured.Unstructured { return s.get(capiV, "MachineDeployment", "gc", "workers") }
	s.look()
	s.expectMove(md(), `{"spec":{"template":{"spec":{"version":"v1.35.4"}}}}`, "")
	var refs []string
	for _, version := range []string{"v1.35.4", "v1.36.3"} { // two refreshes
		s.merge(md(), "person", `{"spec":{"template":{"spec":{"version":"`+version+`"}}}}`)
		s.look()
		refs = append(refs, refOf(md()))
		if len(refs) == 1 {
			s.make(fmt.Sprintf("apiVersion: %s\nkind: AWSMachine\nmetadata: {name: m, namespace: gc, annotations: {cluster.x-k8s.io/cloned-from-name: %s}}\nspec: {}", infraV, refs[0]))
		}
	}
	// the way back to the first is forgotten with the third template that follows it
	for i := range 2 {
		s.make(strings.Replace(awsTemplate("gc", fmt.Sprintf("by-hand-%d", i), "ami-135"), "m6i.large", fmt.Sprintf("m%d.large", i), 1))
		s.merge(md(), "person", fmt.Sprintf(`{"spec":{"template":{"spec":{"infrastructureRef":{"name":"by-hand-%d"}}}}}`, i))
		s.look()
		refs = append(refs, refOf(md()))
	}
	s.now = s.now.Add(time.Hour)
	s.look()
	names := func() string {
		var out []string
		for _, o := range s.list(infraV, "AWSMachineTemplate", "gc") {
			out = append(out, o.GetName())
		}
		return strings.Join(out, " ")
	}
	if got := names(); !strings.Contains(got, refs[0]) || strings.Contains(got, refs[1]) {
		s.t.Errorf("a machine was cloned from the first, the second is unused: %s, had %v", got, refs)
	}
	if err := s.admin.Delete(context.Background(), s.list(infraV, "AWSMachine", "gc")[0].DeepCopy()); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	if got := names(); strings.Contains(got, refs[0]) || !strings.Contains(got, refs[2]) || !strings.Contains(got, refs[3]) || !strings.Contains(got, "by-hand-0") || !strings.Contains(" "+got+" ", " w ") {
		s.t.Errorf("only the unused clone is deleted: %s, had %v", got, refs)
	}
	s.end("gc")
}

func testOpenShift(s *site) {
	s.namespace("ocp")
	const v = "machine.openshift.io/v1beta1"
	set := func(name, image, more string) string {
		return fmt.Sprintf(`
apiVersion: %s
kind: MachineSet
metadata: {name: %s, namespace: ocp, annotations: {capacity.cluster-autoscaler.kubernetes.io/labels: kubernetes.io/arch=amd64}%s}
spec:
  replicas: 2
  template:
    spec:
      providerSpec:
        value: {apiVersion: machine.openshift.io/v1beta1, kind: GCPMachineProviderSpec, region: r9, disks: [{boot: true, image: %s, sizeGb: 128}, {image: projects/mine/global/images/data}], unknown: {a: [1, 2.5]}}
`, v, name, more, image)
	}
	s.make(set("a", "projects/p/global/images/i-135", ""))
	s.make(set("owned", "projects/p/global/images/i-135", ", ownerReferences: [{apiVersion: hive.openshift.io/v1, kind: MachinePool, name: p, uid: u1}]"))
	s.make(set("other-stream", "projects/p/global/images/i-135", ", labels: {machineconfiguration.openshift.io/osstream: rhel-10}"))
	s.make(policyOf("ocp", "ocp", "machine.openshift.io", "MachineSet", "NewMachinesOnly", ""))
	before := s.get(v, "MachineSet", "ocp", "a")
	s.look()
	after := s.get(v, "MachineSet", "ocp", "a")
	if a, b := without(s.t, before, "i-135"), without(s.t, after, "i-136"); a != b || strings.Contains(b, "i-13") {
		s.t.Errorf("fields are lost:\n%s\n%s", a, b)
	}
	s.expect("owned", says(s.source("machineset.machine.ocp.owned").Status.Conditions, v1alpha1.ConditionReady), "BootImageOwned MachinePool/p writes it")
	s.expect("other stream", says(s.source("machineset.machine.ocp.other-stream").Status.Conditions, v1alpha1.ConditionReady), "rhel-10")
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	// opting out keeps the last image
	p := s.policy("ocp")
	p.Spec.Managers[0].Select = "None"
	if err := s.admin.Update(context.Background(), p); err != nil {
		s.t.Fatal(err)
	}
	s.look()
	if now := s.get(v, "MachineSet", "ocp", "a"); now.GetResourceVersion() != after.GetResourceVersion() {
		s.t.Error("opting out writes nothing")
	}
	s.expect("opted out", says(s.source("machineset.machine.ocp.a").Status.Conditions, v1alpha1.ConditionReady), "BootImageExcluded no policy selects it")
	s.expect("effective", strings.Join(s.policy("ocp").Status.Effective, " "), "MachineSet.machine.openshift.io: None")
	s.end("ocp")
}

func testKarpenter(s *site) {
	s.make(`
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {amiSelectorTerms: [{id: ami-135}], role: r}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}`[1:])
	s.make(strings.Replace(policyOf("kp", "x", "karpenter.k8s.aws", "EC2NodeClass", "NewMachinesOnly", ""), "namespaces: [x], ", "", 1))
	s.look()
	s.expect("drifts", says(s.source("ec2nodeclass.karpenter.default").Status.Conditions, v1alpha1.ConditionReady), "False WouldReplaceMachines", "block drift")
	pool := s.get("karpenter.sh/v1", "NodePool", "", "general")
	s.merge(pool, "person", `{"spec":{"disruption":{"budgets":[{"nodes":"0","reasons":["Drifted"]}]}}}`)
	s.look()
	s.expect("held", says(s.source("ec2nodeclass.karpenter.default").Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.expect("written", without(s.t, s.get("karpenter.k8s.aws/v1", "EC2NodeClass", "", "default")), `"amiSelectorTerms":[{"id":"ami-136"}]`)
	s.end("kp")
}

func testRows(s *site) {
	s.namespace("rows")
	s.make(`
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: MyTemplate
metadata: {name: w, namespace: rows}
spec: {disk: {image: mine-135, size: 3}}`[1:])
	s.make(strings.Replace(deployment("rows", "workers", "OnDelete", "w", "v1.36.3"), "AWSMachineTemplate", "MyTemplate", 1))
	s.make(policyOf("rows", "rows", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	const name = "machinedeployment.rows.workers"
	s.expect("no row", says(s.source(name).Status.Conditions, v1alpha1.ConditionReady), "False BootImageUnknown", "MyTemplate.infrastructure.cluster.x-k8s.io, for which there is no row")
	p := s.get("refit.dev/v1alpha1", "BootImagePolicy", "", "rows")
	s.merge(p, "person", `{"spec":{"kinds":{"images":[{"group":"infrastructure.cluster.x-k8s.io","kind":"MyTemplate","versions":["v1"],"platform":"mine","immutable":true,"schema":"ours","forms":[{"set":[{"path":"spec.disk.image","from":"image"}]}]}]}}}`)
	s.look()
	s.expect("with the row", says(s.source(name).Status.Conditions, v1alpha1.ConditionReady), "True AsExpected", "mine-136")
	s.merge(p, "person", `{"spec":{"kinds":{"pictures":[]}}}`)
	s.look()
	s.expect("a row that is wrong", says(s.policy("rows").Status.Conditions, v1alpha1.ConditionStalled), "True BootImageUnknown spec.kinds", "pictures")
	s.expect("forgets nothing", says(s.source(name).Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.end("rows")
}

func testForbidden(s *site) {
	s.namespace("fb")
	s.make(awsTemplate("fb", "w", "ami-135"))
	s.make(deployment("fb", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("fb", "fb", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	src := s.source("machinedeployment.fb.workers")
	binding := &unstructured.Unstructured{}
	binding.SetAPIVersion("rbac.authorization.k8s.io/v1")
	binding.SetKind("ClusterRoleBinding")
	binding.SetName("refit-boot-images-cluster-api")
	if err := s.admin.Delete(context.Background(), binding); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) { // the authorizer hears of it in its time
		s.look()
		if said := says(s.policy("fb").Status.Conditions, v1alpha1.ConditionStalled); strings.Contains(said, "failed 1 of 3 times") && strings.Contains(said, "forbidden") {
			break
		}
		if time.Now().After(end) {
			s.t.Fatal("the missing right is never said: " + says(s.policy("fb").Status.Conditions, v1alpha1.ConditionStalled))
		}
	}
	s.expect("the first time", says(s.policy("fb").Status.Conditions, v1alpha1.ConditionReady), "True AsExpected all 1 sources are current; a check failed 1 of 3 times")
	s.lookAfter(30*time.Second, 30*time.Second)
	if now := s.source(src.Name); now.Status.State != v1alpha1.SourceCurrent || len(now.Status.History) != 1 {
		s.t.Errorf("%+v", now.Status)
	}
	s.expect("the summary", says(s.policy("fb").Status.Conditions, v1alpha1.ConditionReady), "False BootImageUnknown some machine managers could not be read")
	s.expect("a person must act", says(s.policy("fb").Status.Conditions, v1alpha1.ConditionStalled), "True BootImageUnknown", "forbidden")
}

// lookAfter lets the controller look after each pause.
func (s *site) lookAfter(pauses ...time.Duration) {
	s.t.Helper()
	for _, d := range pauses {
		s.now = s.now.Add(d)
		s.look()
	}
}

// A template that cannot be read once leaves the source as it was recorded; three times it makes
// the image unknown. Checks in the same seconds are one. A new policy has no record to keep.
func testUnread(s *site) {
	s.namespace("ur")
	s.make(awsTemplate("ur", "w", "ami-135"))
	s.make(deployment("ur", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("ur", "ur", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	s.look()
	const name = "machinedeployment.ur.workers"
	ready := func(want ...string) {
		s.t.Helper()
		s.expect("the policy", says(s.policy("ur").Status.Conditions, v1alpha1.ConditionReady), want...)
	}
	ready("True AsExpected all 1 sources are current")

	s.line.denyRead = "awsmachinetemplates"
	defer func() { s.line.denyRead = "" }()
	s.look()
	s.look()
	ready("True AsExpected all 1 sources are current; a check failed 1 of 3 times since", "refused by a test")
	s.expect("the source", says(s.source(name).Status.Conditions, v1alpha1.ConditionReady), "True AsExpected")
	s.lookAfter(30 * time.Second)
	ready("True AsExpected", "failed 2 of 3 times")
	s.lookAfter(30 * time.Second)
	ready("False BootImageUnknown some machine managers could not be read", "refused by a test")
	s.expect("a person must act", says(s.policy("ur").Status.Conditions, v1alpha1.ConditionStalled), "True BootImageUnknown")
	s.expect("the source", says(s.source(name).Status.Conditions, v1alpha1.ConditionReady), "False BootImageUnknown")
	s.now = s.now.Add(30 * time.Second)
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("a failure that persists is written again: %v", w)
	}

	s.line.denyRead = ""
	s.look()
	ready("True AsExpected all 1 sources are current")
	if f := s.policy("ur").Status.Failures; f != nil {
		s.t.Errorf("a check that succeeded counts as failed: %+v", f)
	}

	s.line.denyRead = "awsmachinetemplates"
	s.merge(s.get("refit.dev/v1alpha1", "BootImagePolicy", "", "ur"), "person", `{"spec":{"contest":{"writes":4}}}`)
	s.look()
	ready("False BootImageUnknown some machine managers could not be read")
	s.line.denyRead = ""
	s.look()
	s.end("ur")
}

// Hundreds of machine managers, a thousand with REFIT_E2E: one change of the stream is met in at
// most three writes each, and no change in none.
func TestThousandManagers(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of objects")
	}
	n := 250
	if os.Getenv("REFIT_E2E") != "" {
		n = 1000
	}
	s := newSite(t)
	s.node("cp1", "v1.36.3", "", map[string]string{"node-role.kubernetes.io/control-plane": ""})
	s.make(strings.TrimSpace(streams))
	s.namespace("many")
	for i := range n {
		s.make(awsTemplate("many", fmt.Sprintf("w%d", i), "ami-135"))
		s.make(deployment("many", fmt.Sprintf("w%d", i), "OnDelete", fmt.Sprintf("w%d", i), "v1.36.3"))
	}
	s.make(strings.Replace(policyOf("many", "many", "cluster.x-k8s.io", "MachineDeployment", "Observe", ""), "v1.34, v1.35, v1.36", "v1.34, v1.35", 1))
	s.look() // every record is made
	s.look()
	if w := s.look(); len(w) != 0 {
		t.Fatalf("nothing new costs no write: %d", len(w))
	}
	p := s.policy("many")
	p.Spec.Streams, p.Spec.Managers[0].Mode = []string{"v1.34", "v1.35", "v1.36"}, v1alpha1.BootImageNewMachinesOnly
	if err := s.admin.Update(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	writes := s.look()
	t.Logf("%d managers: %d writes in %s", n, len(writes), time.Since(begin).Round(time.Second))
	if len(writes) > 3*n+1 {
		t.Errorf("%d writes for %d managers", len(writes), n)
	}
	if st := s.policy("many").Status; int(st.Current) != n {
		t.Errorf("%+v", st)
	}
	begin = time.Now()
	if w := s.look(); len(w) != 0 {
		t.Errorf("nothing new costs no write: %d", len(w))
	}
	t.Logf("an unchanged look takes %s", time.Since(begin).Round(time.Millisecond))
}
