package machineobjects_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/controller/bootimages/machineobjects"
)

// cluster that serves the kinds that are named, with these objects.
func cluster(t *testing.T, text string) client.Client {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"}, {Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineSet"}, {Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineDeployment"},
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachinePool"}, {Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"}, {Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"},
	} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		b = b.WithObjects(u)
	}
	return b.Build()
}

const objects = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: ns}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineSet
metadata: {name: ms, namespace: ns, ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, name: md, uid: u}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: m1, namespace: ns, labels: {cluster.x-k8s.io/cluster-name: c1}, ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: u}]}
spec: {providerID: p://1}
status: {nodeRef: {name: n1}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: m2, namespace: ns}
spec: {providerID: p://2}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: other-cluster, namespace: ns, ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: gone, uid: u}]}
spec: {providerID: p://77}
status: {nodeRef: {name: n3}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: other-uid, namespace: ns}
status: {nodeRef: {name: n3, uid: not-this}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: new, namespace: ns, creationTimestamp: "2026-11-20T12:00:00Z"}
status: {addresses: [{type: InternalIP, address: 10.0.0.9}, {type: Hostname, address: new}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: mp, namespace: ns}
status: {nodeRefs: [{name: n4}, {name: not-here}]}
---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: cp-0, namespace: ocp, ownerReferences: [{apiVersion: machine.openshift.io/v1, kind: ControlPlaneMachineSet, name: cluster, uid: u}]}
status: {nodeRef: {name: n5, uid: u5}}
---
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: k, namespace: none}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
status: {nodeName: n6, providerID: p://6}
`

var nodes = []machineobjects.Node{{Name: "n1", ProviderID: "p://1"}, {Name: "n2", ProviderID: "p://2"}, {Name: "n3", UID: "u3", ProviderID: "p://3"}, {Name: "n4"}, {Name: "n5", UID: "u5"}, {Name: "n6", ProviderID: "p://6"}}

// Which node came from where (issue part 8): by Machine, owners and node.
func TestSources(t *testing.T) {
	t.Parallel()
	c := cluster(t, strings.TrimSpace(objects))
	f, err := machineobjects.FindMachines(context.Background(), c, machineobjects.NewKinds(c), machinekinds.BuiltIn(), []string{"controlplane.cluster.x-k8s.io", "machine.openshift.io", "karpenter.k8s.aws"}, nodes)
	if err != nil || f.Unread != "" {
		t.Fatal(err, f.Unread)
	}
	want := map[string][]string{"n1": {"machineset.ns.ms", "machinedeployment.ns.md", "cluster.ns.c1"}, "n4": {"machinepool.ns.mp"},
		"n5": {"controlplanemachineset.machine.ocp.cluster"}, "n6": {"ec2nodeclass.karpenter.default"}}
	got := f.SourcesOf()
	delete(got, "n2") // a machine of nobody has a node and no source
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	joined := map[string]bool{}
	for _, m := range f.Machines {
		if m.Object != nil {
			joined[m.Object.GetName()] = m.Joined
		}
	}
	if diff := cmp.Diff(map[string]bool{"m1": true, "m2": true, "other-cluster": true, "other-uid": true, "new": false, "cp-0": true}, joined); diff != "" {
		t.Error(diff)
	}
	// no policy selects a machine manager: nothing is read
	f, err = machineobjects.FindMachines(context.Background(), c, machineobjects.NewKinds(c), machinekinds.BuiltIn(), nil, nodes)
	if err != nil || len(f.Machines) != 0 {
		t.Errorf("%v %v", err, f.Machines)
	}
}

// A refusal is a machine's own if it names it, or came from its address since it
// was made.
func TestRefused(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetNamespace("ns")
	o.SetName("m")
	o.SetCreationTimestamp(metav1.NewTime(made))
	m := machineobjects.Machine{Object: o, Addresses: []string{"10.0.0.9"}}
	at := func(min int) time.Time { return made.Add(time.Duration(min) * time.Minute) }
	for name, tc := range map[string]struct {
		refusals []machineobjects.Refusal
		joined   bool
		want     string
	}{
		"by its address":                  {[]machineobjects.Refusal{{From: "10.0.0.9", At: at(1), Message: "old"}}, false, "old"},
		"by its name":                     {[]machineobjects.Refusal{{Machine: "ns/m", From: "10.9.9.9", At: at(1), Message: "old"}}, false, "old"},
		"another's name at its address":   {[]machineobjects.Refusal{{Machine: "ns/x", From: "10.0.0.9", At: at(1), Message: "old"}}, false, ""},
		"who had the address before":      {[]machineobjects.Refusal{{From: "10.0.0.9", At: at(-1), Message: "old"}}, false, ""},
		"the last of several":             {[]machineobjects.Refusal{{From: "10.0.0.9", At: at(3), Message: "third"}, {From: "10.0.0.9", At: at(2), Message: "second"}}, false, "third"},
		"a refusal that names no address": {[]machineobjects.Refusal{{At: at(1), Message: "old"}}, false, ""},
		"it joined after all":             {[]machineobjects.Refusal{{Machine: "ns/m", At: at(1), Message: "old"}}, true, ""},
	} {
		m.Joined = tc.joined
		if got := m.RefusalMessage(tc.refusals); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
