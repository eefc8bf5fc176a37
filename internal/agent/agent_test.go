package agent

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// fakeAPI is one node's view of an API server.
type fakeAPI struct {
	mu       sync.Mutex
	nu       *v1alpha1.NodeUpdate
	contents map[string]*v1alpha1.Content
	status   *v1alpha1.NodeUpdateStatus
	writes   int
	away     bool
	// wrote is called with every status that is written; may be nil.
	wrote   func(*v1alpha1.NodeUpdateStatus)
	changed chan struct{}
	events  []string // reason and message
	people  people
}

func (f *fakeAPI) EmitEvent(_ context.Context, reason, message string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, reason+": "+message)
	return nil
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{contents: map[string]*v1alpha1.Content{}, changed: make(chan struct{}, 1), nu: &v1alpha1.NodeUpdate{}}
}

func (f *fakeAPI) Watch(ctx context.Context, got func(*v1alpha1.NodeUpdate)) {
	for {
		f.mu.Lock()
		nu, away := f.nu.DeepCopy(), f.away
		f.mu.Unlock()
		if !away {
			got(nu)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
	}
}

func (f *fakeAPI) Content(_ context.Context, name string) (*v1alpha1.Content, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.contents[name]; c != nil && !f.away {
		return c, nil
	}
	return nil, fmt.Errorf("Content %s not found", name)
}

func (f *fakeAPI) ApplyStatus(_ context.Context, s *v1alpha1.NodeUpdateStatus) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errors.New("connection refused")
	}
	f.status = s.DeepCopy()
	f.writes++
	if f.wrote != nil {
		f.wrote(f.status)
	}
	return nil
}

// tell changes the spec.
func (f *fakeAPI) tell(change func(*v1alpha1.NodeUpdateSpec)) {
	f.mu.Lock()
	change(&f.nu.Spec)
	f.nu.Generation++
	f.mu.Unlock()
	wake(f.changed)
}

func (f *fakeAPI) content(t *testing.T, kind string, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	name := v1alpha1.ContentName(kind, string(b))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contents[name] = &v1alpha1.Content{Type: kind, Data: string(b)}
	return name
}

// fakeRuntime holds images in memory; it reads their manifests from the store.
type fakeRuntime struct {
	mu     sync.Mutex
	dir    string
	images map[string]string
	pins   map[string]bool
	kicks  func()
	// busy is how many loads fail before one succeeds.
	busy int
	// limit is how many images its disk has room for, 0 for any number.
	limit int
}

func (r *fakeRuntime) isFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit > 0 && len(r.images) >= r.limit
}

func (r *fakeRuntime) Used(context.Context) (map[string]bool, error) { return nil, nil }

func (r *fakeRuntime) Remove(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.images, name)
	delete(r.pins, name)
	return nil
}

func (r *fakeRuntime) Present(context.Context) (out []pin.RuntimeImage, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, d := range r.images {
		out = append(out, pin.RuntimeImage{Tags: []string{n}, Digests: []string{pin.Repository(n) + "@" + d}, Pinned: r.pins[n]})
	}
	return out, nil
}

func (r *fakeRuntime) Load(ctx context.Context, img containerd.Image, blobs containerd.Blobs) ([]string, error) {
	if r.isBusy() {
		return nil, errors.New("the runtime is busy")
	}
	if r.isFull() {
		return nil, errors.New("rpc error: write layer: no space left on device")
	}
	b, err := blobs.Open(img.Digest)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	raw, err := io.ReadAll(b)
	if err != nil {
		return nil, err
	}
	if bundle.DigestOf(raw) != img.Digest || int64(len(raw)) != img.Size {
		return nil, errors.New("the manifest is not what it must be")
	}
	r.mu.Lock()
	r.images[img.Name] = img.Digest
	r.mu.Unlock()
	names, _, err := r.Pin(ctx, img)
	return names, err
}

func (r *fakeRuntime) isBusy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	return r.busy >= 0
}

func (r *fakeRuntime) Pin(_ context.Context, img containerd.Image) ([]string, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.images[img.Name] != img.Digest {
		return nil, false, nil
	}
	r.pins[img.Name] = true
	return []string{img.Name}, true, nil
}

