package controller_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// simAgent plays a node: the agent with the node's own identity, and the
// kubelet with the administrator's. It speaks the real wire between nodes.
type simAgent struct {
	t     *testing.T
	node  string
	admin client.Client
	own   client.Client
	key   string
	srv   *httptest.Server
	wake  chan struct{}

	mu      sync.Mutex
	medium  []byte // header of the bundle on the medium, nil if none
	device  string
	signed  []string
	headers map[string][]byte
	chunks  map[string][]byte // the only chunk, by bundle
	peers   []v1alpha1.Peer
	// failStep fails the run at that step, once per attempt that is named.
	failStep map[int32]string
	// hold back: the run stays Running while true.
	slow bool
	// stuck makes an undo fail; undone counts the successful ones.
	stuck  bool
	undone int
	// full reports a disk that is too small.
	full bool
	// mute stops the agent.
	mute bool
	// cordoned counts the rounds in which the node was cordoned.
	cordoned int
	// runs counts the started runs.
	runs int
	// firmware are the fields that an external updater has changed.
	firmware map[string]string
	// prepares stages the OS image of spec.stage, unless registryAway.
	prepares, registryAway bool
	// fields are those of the configurations that were applied.
	fields map[string]string
}

// library lets the controller read what this node may serve.
type library struct{ a *simAgent }

func (l library) Header(d string) ([]byte, error) {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if h := l.a.headers[d]; h != nil {
		return h, nil
	}
	return nil, peerapi.ErrNotHere
}
func (library) Have(string) ([]byte, error) { return nil, peerapi.ErrNotHere }

// Chunk serves bundles of one chunk.
func (l library) Chunk(d string, n int, _ []byte) ([]byte, error) {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if b := l.a.chunks[d]; b != nil && n == 0 && l.a.headers[d] != nil {
		return b, nil
	}
	return nil, peerapi.ErrNotHere
}

func newSimAgent(t *testing.T, cfg *rest.Config, admin client.Client, node string, change func(*simAgent)) *simAgent {
	t.Helper()
	key, _, err := peerapi.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	a := &simAgent{t: t, node: node, admin: admin, own: newClient(t, apitest.AsNode(cfg, node)), key: id.PublicKey(), headers: map[string][]byte{}, failStep: map[int32]string{}, wake: make(chan struct{}, 1)}
	if change != nil {
		change(a)
	}
	a.srv = httptest.NewUnstartedServer(peerapi.Handler(library{a}, peerapi.Alive{Node: node}))
	a.srv.TLS = id.ServerTLS(a.accepts)
	a.srv.StartTLS()
	t.Cleanup(a.srv.Close)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.loop(ctx) })
	watcher := newWatcher(t, cfg)
	for of, by := range map[client.ObjectList]client.ListOption{
		&v1alpha1.NodeUpdateList{}: client.MatchingFields{"metadata.name": node},
		&corev1.NodeList{}:         client.MatchingFields{"metadata.name": node},
		&corev1.PodList{}:          client.MatchingFields{"spec.nodeName": node},
	} {
		wg.Go(func() { a.wakeOn(ctx, watcher, of, by) })
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return a
}

// wakeOn starts a round when what the node has changes: rounds at short intervals would be most of what
// the API servers of these tests do.
func (a *simAgent) wakeOn(ctx context.Context, c client.WithWatch, of client.ObjectList, by client.ListOption) {
	for ctx.Err() == nil {
		if w, err := c.Watch(ctx, of, by); err == nil {
			for range w.ResultChan() {
				a.rouse()
			}
			w.Stop()
		}
		pause(ctx, roundInterval, nil)
	}
}

func (a *simAgent) rouse() {
	select {
	case a.wake <- struct{}{}:
	default: // it is on its way
	}
}

// pause waits for a time, at most until it is woken.
func pause(ctx context.Context, most time.Duration, wake <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-wake:
	case <-time.After(most):
	}
}

// accepts only the keys that the controller named in the spec.
func (a *simAgent) accepts(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.peers, func(p v1alpha1.Peer) bool { return p.PublicKey == key })
}

