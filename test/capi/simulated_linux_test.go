package capi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// THE MACHINES ARE SIMULATED. Cluster API's in-memory machines have no host. This file
// writes what a host would, through the API and with each node's own identity. It plays the
// Node that a kubelet reports, the static pods of a control plane, and refit's agent.
// Nothing is installed anywhere; a step only takes time.

// simulation plays the hosts of one workload cluster.
type simulation struct {
	m      *management
	server *httptest.Server
	key    string
	header []byte
	digest string

	mu    sync.Mutex
	hosts map[string]*host
	// held keeps every run where it is, as a step that takes long does.
	held bool
}

// host is one simulated machine.
type host struct {
	name    string
	own     client.Client
	control bool
	version string
	runs    int
}

const componentImage = "registry.k8s.io/%s:%s"

var staticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

func simulate(m *management) *simulation {
	m.t.Helper()
	s := &simulation{m: m, hosts: map[string]*host{}}
	key, _, err := peerapi.NewKey()
	must(m.t, err)
	id, err := peerapi.NewIdentity(key)
	must(m.t, err)
	s.key = id.PublicKey()
	s.header, s.digest = releaseHeader(m, to)
	s.server = httptest.NewUnstartedServer(peerapi.Handler(s, peerapi.Alive{Node: "simulated"}))
	s.server.TLS = id.ServerTLS(func(string) bool { return true })
	s.server.StartTLS()
	m.t.Cleanup(s.server.Close)
	m.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}, Data: map[string]string{"ClusterConfiguration": "kubernetesVersion: " + from + "\n"}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			s.step(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	}()
	m.t.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

// releaseHeader returns the header of a bundle with a release: the test reads no more of it.
func releaseHeader(m *management, version string) (raw []byte, digest string) {
	m.t.Helper()
	md := &bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.0.1", Name: "capi-test", Version: version[1:], KubernetesVersion: version,
		Platforms: []string{"linux/amd64"}, ChunkSize: bundle.DefaultChunkSize}
	var table []byte
	blob := func(content string) (string, int64, int) {
		sum := sha256.Sum256([]byte(content))
		table = append(table, sum[:]...)
		d := bundle.DigestOf([]byte(content))
		md.Blobs = append(md.Blobs, bundle.Blob{Digest: d, Size: int64(len(content))})
		return d, int64(len(content)), len(md.Blobs) - 1
	}
	for _, name := range append(slices.Clone(staticPods), "kube-proxy") {
		image := fmt.Sprintf(componentImage, name, version)
		d, size, i := blob(image)
		md.Images = append(md.Images, bundle.Image{Name: image, Digest: d, MediaType: "application/vnd.oci.image.manifest.v1+json", Group: bundle.GroupNode, Size: size, Blobs: []int{i}})
	}
	slices.SortFunc(md.Images, func(a, b bundle.Image) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range []string{bundle.PayloadKubeadm, bundle.PayloadKubelet} {
		d, size, i := blob(p + version)
		md.Payloads = append(md.Payloads, bundle.Payload{Name: p, Version: version, Platform: "linux/amd64", Digest: d, Size: size, Mode: 0o755, Blob: i})
	}
	raw, err := bundle.Marshal(md, table)
	must(m.t, err)
	h, err := bundle.ParseHeader(raw)
	must(m.t, err)
	return raw, h.Digest
}

func (s *simulation) Header(digest string) ([]byte, error) {
	if digest != s.digest {
		return nil, peerapi.ErrNotHere
	}
	return s.header, nil
}
func (s *simulation) Have(string) ([]byte, error)               { return nil, peerapi.ErrNotHere }
func (s *simulation) Chunk(string, int, []byte) ([]byte, error) { return nil, peerapi.ErrNotHere }

// hold keeps runs from ending, or lets them.
func (s *simulation) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
}

// version that a host runs.
func (s *simulation) version(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.hosts[name]; h != nil {
		return h.version
	}
	return ""
}

func (s *simulation) running() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l v1alpha1.NodeUpdateList
	if s.m.admin.List(context.Background(), &l, client.InNamespace(v1alpha1.NodesNamespace)) != nil {
		return ""
	}
	for _, nu := range l.Items {
		if nu.Status.Run != nil && nu.Status.Run.State == v1alpha1.RunRunning {
			return nu.Name
		}
	}
	return ""
}

// step plays one round of every host. Errors are those of an API server that is
// asked at the wrong moment; the next round asks again.
func (s *simulation) step(ctx context.Context) {
	machines, err := s.m.list(ctx, "Machine")
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range machines {
		mm := &machines[i]
		if node := text(mm, "status", "nodeRef", "name"); node != "" && s.hosts[node] == nil {
			_, control := mm.GetLabels()["cluster.x-k8s.io/control-plane"]
			_ = s.boot(ctx, node, text(mm, "spec", "version"), control)
		}
	}
	for _, h := range s.hosts {
		_ = s.agent(ctx, h)
	}
}

// boot is a host that joins: its Node and its static pods.
func (s *simulation) boot(ctx context.Context, name, version string, control bool) error {
	scheme, err := controller.Scheme()
	if err != nil {
		return err
	}
	own, err := client.New(apitest.AsNode(s.m.cfg, name), client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "simulated": "true"}}}
	if control {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	if err := client.IgnoreAlreadyExists(s.m.admin.Create(ctx, n)); err != nil {
		return err
	}
	h := &host{name: name, own: own, control: control, version: version}
	if err := s.kubelet(ctx, h, version); err != nil {
		return err
	}
	s.hosts[name] = h
	return nil
}