func (r *fakeRuntime) Unpin(_ context.Context, names []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range names {
		delete(r.pins, n)
	}
	return nil
}

func (r *fakeRuntime) Root(context.Context) (string, error) { return r.dir, nil }
func (r *fakeRuntime) Version(context.Context) (string, string, error) {
	return "memory", "1", nil
}
func (r *fakeRuntime) Watch(ctx context.Context, changed func()) {
	r.mu.Lock()
	r.kicks = changed
	r.mu.Unlock()
	<-ctx.Done()
}

func (r *fakeRuntime) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.images[name] != ""
}

func (r *fakeRuntime) pinned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pins)
}

func (r *fakeRuntime) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.images)
}

// lose is what a prune tool does.
func (r *fakeRuntime) lose(name string) {
	r.mu.Lock()
	delete(r.images, name)
	delete(r.pins, name)
	changed := r.kicks
	r.mu.Unlock()
	changed()
}

// noFacts is a node of which nothing is known but the images that a release
// needs, if they are given.
type noFacts struct{ release func() ([]string, error) }

func (noFacts) Observe(context.Context, Asked) v1alpha1.Observed { return v1alpha1.Observed{} }
func (f noFacts) ReleaseImages(_ context.Context, program, version, _ string) ([]string, error) {
	if f.release == nil {
		return nil, nil
	}
	if st, err := os.Stat(program); err != nil || st.Mode()&0o100 == 0 || version == "" {
		return nil, fmt.Errorf("kubeadm %s for %q cannot be run: %w", program, version, err)
	}
	return f.release()
}

type noRun struct{}

func (noRun) Run(context.Context, func() *v1alpha1.NodeRun, func(*v1alpha1.NodeRunStatus)) {}
func (noRun) Names() []string                                                              { return []string{"files"} }
func (noRun) Busy() bool                                                                   { return false }
func (noRun) Adopt(v1alpha1.NodeRun, v1alpha1.NodeRunStatus) error                         { return nil }

// testNode is an agent that can be stopped and started again.
type testNode struct {
	t       *testing.T
	name    string
	conf    agentconfig.Config
	api     *fakeAPI
	runtime *fakeRuntime
	facts   noFacts
	place   func(context.Context, string) string
	// room of every file system; nil is the machine's.
	room func(string) (fsutil.Room, error)
	// issue is where a configured console is shown.
	issue *statusreport.Issue
	// rebootFile is where the agent asks for a reboot.
	rebootFile string
	agent      *Agent
	stop       func()
}

func newTestNode(t *testing.T, name string, port int, media ...string) *testNode {
	dir := t.TempDir()
	n := &testNode{t: t, name: name, api: newFakeAPI(),
		runtime: &fakeRuntime{dir: dir, images: map[string]string{}, pins: map[string]bool{}},
		conf: agentconfig.Config{Node: name, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
			Kubeconfig: filepath.Join(dir, "none"), Address: fmt.Sprintf("127.0.0.1:%d", port), NoDevices: true, Media: media},
		rebootFile: filepath.Join(dir, "reboot-required")}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *testNode) start() {
	n.t.Helper()
	a, err := New(n.conf, Parts{API: n.api, Runtime: n.runtime, Runner: func(Store) Runner { return noRun{} }, Facts: n.facts, Place: n.place, Log: slog.New(slog.DiscardHandler),
		Journal: func(_ context.Context, _ peerapi.LogQuery, w io.Writer) error {
			_, err := io.WriteString(w, "log of "+n.name)
			return err
		}})
	if err != nil {
		n.t.Fatal(err)
	}
	a.space.eviction = func() kube.Eviction { return kube.Eviction{} }
	if n.issue != nil {
		a.status.issue = n.issue
	}
	a.status.reboot = &statusreport.Reboot{Path: n.rebootFile, BootID: func() (string, error) { return "this boot", nil }}
	a.bundles.registryRetry, a.registries.handOver = 20*time.Millisecond, time.Nanosecond
	if n.room != nil {
		a.space.roomAt = n.room
	}
	a.unwanted.Grace = 500 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	n.agent = a
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
}