func (a *simAgent) set(change func(*simAgent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
	a.rouse()
}

// Rounds are roundInterval apart at least. The next one starts when something changed, or after idleInterval.
const (
	roundInterval = 100 * time.Millisecond
	idleInterval  = 2 * time.Second
)

func (a *simAgent) loop(ctx context.Context) {
	for ctx.Err() == nil {
		unfinished := a.step(ctx)
		pause(ctx, roundInterval, nil)
		if !unfinished {
			pause(ctx, idleInterval, a.wake)
		}
	}
}

// step does what an agent does in one round. Errors are those of an API server that is just being asked
// too early. After them, and after a change, it is unfinished: the next round follows.
func (a *simAgent) step(ctx context.Context) (unfinished bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kubelet(ctx)
	var nu v1alpha1.NodeUpdate
	if a.mute {
		return false
	}
	if a.own.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: a.node}, &nu) != nil {
		return true
	}
	var n corev1.Node
	if a.admin.Get(ctx, client.ObjectKey{Name: a.node}, &n) != nil {
		return true
	}
	a.peers = nu.Spec.Peers
	if n.Spec.Unschedulable {
		a.cordoned++
	}
	st := nu.Status.DeepCopy()
	now := metav1.Now()
	if st.Agent != nil && st.Agent.Heartbeat != nil && now.Sub(st.Agent.Heartbeat.Time) < 20*time.Second {
		now = *st.Agent.Heartbeat
	}
	st.Agent = &v1alpha1.AgentInfo{Version: "test", Address: a.srv.Listener.Addr().String(), PublicKey: a.key, Heartbeat: &now, Updaters: allUpdaters, Formats: model.ContentFormats()}
	st.Phase = "Idle"
	st.ObservedGeneration = nu.Generation
	a.media(st, nu.Spec)
	a.hold(ctx, st, nu.Spec)
	a.run(ctx, st, nu.Spec, &n)
	st.Observed = &v1alpha1.Observed{KubeletVersion: n.Status.NodeInfo.KubeletVersion, ControlPlane: n.Annotations["test/control-plane"], Architecture: "amd64", Config: nu.Spec.Config, Fields: a.sees(nu.Spec.Stage)}
	want, _ := json.Marshal(st)
	have, _ := json.Marshal(nu.Status)
	if string(want) == string(have) {
		moving := st.Run != nil && st.Run.State == v1alpha1.RunRunning && !a.slow
		return moving || nu.Spec.Pins != "" && st.Pins == nil
	}
	u := ssa.Object{Kind: "NodeUpdate", Namespace: v1alpha1.NodesNamespace, Name: a.node, UID: string(nu.UID)}
	_ = ssa.Status(ctx, a.own, u, st)
	return true
}

func (a *simAgent) media(st *v1alpha1.NodeUpdateStatus, spec v1alpha1.NodeUpdateSpec) {
	st.Media, st.Bundles = nil, nil
	var approved []string
	for _, b := range spec.Bundles {
		approved = append(approved, b.Digest)
	}
	if a.medium != nil {
		h, err := bundle.ParseHeader(a.medium)
		if err != nil {
			a.t.Errorf("the test's bundle: %v", err)
			return
		}
		m := v1alpha1.Medium{Device: a.device, Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version, State: v1alpha1.MediumFound, SignedBy: a.signed}
		a.headers[h.Digest] = a.medium // the controller reads the bundle that an administrator is asked to approve
		if slices.Contains(approved, h.Digest) {
			m.State = v1alpha1.MediumCopied
		}
		st.Media = []v1alpha1.Medium{m}
	}
	for _, d := range approved {
		if a.headers[d] != nil {
			st.Bundles = append(st.Bundles, d)
		}
	}
}

