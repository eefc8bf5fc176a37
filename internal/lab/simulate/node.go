package simulate

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// node is one simulated node: its agent and its kubelet.
type node struct {
	name string
	// takes is how long its steps take together.
	takes time.Duration

	mu sync.Mutex
	// want is the NodeUpdate as it was seen last, nil before the first time.
	want *v1alpha1.NodeUpdate
	// kubelet version that runs, and whether the kubelet is Ready.
	kubelet string
	ready   bool
	// reportedKubelet and reportedReady are the values last written to the Node.
	reportedKubelet string
	reportedReady   bool
	// run is the agent's current run, began when it started.
	run   *v1alpha1.NodeRun
	began time.Time
	// sent is the status that was written last, and when.
	sent   *v1alpha1.NodeUpdateStatus
	sentAt time.Time
}

// drawn makes the nodes; every one's time comes from the seed and its number.
func drawn(o Options) []*node {
	out := make([]*node, o.Nodes)
	for i := range out {
		r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		out[i] = &node{name: fmt.Sprintf("node-%05d", i+1), kubelet: from, reportedKubelet: from, ready: true, reportedReady: true,
			takes: time.Duration((2 + 2*r.Float64()) / 3 * float64(o.Mean))}
	}
	return out
}

// kubeNode is the Node as its kubelet registers it.
func (n *node) kubeNode() *corev1.Node {
	amount := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{"kubernetes.io/hostname": n.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"topology.kubernetes.io/zone": "zone-" + n.name[len(n.name)-1:], "simulated": "true"},
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Status: corev1.NodeStatus{Capacity: amount, Allocatable: amount, Conditions: n.kubeConditions(),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: n.name}},
			NodeInfo: corev1.NodeSystemInfo{MachineID: n.name, SystemUUID: n.name, BootID: n.name, KernelVersion: "6.1.0", OSImage: "simulated",
				ContainerRuntimeVersion: "containerd://2.2.9", KubeletVersion: n.kubelet, OperatingSystem: "linux", Architecture: "amd64"}},
	}
}

func (n *node) kubeConditions() []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "Simulated", Message: "simulated"}
		if kind == corev1.NodeReady && n.ready {
			c.Status = corev1.ConditionTrue
		}
		out = append(out, c)
	}
	return out
}

// seen records the NodeUpdate that the watch delivered.
func (n *node) seen(nu *v1alpha1.NodeUpdate, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.want = nu
	r := nu.Spec.Run
	if r == nil || n.run != nil && n.run.UID == r.UID && n.run.PlanDigest == r.PlanDigest && n.run.Attempt == r.Attempt {
		return
	}
	n.run, n.began = r, now
}

// The kubelet restarts when the last step starts, which waits for it, and becomes Ready in
// the middle of that step.
func (n *node) restarted() float64 { return 1 - 1/float64(len(n.run.Steps)) }
func (n *node) isReady() float64   { return 1 - 0.5/float64(len(n.run.Steps)) }

// advance computes the node's state at this moment, and returns the time of its next
// change; zero if nothing changes by itself.
func (n *node) advance(now time.Time) (next time.Time) {
	if n.run == nil || len(n.run.Steps) == 0 {
		return time.Time{}
	}
	share := float64(now.Sub(n.began)) / float64(n.takes)
	n.kubelet, n.ready = from, true
	if share >= n.restarted() {
		n.kubelet, n.ready = to, share >= n.isReady()
	}
	marks := []float64{n.restarted(), n.isReady(), 1}
	for i := range n.run.Steps {
		marks = append(marks, float64(i)/float64(len(n.run.Steps)))
	}
	first := 2.0
	for _, m := range marks {
		if m > share && m < first {
			first = m
		}
	}
	if first > 1 {
		return time.Time{}
	}
	return n.began.Add(time.Duration(first * float64(n.takes)))
}