// reported waits until the status satisfies ok.
func (n *testNode) reported(what string, ok func(*v1alpha1.NodeUpdateStatus) bool) *v1alpha1.NodeUpdateStatus {
	n.t.Helper()
	var last *v1alpha1.NodeUpdateStatus
	for range 600 {
		n.api.mu.Lock()
		last = n.api.status
		n.api.mu.Unlock()
		if last != nil && ok(last) {
			return last
		}
		time.Sleep(50 * time.Millisecond)
	}
	b, _ := json.MarshalIndent(last, "", " ")
	n.t.Fatalf("%s never reported: %s; its status:\n%s", n.name, what, b)
	return nil
}

func condition(s *v1alpha1.NodeUpdateStatus, kind string) (status, reason string) {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return string(c.Status), c.Reason
		}
	}
	return "", ""
}

func held(s *v1alpha1.NodeUpdateStatus) bool {
	status, _ := condition(s, v1alpha1.ConditionImagesReady)
	return status == "True"
}

// introduce makes the nodes each other's peers.
func introduce(nodes ...*testNode) {
	for _, n := range nodes {
		var peers []v1alpha1.Peer
		for _, p := range nodes {
			if p != n {
				peers = append(peers, v1alpha1.Peer{Node: p.name, Address: p.conf.Address, PublicKey: p.agent.id.PublicKey()})
			}
		}
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Peers = peers })
	}
}

// mediumWith writes a bundle into a file that an agent scans as a medium.
func mediumWith(t *testing.T, spec bundletest.Spec, seed byte) (path string, h *bundle.Header) {
	t.Helper()
	raw := bundletest.Bytes(t, spec, bundletest.Key(seed))
	path = filepath.Join(t.TempDir(), "stick")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	size, err := bundle.HeaderSize(raw)
	if err != nil {
		t.Fatal(err)
	}
	h, err = bundle.ParseHeader(raw[:size])
	if err != nil {
		t.Fatal(err)
	}
	return path, h
}

func everything(h *bundle.Header) model.PinSet {
	var l model.PinSet
	for _, i := range h.Metadata.Images {
		l.Images = append(l.Images, model.PinSetImage{Name: i.Name, Digest: i.Digest, Bundle: h.Digest})
	}
	for _, p := range h.Metadata.Payloads {
		l.Payloads = append(l.Payloads, model.PinSetPayload{Name: p.Name, Digest: p.Digest, Bundle: h.Digest})
	}
	return l
}

func approve(t *testing.T, h *bundle.Header, hold model.PinSet, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		name := n.api.content(t, v1alpha1.ContentPins, hold)
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
			s.Bundles, s.Pins = []v1alpha1.ApprovedBundle{{Digest: h.Digest}}, name
		})
	}
}