func (a *simAgent) hold(ctx context.Context, st *v1alpha1.NodeUpdateStatus, spec v1alpha1.NodeUpdateSpec) {
	if spec.Pins == "" {
		return
	}
	var c v1alpha1.Content
	var l model.PinSet
	if a.own.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: spec.Pins}, &c) != nil || json.Unmarshal([]byte(c.Data), &l) != nil {
		return
	}
	bundled, fetched := l.CountImages()
	n, f, p := int32(bundled), int32(fetched), int32(len(l.Payloads))
	st.Pins = &v1alpha1.PinStatus{Content: spec.Pins, ImagesTotal: n, ImagesReady: n, ImagesPinned: n, FetchedTotal: f, FetchedReady: f, PayloadsTotal: p, PayloadsReady: p}
	st.FileSystems = []v1alpha1.FileSystem{{Name: "state", ID: "1", FreeBytes: 1000, TotalBytes: 2000}}
	if a.full {
		st.Pins.ImagesReady, st.Pins.ImagesPinned, st.Pins.FetchedReady = 0, 0, 0
		st.Pins.NeededBytes = map[string]int64{"state": 1234}
	}
}

// run plays the steps: it begins, stays for one round at least, and then moves
// what the kubelet reports.
func (a *simAgent) run(ctx context.Context, st *v1alpha1.NodeUpdateStatus, spec v1alpha1.NodeUpdateSpec, n *corev1.Node) {
	r := spec.Run
	if r == nil {
		return
	}
	if st.Run == nil || st.Run.UID != r.UID || st.Run.Attempt != r.Attempt || st.Run.PlanDigest != r.PlanDigest {
		a.runs++
		st.Run = &v1alpha1.NodeRunStatus{UID: r.UID, PlanDigest: r.PlanDigest, Attempt: r.Attempt, State: v1alpha1.RunRunning, Step: r.Steps[0].ID}
		return
	}
	if st.Run.State != v1alpha1.RunRunning || a.slow {
		return
	}
	defer func() {
		if end := metav1.Now(); st.Run.State != v1alpha1.RunRunning {
			st.Run.FinishedAt = &end
		}
	}()
	if r.Undo {
		a.undo(st.Run, r)
		return
	}
	if step := a.failStep[r.Attempt]; step != "" {
		st.Run.State, st.Run.Step, st.Run.Reason, st.Run.Message = v1alpha1.RunFailed, step, v1alpha1.ReasonStepFailed, "kubeadm ended with 1"
		return
	}
	to := r.Steps[len(r.Steps)-1].To
	if to == "" {
		to = n.Status.NodeInfo.KubeletVersion
	}
	if a.configure(ctx, r.Steps) == nil && a.moveTo(ctx, n, to) == nil {
		st.Run.State, st.Run.StepsDone = v1alpha1.RunSucceeded, int32(len(r.Steps))
	}
}

func (a *simAgent) sees(stage string) map[string]string {
	out := maps.Clone(a.firmware)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, a.fields)
	if a.prepares {
		out[model.FieldOSPrepared] = model.ValueNone
		switch {
		case stage == "":
		case a.registryAway:
			out[model.FieldOSProblem] = "registry.example does not answer"
		default:
			out[model.FieldOSPrepared] = stage
		}
	}
	return out
}

// configure applies the configurations that the steps name, as the updaters would.
func (a *simAgent) configure(ctx context.Context, steps []v1alpha1.UpdateStep) error {
	for _, s := range steps {
		name := s.Params["config"]
		if name == "" {
			continue
		}
		var c v1alpha1.Content
		var conf model.NodeConfig
		if err := a.own.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &c); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(c.Data), &conf); err != nil {
			return err
		}
		if a.fields == nil {
			a.fields = map[string]string{}
		}
		maps.Copy(a.fields, conf.Fields())
		for _, f := range conf.External {
			delete(a.fields, f.Path) // the updater changes the node, not the agent
		}
	}
	return nil
}

// undo reports the run as undone. A failed attempt changes nothing in this simulation, so
// there are no steps to undo.
func (a *simAgent) undo(st *v1alpha1.NodeRunStatus, r *v1alpha1.NodeRun) {
	if a.stuck {
		st.State, st.Step, st.Reason, st.Message = v1alpha1.RunFailed, r.Steps[0].ID, v1alpha1.ReasonStepFailed, "the old binary is gone"
		return
	}
	a.undone++
	st.State = v1alpha1.RunUndone
}

