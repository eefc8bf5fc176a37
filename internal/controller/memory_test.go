package controller

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// cachedNodes is how many objects are measured: enough that what others hold does not show.
const cachedNodes = 5000

// bytesPerObject is the memory of an object as a cache holds it.
func bytesPerObject(decoded func(i int) any) int {
	objects := [cachedNodes]any{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range objects {
		objects[i] = decoded(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(objects)
	return (int(after.HeapAlloc) - int(before.HeapAlloc)) / cachedNodes
}

// A controller of thirty thousand nodes holds two objects of each. Not parallel: it measures
// the memory of the process.
func TestCachedObjectsAreSmall(t *testing.T) {
	for name, c := range map[string]struct {
		most    int
		decoded func(i int) any
	}{
		"Node":       {maxNodeBytes, func(i int) any { return cachedNode(t, fmt.Sprintf("node-%05d", i)) }},
		"NodeUpdate": {maxNodeUpdateBytes, func(i int) any { return cachedUpdate(t, fmt.Sprintf("node-%05d", i)) }},
	} {
		got := bytesPerObject(c.decoded)
		t.Logf("%s: %d bytes", name, got)
		if got > c.most {
			t.Errorf("a cached %s has %d bytes, %d are allowed", name, got, c.most)
		}
	}
}

const (
	maxNodeBytes       = 2300
	maxNodeUpdateBytes = 2900
)

// cachedNode is a Node as kubelets report it, from the wire.
func cachedNode(t *testing.T, name string) any {
	amount := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110")}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1",
		Labels:        map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "a"},
		Annotations:   map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 2000))}}},
		Status: corev1.NodeStatus{Capacity: amount, Allocatable: amount,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{MachineID: name, SystemUUID: name, BootID: name, KernelVersion: "6.1.0", OSImage: "Debian", ContainerRuntimeVersion: "containerd://2.2.9", KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"}}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeNetworkUnavailable, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "KubeletHasNoPressure", Message: "kubelet has no pressure",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()})
	}
	for i := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprint("registry.example/app:", i)}, SizeBytes: 1})
	}
	wire, err := n.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := &corev1.Node{}
	if err := got.Unmarshal(wire); err != nil {
		t.Fatal(err)
	}
	cached, err := slimNode(got)
	if err != nil {
		t.Fatal(err)
	}
	return cached
}

// cachedUpdate is the NodeUpdate of a node in an update, from the wire.
func cachedUpdate(t *testing.T, name string) any {
	nu := reported(t, name)
	for i := range 6 {
		nu.Spec.Peers = append(nu.Spec.Peers, v1alpha1.Peer{Node: fmt.Sprint("other-", i), Address: fmt.Sprintf("10.0.0.%d:1", i), PublicKey: "key"})
	}
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionImagesReady} {
		nu.Status.Conditions = append(nu.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAsExpected, Message: "step kubeadm"})
	}
	wire, err := json.Marshal(nu)
	if err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.NodeUpdate{}
	if err := json.Unmarshal(wire, got); err != nil {
		t.Fatal(err)
	}
	slim(got)
	return got
}

// Slim Nodes lose what no reconciler reads: whether a node is Ready, and a pressure that it is
// under, stay.
func TestSlimNodesKeepTheirConditions(t *testing.T) {
	t.Parallel()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status}
	}
	n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition(corev1.NodeMemoryPressure, corev1.ConditionFalse), condition(corev1.NodeDiskPressure, corev1.ConditionTrue),
		condition("Other", corev1.ConditionTrue), condition(corev1.NodeReady, corev1.ConditionFalse)}}}
	if _, err := slimNode(n); err != nil {
		t.Fatal(err)
	}
	var kept []corev1.NodeConditionType
	for _, c := range n.Status.Conditions {
		kept = append(kept, c.Type)
	}
	if fmt.Sprint(kept) != "[DiskPressure Ready]" {
		t.Errorf("kept %v", kept)
	}
}

// Builds ask cached Nodes whether their runtime has user namespaces.
func TestSlimNodesKeepUserNamespaces(t *testing.T) {
	t.Parallel()
	handler := func(name string, has bool) corev1.NodeRuntimeHandler {
		return corev1.NodeRuntimeHandler{Name: name, Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: &has}}
	}
	for name, c := range map[string]struct {
		handlers []corev1.NodeRuntimeHandler
		want     bool
	}{
		"the default handler has them": {[]corev1.NodeRuntimeHandler{handler("runc", false), handler("", true)}, true},
		"only another one has them":    {[]corev1.NodeRuntimeHandler{handler("", false), handler("gvisor", true)}, false},
		"no handler is known":          {nil, false},
	} {
		n, err := slimNode(&corev1.Node{Status: corev1.NodeStatus{RuntimeHandlers: c.handlers}})
		if err != nil {
			t.Fatal(err)
		}
		kept := n.(*corev1.Node).Status.RuntimeHandlers
		if got := len(kept) == 1 && kept[0].Name == "" && *kept[0].Features.UserNamespaces; got != c.want {
			t.Errorf("%s: kept %v", name, kept)
		}
	}
}