// One medium in one node supplies all nodes, also those that are peers of other nodes only.
func TestOneMediumSuppliesAllNodes(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	a, b, c := newTestNode(t, "n1", 17946, path), newTestNode(t, "n2", 17947), newTestNode(t, "n3", 17948)
	introduce(a, b)
	introduce(b, c) // b ends up with c only, a with b
	found := a.reported("the stick is found and waits for approval", func(s *v1alpha1.NodeUpdateStatus) bool {
		return len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumFound
	})
	if found.Media[0].Digest != h.Digest || found.Media[0].Name != "tiny" || found.Media[0].Version != "1.2.3" {
		t.Fatalf("the finding is %+v", found.Media[0])
	}
	if l, _ := a.agent.library.Blobs().List(); len(l) != 0 || len(a.agent.library.Digests()) != 0 {
		t.Fatalf("something was kept before approval: %v", l)
	}
	introduce(a, b, c)
	approve(t, h, everything(h), a, b, c)
	for _, n := range []*testNode{a, b, c} {
		s := n.reported("everything held", held)
		if s.Pins.ImagesPinned != 2 || s.Pins.PayloadsReady != 1 || s.Pins.BytesDone != s.Pins.BytesTotal || s.Phase != "Ready" {
			t.Errorf("%s: %+v, phase %s", n.name, s.Pins, s.Phase)
		}
		if fromMedia := s.Pins.BytesFromMedia > 0; fromMedia != (n == a) || s.Pins.BytesFromMedia+s.Pins.BytesFromPeers != s.Pins.BytesTotal {
			t.Errorf("%s: %d bytes from media, %d from peers, %d in all", n.name, s.Pins.BytesFromMedia, s.Pins.BytesFromPeers, s.Pins.BytesTotal)
		}
	}
	a.reported("the stick may be pulled", func(s *v1alpha1.NodeUpdateStatus) bool {
		return len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumCopied
	})
	t.Run("a deleted image is restored from the store, without the medium", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		a.runtime.lose("registry.k8s.io/pause:3.10.2")
		a.reported("held again", func(s *v1alpha1.NodeUpdateStatus) bool {
			return held(s) && a.runtime.has("registry.k8s.io/pause:3.10.2")
		})
		a.api.mu.Lock()
		defer a.api.mu.Unlock()
		if len(a.api.events) != 1 || !strings.Contains(a.api.events[0], "ImageRestored") || !strings.Contains(a.api.events[0], "pause:3.10.2") || !strings.Contains(a.api.events[0], "this node's own copy") {
			t.Errorf("it is not said, or not from where: %q", a.api.events)
		}
	})
	t.Run("a restart without API server and peers restores all images", func(t *testing.T) {
		c.stop()
		c.api.mu.Lock()
		c.api.away = true
		c.api.mu.Unlock()
		c.runtime.mu.Lock()
		c.runtime.images, c.runtime.pins = map[string]string{}, map[string]bool{}
		c.runtime.mu.Unlock()
		c.start()
		for range 200 {
			if p, _ := c.runtime.Present(t.Context()); len(p) == 2 {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatal("no image was restored")
	})
	t.Run("a spec that is empty for a moment costs nothing", func(t *testing.T) {
		before := b.api.nu.Spec.DeepCopy()
		b.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Bundles, s.Pins = nil, "" })
		b.reported("idle", func(s *v1alpha1.NodeUpdateStatus) bool { return s.Phase == "Idle" })
		b.api.tell(func(s *v1alpha1.NodeUpdateSpec) { *s = *before })
		s := b.reported("held", held)
		if s.Pins.BytesDone != s.Pins.BytesTotal || b.runtime.pinned() != 2 {
			t.Fatalf("%+v, %d pins", s.Pins, b.runtime.pinned())
		}
	})
	t.Run("what is held no more is unpinned, its blobs go", func(t *testing.T) {
		b.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Bundles, s.Pins = nil, "" })
		b.reported("idle", func(s *v1alpha1.NodeUpdateStatus) bool { return s.Phase == "Idle" && s.Pins == nil })
		for range 200 {
			l, _ := b.agent.library.Blobs().List()
			if len(l) == 0 && b.runtime.pinned() == 0 {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		l, _ := b.agent.library.Blobs().List()
		t.Fatalf("left: blobs %v, %d pins", l, b.runtime.pinned())
	})
}