// status is what the agent reports at this moment; hold counts a hold list.
func (n *node) status(now time.Time, c *chunkServer, device string, hold func(name string) (images, payloads int32)) *v1alpha1.NodeUpdateStatus {
	st := &v1alpha1.NodeUpdateStatus{ObservedGeneration: n.want.Generation, Phase: "Idle", Message: "no content or update is assigned to this node",
		Agent:       &v1alpha1.AgentInfo{Version: "0.1.0", Address: c.address, PublicKey: c.key, Updaters: []string{"control-plane", "kubeadm", "kubelet", "settle"}, Formats: model.ContentFormats()},
		Observed:    &v1alpha1.Observed{KubeletVersion: n.kubelet, KubeadmVersion: from, RuntimeName: "containerd", RuntimeVersion: "2.2.9", BootID: n.name, Architecture: "amd64", Config: n.want.Spec.Config},
		FileSystems: []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: 50 << 30, TotalBytes: 100 << 30}, {Name: "images", ID: "1", FreeBytes: 50 << 30, TotalBytes: 100 << 30}}}
	for _, b := range n.want.Spec.Bundles {
		if b.Digest == c.medium.digest {
			st.Bundles = []string{b.Digest}
		}
	}
	if device != "" {
		m := v1alpha1.Medium{Device: device, Digest: c.medium.digest, Name: "simulated", Version: to[1:], State: v1alpha1.MediumFound}
		if st.Bundles != nil {
			m.State = v1alpha1.MediumCopied
		}
		st.Media = []v1alpha1.Medium{m}
	}
	if name := n.want.Spec.Pins; name != "" {
		images, payloads := hold(name)
		st.Pins = &v1alpha1.PinStatus{Content: name, ImagesTotal: images, ImagesReady: images, ImagesPinned: images, PayloadsTotal: payloads, PayloadsReady: payloads}
		st.Phase, st.Message = "Ready", fmt.Sprintf("%s and %s are stored and pinned", text.Count(int(images), "image"), text.Count(int(payloads), "payload"))
	}
	n.runStatus(st, now)
	st.Conditions = conditions(st)
	return st
}

func (n *node) runStatus(st *v1alpha1.NodeUpdateStatus, now time.Time) {
	if n.run == nil {
		return
	}
	share := float64(now.Sub(n.began)) / float64(n.takes)
	done := min(len(n.run.Steps), int(share*float64(len(n.run.Steps))))
	began := metav1.NewTime(n.began.Truncate(time.Second))
	r := &v1alpha1.NodeRunStatus{UID: n.run.UID, PlanDigest: n.run.PlanDigest, Attempt: n.run.Attempt, State: v1alpha1.RunRunning, StepsDone: int32(done), StartedAt: &began}
	if share >= 1 {
		ended := metav1.NewTime(n.began.Add(n.takes).Truncate(time.Second))
		r.State, r.FinishedAt = v1alpha1.RunSucceeded, &ended
		st.Observed.KubeadmVersion = to
	} else {
		r.Step = n.run.Steps[done].ID
		st.Phase, st.Message = "Updating", "step "+r.Step+": simulated"
	}
	st.Run = r
}

// conditions as an agent reports them.
func conditions(st *v1alpha1.NodeUpdateStatus) []metav1.Condition {
	busy := st.Phase == "Updating"
	held := st.Pins != nil
	var out []metav1.Condition
	for _, c := range []struct {
		kind string
		is   bool
	}{{v1alpha1.ConditionReady, !busy}, {v1alpha1.ConditionReconciling, busy}, {v1alpha1.ConditionStalled, false}, {v1alpha1.ConditionImagesReady, held}} {
		s := metav1.ConditionFalse
		if c.is {
			s = metav1.ConditionTrue
		}
		out = append(out, metav1.Condition{Type: c.kind, Status: s, Reason: v1alpha1.ReasonAsExpected, Message: st.Message, ObservedGeneration: st.ObservedGeneration,
			LastTransitionTime: metav1.NewTime(time.Unix(0, 0))})
	}
	return out
}
