package bootimages_test

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

const vsphereStreams = `
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: vs-1.35}
spec:
  inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.35.4","images":[
    {"architecture":"amd64","platform":"vsphere","variant":"ova","version":"9.4.20250101-0","attributes":{"location":"https://example.test/old.ova","sha256":"1111111111111111111111111111111111111111111111111111111111111111"}}]}'
---
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: vs-1.36}
spec:
  inline: '{"apiVersion":"refit.dev/boot-images/v1","release":"1.36.3","images":[
    {"architecture":"amd64","platform":"vsphere","variant":"ova","version":"9.6.20251023-0","attributes":{"location":"https://example.test/new.ova","sha256":"2222222222222222222222222222222222222222222222222222222222222222"}}]}'
`

const sumOfNew = "2222222222222222222222222222222222222222222222222222222222222222"

// A platform without public images. Nothing names a template before a person
// has said that it was uploaded; then it is used, recognised, and the next release
// waits again.
func testUploads(s *site) {
	s.namespace("up")
	s.make(vsphereStreams[1:])
	s.make(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: VSphereMachineTemplate
metadata: {name: w, namespace: up}
spec: {template: {spec: {template: /dc1/vm/rhcos-9.4.20250101-0, datacenter: dc1, cloneMode: linkedClone}}}`[1:])
	s.make(strings.Replace(deployment("up", "workers", "OnDelete", "w", "v1.36.3"), "AWSMachineTemplate", "VSphereMachineTemplate", 1))
	s.make(strings.Replace(policyOf("up", "up", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", `, attributes: {template: "/dc1/vm/rhcos-{version}"}`),
		"[v1.34, v1.35, v1.36]", "[vs-1.35, vs-1.36]", 1))
	s.look()
	src := s.source("machinedeployment.up.workers")
	s.expect("it waits", says(src.Status.Conditions, v1alpha1.ConditionReady), "False BootImageNotUploaded", "/dc1/vm/rhcos-9.4.20250101-0 (9.4.20250101-0)", "refit bootimage uploads")
	u := src.Status.Upload
	if u == nil || u.SHA256 != sumOfNew || u.File != "new.ova" || src.Status.Proposal != "" || src.Status.State != v1alpha1.SourceOutdated {
		s.t.Fatalf("%+v", src.Status)
	}
	s.expect("what to do", strings.Join(u.Steps, "\n"), "https://example.test/new.ova", "govc import.ova -folder='/dc1/vm' -name='rhcos-9.6.20251023-0'", "refit bootimage uploaded 'vs-1.36' '"+sumOfNew+"'")
	if refOf(s.get(capiV, "MachineDeployment", "up", "workers")) != "w" || len(s.list(infra1, "VSphereMachineTemplate", "up")) != 1 {
		s.t.Error("something names a template that is not there")
	}
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	stream := s.get("refit.dev/v1alpha1", "BootImageStream", "", "vs-1.36")
	s.merge(stream, "person", `{"spec":{"uploaded":[{"sha256":"`+sumOfNew+`","region":"hall-9"}]}}`)
	s.look()
	s.expect("it is elsewhere", says(s.source(src.Name).Status.Conditions, v1alpha1.ConditionReady), "False BootImageNotUploaded")
	s.merge(stream, "person", `{"spec":{"uploaded":[{"sha256":"`+sumOfNew+`"}]}}`)
	s.look()
	src = s.source(src.Name)
	s.expect("it is there", says(src.Status.Conditions, v1alpha1.ConditionReady), "True AsExpected", "/dc1/vm/rhcos-9.6.20251023-0")
	if src.Status.Upload != nil || len(src.Status.History) != 1 {
		s.t.Errorf("%+v", src.Status)
	}
	clone := s.get(infra1, "VSphereMachineTemplate", "up", refOf(s.get(capiV, "MachineDeployment", "up", "workers")))
	s.expect("the template", without(s.t, clone), `"template":"/dc1/vm/rhcos-9.6.20251023-0"`, `"cloneMode":"linkedClone"`)
	if w := s.look(); len(w) != 0 {
		s.t.Errorf("nothing new costs no write: %v", w)
	}
	s.end("up")
	for _, name := range []string{"vs-1.35", "vs-1.36"} {
		if err := s.admin.Delete(context.Background(), &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: name}}); client.IgnoreNotFound(err) != nil {
			s.t.Fatal(err)
		}
	}
}

const infra1 = "infrastructure.cluster.x-k8s.io/v1beta1"

// Cluster API's provider for AWS makes configurations of Ignition 2.3 unless a template names
// another version. An image that does not read them would not join.
func testOldIgnition(s *site) {
	s.namespace("ig")
	s.make(strings.Replace(awsTemplate("ig", "w", "ami-135"), "{ami:", `{ignition: {version: "2.3"}, ami:`, 1))
	s.make(deployment("ig", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(policyOf("ig", "ig", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""))
	s.look()
	const name = "machinedeployment.ig.workers"
	s.expect("it keeps its image", says(s.source(name).Status.Conditions, v1alpha1.ConditionReady), "False UserDataUnusable", "AWSMachineTemplate w (spec.template.spec.ignition.version) makes first-boot configurations of Ignition 2.3",
		"reads only those of version 3", "set that field to a version 3")
	if refOf(s.get(capiV, "MachineDeployment", "ig", "workers")) != "w" || len(s.list(infraV, "AWSMachineTemplate", "ig")) != 1 {
		s.t.Error("machines would start that cannot read their configuration")
	}
	s.merge(s.get(infraV, "AWSMachineTemplate", "ig", "w"), "person", `{"spec":{"template":{"spec":{"ignition":{"version":"3.4"}}}}}`)
	s.look()
	if ref := refOf(s.get(capiV, "MachineDeployment", "ig", "workers")); ref == "w" {
		s.t.Error(says(s.source(name).Status.Conditions, v1alpha1.ConditionReady))
	}
	s.end("ig")
}

// The region of an image is that of the Cluster's infrastructure, or of the control
// plane that a cloud manages; what is missing on the way is named.
func testRegion(s *site) {
	s.namespace("rg")
	s.make(awsTemplate("rg", "w", "ami-135"))
	s.make(deployment("rg", "workers", "OnDelete", "w", "v1.36.3"))
	s.make(strings.Replace(policyOf("rg", "rg", "cluster.x-k8s.io", "MachineDeployment", "NewMachinesOnly", ""), "region: r1, ", "", 1))
	const name = "machinedeployment.rg.workers"
	said := func() string {
		s.look()
		return says(s.source(name).Status.Conditions, v1alpha1.ConditionReady)
	}
	s.expect("no cluster", said(), "False BootImageUnknown", "no region is named", "there is no Cluster rg/c1")
	s.make(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c1, namespace: rg}
spec:
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AWSCluster, name: c1}`[1:])
	s.expect("no infrastructure", said(), "there is no AWSCluster rg/c1")
	s.make(`
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSCluster
metadata: {name: c1, namespace: rg}
spec: {network: {}}`[1:])
	s.expect("no region", said(), "AWSCluster rg/c1 has no spec.region")
	s.merge(s.get("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster", "rg", "c1"), "person", `{"spec":{"region":"r2"}}`)
	s.expect("a region that is missing in the stream", said(), "has no region r2", "there are: r1")
	s.merge(s.get("infrastructure.cluster.x-k8s.io/v1beta2", "AWSCluster", "rg", "c1"), "person", `{"spec":{"region":"r1"}}`)
	s.expect("found", said(), "True AsExpected", "ami-136")
	s.end("rg")
}

// Karpenter's node classes are of the region that the nodes are in.
func testRegionOfNodes(s *site) {
	s.make(`
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: regional}
spec: {amiSelectorTerms: [{id: ami-135}], role: r}`[1:])
	p := strings.Replace(policyOf("rn", "x", "karpenter.k8s.aws", "EC2NodeClass", "NewMachinesOnly", ""), "namespaces: [x], region: r1, ", "", 1)
	s.make(p)
	s.look()
	s.expect("nodes that do not say it", says(s.source("ec2nodeclass.karpenter.regional").Status.Conditions, v1alpha1.ConditionReady), "False BootImageUnknown", "topology.kubernetes.io/region")
	for _, n := range s.list("v1", "Node", "") {
		s.merge(&n, "person", `{"metadata":{"labels":{"topology.kubernetes.io/region":"r1"}}}`)
	}
	s.look()
	s.expect("the nodes' region", says(s.source("ec2nodeclass.karpenter.regional").Status.Conditions, v1alpha1.ConditionReady), "True AsExpected", "ami-136")
	s.end("rn")
}

// A machine set of an old cluster, whose image is of no stream that is kept
// but of the vendor's project, is refreshed; one that is newer is left alone.
func testStock(s *site) {
	s.namespace("st")
	s.make(`
apiVersion: refit.dev/v1alpha1
kind: BootImageStream
metadata: {name: st-1.36}
spec:
  release: 1.36.3
  inline: '{"architectures":{"x86_64":{"images":{"gcp":{"release":"9.6.20251023-0","project":"rhcos-cloud","name":"rhcos-9-6-20251023-0-gcp-x86-64"}}}}}'`[1:])
	set := func(name, image string) {
		s.make("apiVersion: machine.openshift.io/v1beta1\nkind: MachineSet\nmetadata: {name: " + name + ", namespace: st}\nspec: {template: {spec: {providerSpec: {value: {kind: GCPMachineProviderSpec, region: r9, disks: [{boot: true, image: " + image + "}]}}}}}")
	}
	set("old", "projects/rhcos-cloud/global/images/rhcos-418-94-202501221327-0-gcp-x86-64")
	set("newer", "projects/rhcos-cloud/global/images/rhcos-9-8-20260501-0-gcp-x86-64")
	set("own", "projects/mine/global/images/rhcos-418-94-202501221327-0-gcp-x86-64")
	s.make(strings.Replace(policyOf("st", "st", "machine.openshift.io", "MachineSet", "NewMachinesOnly", ""), "[v1.34, v1.35, v1.36]", "[st-1.36]", 1))
	s.look()
	for name, want := range map[string]string{"old": "True AsExpected", "newer": "False BootImageNewer", "own": "False BootImageCustom"} {
		s.expect(name, says(s.source("machineset.machine.st."+name).Status.Conditions, v1alpha1.ConditionReady), want)
	}
	s.expect("written", without(s.t, s.get("machine.openshift.io/v1beta1", "MachineSet", "st", "old")), "rhcos-9-6-20251023-0-gcp-x86-64")
	s.end("st")
}