// Promise 8: nothing that is not approved is kept or loaded, and the status
// says what was found and what was expected.
func TestWhatIsNotApprovedIsNotTouched(t *testing.T) {
	wanted := bundletest.Tiny()
	wanted.Version = "2.0.0"
	_, other := mediumWith(t, wanted, 1)
	t.Run("another bundle than the approved one", func(t *testing.T) {
		path, h := mediumWith(t, bundletest.Tiny(), 1)
		n := newTestNode(t, "n1", 17950, path)
		approve(t, other, everything(other), n)
		s := n.reported("the stick is refused", func(s *v1alpha1.NodeUpdateStatus) bool {
			return len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumRefused
		})
		for _, want := range []string{h.Digest, other.Digest, "1.2.3"} {
			if !strings.Contains(s.Media[0].Message, want) {
				t.Errorf("the message does not say %s: %s", want, s.Media[0].Message)
			}
		}
		if l, _ := n.agent.library.Blobs().List(); len(l) != 0 || n.runtime.count() != 0 {
			t.Errorf("something was kept: %v, %d images", l, n.runtime.count())
		}
	})
	t.Run("a trusted key lets it be loaded; a revoked digest never", func(t *testing.T) {
		path, h := mediumWith(t, bundletest.Tiny(), 7)
		n := newTestNode(t, "n1", 17951, path)
		pem, err := bundle.PublicKeyPEM(bundletest.Key(7).Public().(ed25519.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		rule := model.TrustRule{Name: "site", Keys: map[string]string{"k": string(pem)}, Threshold: 1}
		n.api.says(func(p *people) { p.policies = []v1alpha1.TrustPolicy{policyOf(t, 7)} })
		trust := n.api.content(t, v1alpha1.ContentTrust, model.Trust{Policies: []model.TrustRule{rule}})
		hold := n.api.content(t, v1alpha1.ContentPins, everything(h))
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Trust, s.Pins = trust, hold })
		s := n.reported("held by key", held)
		if d := cmp.Diff([]string{"k"}, s.Media[0].SignedBy); d != "" {
			t.Error(d)
		}
		revoked := n.api.content(t, v1alpha1.ContentTrust, model.Trust{Policies: []model.TrustRule{rule}, RevokedDigests: []string{h.Digest}})
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) { s.Trust = revoked })
		n.reported("stalled because it is revoked", func(s *v1alpha1.NodeUpdateStatus) bool {
			st, reason := condition(s, v1alpha1.ConditionStalled)
			return st == "True" && reason == v1alpha1.ReasonBundleRevoked && len(s.Bundles) == 0
		})
	})
	t.Run("an altered stick: what is damaged is not kept, the rest comes from a peer", func(t *testing.T) {
		path, h := mediumWith(t, bundletest.Tiny(), 1)
		good := newTestNode(t, "good", 17952, path)
		raw, _ := os.ReadFile(path)
		bad := filepath.Join(t.TempDir(), "bad")
		raw[h.ChunkOffset(h.Chunks.Len()-1)] ^= 1
		if err := os.WriteFile(bad, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		n := newTestNode(t, "n1", 17953, bad)
		approve(t, h, everything(h), n)
		n.reported("the stick is unreadable", func(s *v1alpha1.NodeUpdateStatus) bool {
			return len(s.Media) == 1 && s.Media[0].State == v1alpha1.MediumUnreadable && !held(s)
		})
		approve(t, h, everything(h), good)
		introduce(good, n)
		n.reported("held, with the help of the peer", held)
	})
	t.Run("a Content that was altered is not used", func(t *testing.T) {
		path, h := mediumWith(t, bundletest.Tiny(), 1)
		n := newTestNode(t, "n1", 17954, path)
		name := n.api.content(t, v1alpha1.ContentPins, everything(h))
		n.api.mu.Lock()
		n.api.contents[name].Data += " "
		n.api.mu.Unlock()
		n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
			s.Bundles, s.Pins = []v1alpha1.ApprovedBundle{{Digest: h.Digest}}, name
		})
		n.reported("it says so", func(s *v1alpha1.NodeUpdateStatus) bool { return strings.Contains(s.Message, "altered") })
		if n.runtime.count() != 0 {
			t.Fatal("it was used")
		}
	})
}

// Who waits says so once; the status is not written again and again.
func TestWaitingIsQuiet(t *testing.T) {
	_, h := mediumWith(t, bundletest.Tiny(), 1)
	n, peer := newTestNode(t, "n1", 17956), newTestNode(t, "n2", 17957)
	introduce(n, peer)
	approve(t, h, everything(h), n)
	n.reported("it waits for the bundle", func(s *v1alpha1.NodeUpdateStatus) bool {
		_, reason := condition(s, v1alpha1.ConditionReconciling)
		return s.Phase == "Waiting" && reason == v1alpha1.ReasonBundleNotFound
	})
	time.Sleep(time.Second) // what came together with it
	n.api.mu.Lock()
	before := n.api.writes
	n.api.mu.Unlock()
	time.Sleep(2 * bundlesEvery)
	n.api.mu.Lock()
	defer n.api.mu.Unlock()
	if more := n.api.writes - before; more > 1 {
		t.Fatalf("%d writes while nothing changed; the last status: %+v", more, n.api.status.Conditions)
	}
}