// moveTo changes what the kubelet and the static pods report.
func (a *simAgent) moveTo(ctx context.Context, n *corev1.Node, to string) error {
	if _, cp := n.Labels["node-role.kubernetes.io/control-plane"]; cp {
		for _, c := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			var p corev1.Pod
			if err := a.admin.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: c + "-" + a.node}, &p); err != nil {
				return err
			}
			p.Spec.Containers[0].Image = "registry.k8s.io/" + c + ":" + to
			if err := a.admin.Update(ctx, &p); err != nil {
				return err
			}
		}
		n.Annotations["test/control-plane"] = to
		if err := a.admin.Update(ctx, n); err != nil {
			return err
		}
		var cm corev1.ConfigMap
		if err := a.admin.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kubeadm-config"}, &cm); err != nil {
			return err
		}
		cm.Data["ClusterConfiguration"] = "kubernetesVersion: " + to + "\n"
		if err := a.admin.Update(ctx, &cm); err != nil {
			return err
		}
	}
	n.Status.NodeInfo.KubeletVersion = to
	return a.admin.Status().Update(ctx, n)
}

// kubelet ends the pods of this node that were evicted.
func (a *simAgent) kubelet(ctx context.Context) {
	var pods corev1.PodList
	if a.admin.List(ctx, &pods, client.MatchingFields{"spec.nodeName": a.node}) != nil {
		return
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp != nil {
			_ = a.admin.Delete(ctx, p, client.GracePeriodSeconds(0))
		}
	}
}

// header makes the header of a bundle of a release with some images.
func header(t *testing.T, name, version, kubernetes string, images ...string) []byte {
	return constrained(t, nil, name, version, kubernetes, images...)
}

// constrained makes the header of a bundle that is made for some nodes only.
func constrained(t *testing.T, constraints []bundle.Constraint, name, version, kubernetes string, images ...string) []byte {
	t.Helper()
	m := &bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.0.1", Name: name, Version: version, KubernetesVersion: kubernetes,
		Platforms: []string{"linux/amd64"}, Constraints: constraints, ChunkSize: bundle.DefaultChunkSize}
	var table []byte
	blob := func(content string) (string, int64, int) {
		sum := sha256.Sum256([]byte(content))
		table = append(table, sum[:]...)
		d := bundle.DigestOf([]byte(content))
		m.Blobs = append(m.Blobs, bundle.Blob{Digest: d, Size: int64(len(content))})
		return d, int64(len(content)), len(m.Blobs) - 1
	}
	slices.Sort(images)
	for _, img := range images {
		d, size, i := blob(img)
		m.Images = append(m.Images, bundle.Image{Name: img, Digest: d, MediaType: "application/vnd.oci.image.manifest.v1+json", Group: bundle.GroupNode, Size: size, Blobs: []int{i}})
	}
	if kubernetes != "" {
		for _, p := range []string{bundle.PayloadKubeadm, bundle.PayloadKubelet} {
			d, size, i := blob(version + " " + p)
			m.Payloads = append(m.Payloads, bundle.Payload{Name: p, Version: kubernetes, Platform: "linux/amd64", Digest: d, Size: size, Mode: 0o755, Blob: i})
		}
	}
	raw, err := bundle.Marshal(m, table)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func digest(t *testing.T, raw []byte) string {
	t.Helper()
	h, err := bundle.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	return h.Digest
}

// release is the bundle that the tests move to.
func release(t *testing.T, kubernetes string) []byte {
	v := strings.TrimPrefix(kubernetes, "v")
	return header(t, "refit-demo", v, kubernetes, "registry.k8s.io/kube-apiserver:"+kubernetes, "registry.k8s.io/pause:3.10.2")
}

// allUpdaters are those that an agent of this version has.
var allUpdaters = []string{"certificates", "control-plane", "files", "kubeadm", "kubelet", "kubelet-config", "os-image", "programs", "reboot", "sandbox-image", "settle", "static-pod"}