// kubelet reports a version, and the static pods that go with it.
func (s *simulation) kubelet(ctx context.Context, h *host, version string) error {
	var n corev1.Node
	if err := s.m.admin.Get(ctx, client.ObjectKey{Name: h.name}, &n); err != nil {
		return err
	}
	if h.control {
		for _, c := range staticPods {
			if err := s.staticPod(ctx, h, c, version); err != nil {
				return err
			}
		}
		var cm corev1.ConfigMap
		if err := s.m.admin.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kubeadm-config"}, &cm); err != nil {
			return err
		}
		if want := "kubernetesVersion: " + version + "\n"; cm.Data["ClusterConfiguration"] != want {
			cm.Data["ClusterConfiguration"] = want
			if err := s.m.admin.Update(ctx, &cm); err != nil {
				return err
			}
		}
	}
	n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: version, OperatingSystem: "linux", Architecture: "amd64"}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if err := s.m.admin.Status().Update(ctx, &n); err != nil {
		return err
	}
	h.version = version
	return nil
}

func (s *simulation) staticPod(ctx context.Context, h *host, component, version string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: component + "-" + h.name, Labels: map[string]string{"tier": "control-plane", "component": component},
		Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "simulated"}},
		Spec: corev1.PodSpec{NodeName: h.name, Containers: []corev1.Container{{Name: component, Image: fmt.Sprintf(componentImage, component, version)}}}}
	err := s.m.admin.Create(ctx, p)
	if client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	if err != nil {
		if err := s.m.admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		p.Spec.Containers[0].Image = fmt.Sprintf(componentImage, component, version)
		if err := s.m.admin.Update(ctx, p); err != nil {
			return err
		}
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	return s.m.admin.Status().Update(ctx, p)
}

// agent plays refit's agent of a host, as that node.
func (s *simulation) agent(ctx context.Context, h *host) error {
	var nu v1alpha1.NodeUpdate
	if err := h.own.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: h.name}, &nu); err != nil {
		return err
	}
	st := nu.Status.DeepCopy()
	now := metav1.Now()
	if st.Agent != nil && st.Agent.Heartbeat != nil && now.Sub(st.Agent.Heartbeat.Time) < 20*time.Second {
		now = *st.Agent.Heartbeat
	}
	st.Agent = &v1alpha1.AgentInfo{Version: "simulated", Address: s.server.Listener.Addr().String(), PublicKey: s.key, Heartbeat: &now,
		Updaters: []string{"control-plane", "kubeadm", "kubelet", "settle"}, Formats: model.ContentFormats()}
	st.Phase = "Idle"
	st.FileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: 1 << 40, TotalBytes: 1 << 41}}
	s.media(st, &nu)
	if err := s.holds(ctx, h, st, nu.Spec.Pins); err != nil {
		return err
	}
	if err := s.run(ctx, h, st, nu.Spec.Run); err != nil {
		return err
	}
	st.Observed = &v1alpha1.Observed{KubeletVersion: h.version, KubeadmVersion: h.version, RuntimeName: "simulated", Architecture: "amd64"}
	if h.control {
		st.Observed.ControlPlane = h.version
	}
	was, _ := json.Marshal(nu.Status)
	is, _ := json.Marshal(st)
	if string(was) == string(is) {
		return nil
	}
	return ssa.Status(ctx, h.own, ssa.Object{Kind: "NodeUpdate", Namespace: v1alpha1.NodesNamespace, Name: h.name, UID: string(nu.UID)}, st)
}

// media: the stick is in every host, so that none waits for another.
func (s *simulation) media(st *v1alpha1.NodeUpdateStatus, nu *v1alpha1.NodeUpdate) {
	m := v1alpha1.Medium{Device: "/dev/simulated", Digest: s.digest, Name: "capi-test", Version: to[1:], State: v1alpha1.MediumFound}
	st.Bundles = nil
	for _, b := range nu.Spec.Bundles {
		if b.Digest == s.digest {
			m.State, st.Bundles = v1alpha1.MediumCopied, []string{s.digest}
		}
	}
	st.Media = []v1alpha1.Medium{m}
}

func (s *simulation) holds(ctx context.Context, h *host, st *v1alpha1.NodeUpdateStatus, name string) error {
	if name == "" || st.Pins != nil && st.Pins.Content == name {
		return nil
	}
	var c v1alpha1.Content
	if err := h.own.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c); err != nil {
		return err
	}
	var l model.PinSet
	if err := json.Unmarshal([]byte(c.Data), &l); err != nil {
		return err
	}
	images, payloads := int32(len(l.Images)), int32(len(l.Payloads))
	st.Pins = &v1alpha1.PinStatus{Content: name, ImagesTotal: images, ImagesReady: images, ImagesPinned: images, PayloadsTotal: payloads, PayloadsReady: payloads}
	return nil
}

// run plays the steps: they begin in one round and end in a later one.
func (s *simulation) run(ctx context.Context, h *host, st *v1alpha1.NodeUpdateStatus, r *v1alpha1.NodeRun) error {
	switch {
	case r == nil:
		return nil
	case st.Run == nil || st.Run.UID != r.UID || st.Run.Attempt != r.Attempt || st.Run.PlanDigest != r.PlanDigest:
		h.runs++
		began := metav1.Now()
		st.Run = &v1alpha1.NodeRunStatus{UID: r.UID, PlanDigest: r.PlanDigest, Attempt: r.Attempt, State: v1alpha1.RunRunning, Step: r.Steps[0].ID, StartedAt: &began}
		return nil
	case st.Run.State != v1alpha1.RunRunning || s.held:
		return nil
	}
	if err := s.kubelet(ctx, h, to); err != nil {
		return err
	}
	ended := metav1.Now()
	st.Run.State, st.Run.StepsDone, st.Run.FinishedAt = v1alpha1.RunSucceeded, int32(len(r.Steps)), &ended
	return nil
}
