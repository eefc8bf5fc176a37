// Package trust shows against a real API server what a stolen controller token
// reaches: a real agent, with its real client and its node's identity, obeys only what
// an administrator wrote.
package trust

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/apiclient"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/fsutil/disktest"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// runner notes which run it was permitted to start.
type runner struct {
	mu  sync.Mutex
	got []string
}

func (r *runner) Run(_ context.Context, permitted func() *v1alpha1.NodeRun, _ func(*v1alpha1.NodeRunStatus)) {
	if run := permitted(); run != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, run.Name+" "+run.Steps[0].Verb)
	}
}
func (r *runner) Names() []string                                      { return []string{"files"} }
func (r *runner) Busy() bool                                           { return false }
func (r *runner) Adopt(v1alpha1.NodeRun, v1alpha1.NodeRunStatus) error { return nil }
func (r *runner) started() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

// store is a container runtime in memory.
type store struct {
	mu     sync.Mutex
	dir    string
	images map[string]string
}

func (s *store) Present(context.Context) (out []pin.RuntimeImage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, d := range s.images {
		out = append(out, pin.RuntimeImage{Tags: []string{n}, Digests: []string{pin.Repository(n) + "@" + d}, Pinned: true})
	}
	return out, nil
}

func (s *store) Load(_ context.Context, img containerd.Image, _ containerd.Blobs) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[img.Name] = img.Digest
	return []string{img.Name}, nil
}

func (s *store) Pin(_ context.Context, img containerd.Image) ([]string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []string{img.Name}, s.images[img.Name] == img.Digest, nil
}
func (s *store) Unpin(context.Context, []string) error                  { return nil }
func (s *store) Root(context.Context) (string, error)                   { return s.dir, nil }
func (s *store) Version(context.Context) (string, string, error)        { return "memory", "1", nil }
func (s *store) Watch(ctx context.Context, _ func())                    { <-ctx.Done() }
func (s *store) Observe(context.Context, agent.Asked) v1alpha1.Observed { return v1alpha1.Observed{} }
func (s *store) ReleaseImages(context.Context, string, string, string) ([]string, error) {
	return nil, nil
}

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// site is a cluster with one node, its administrator, and who stole the controller's token.
type site struct {
	t            *testing.T
	admin, thief client.Client
	header       *bundle.Header
	runner       *runner
	drilled      chan string
	disk         *disk
	stager       *stager
}

func newSite(t *testing.T) *site {
	cfg := apitest.Start(t)
	s := &site{t: t, admin: newClient(t, cfg), thief: newClient(t, apitest.As(cfg, apitest.ControllerUser)), runner: &runner{}, drilled: make(chan string, 1), stager: &stager{make(chan string, 16)}}
	dir := disktest.Tmpfs(t, 64<<20).Dir // with room of its own: how full the machine is decides nothing
	s.disk = newDisk(t, dir, motd, sudoers)
	raw := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	medium := filepath.Join(dir, "stick")
	if err := os.WriteFile(medium, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	size, err := bundle.HeaderSize(raw)
	if err == nil {
		s.header, err = bundle.ParseHeader(raw[:size])
	}
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	api := apiclient.New(kubeconfig(t, cfg, dir, "n1"), "n1", log)
	rt := &store{dir: dir, images: map[string]string{}}
	a, err := agent.New(agentconfig.Config{Node: "n1", StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Kubeconfig: "x",
		Address: "127.0.0.1:18211", NoDevices: true, Media: []string{medium}},
		agent.Parts{API: api, Runtime: rt, Facts: rt, Runner: func(agent.Store) agent.Runner { return s.runner }, Log: log,
			Running: func(context.Context, string, string, string) ([]string, error) { return []string{edgeRuns}, nil },
			Drill:   func(_ context.Context, id string) error { s.drilled <- id; return nil }, Stager: s.stager,
			Repair: func(ctx context.Context, c *model.NodeConfig, busy func() bool) ([]string, error) {
				return s.disk.updater.Repair(ctx, filepath.Join(dir, "repair"), c, busy)
			},
			Settled: func(context.Context, []model.PinSetImage, *bundlestore.Library) {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s
}

// kubeconfig of a node's identity.
func kubeconfig(t *testing.T, cfg *rest.Config, dir, node string) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["n"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData,
		Impersonate: "system:node:" + node, ImpersonateGroups: []string{"system:nodes", "system:authenticated"}}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "n"}
	k.CurrentContext = "x"
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *site) content(kind string, v any) string {
	s.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.text(kind, string(b))
}

func (s *site) text(kind, data string) string {
	s.t.Helper()
	o := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: v1alpha1.ContentName(kind, data)}, Type: kind, Data: data}
	if err := s.thief.Create(context.Background(), o); err != nil {
		s.t.Fatal(err)
	}
	return o.Name
}

// tell writes the node's spec with the controller's token.
func (s *site) tell(change func(*v1alpha1.NodeUpdateSpec)) error {
	nu := s.nodeUpdate()
	patch := client.MergeFrom(nu.DeepCopy())
	change(&nu.Spec)
	return s.thief.Patch(context.Background(), nu, patch)
}

func (s *site) nodeUpdate() *v1alpha1.NodeUpdate {
	s.t.Helper()
	nu := &v1alpha1.NodeUpdate{}
	if err := s.thief.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n1"}, nu); err != nil {
		s.t.Fatal(err)
	}
	return nu
}

func (s *site) until(what string, ok func(*v1alpha1.NodeUpdate) bool) {
	s.t.Helper()
	for range 900 {
		if ok(s.nodeUpdate()) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b, _ := json.MarshalIndent(s.nodeUpdate().Status, "", " ")
	s.t.Fatalf("never: %s; the status is %s", what, b)
}

func stalled(reason, says string) func(*v1alpha1.NodeUpdate) bool {
	return func(nu *v1alpha1.NodeUpdate) bool {
		for _, c := range nu.Status.Conditions {
			if c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue && c.Reason == reason {
				return strings.Contains(nu.Status.Message, says)
			}
		}
		return false
	}
}

func (s *site) refused(what string, err error) {
	s.t.Helper()
	if err == nil {
		s.t.Errorf("the controller's token may: %s", what)
	}
}

func (s *site) mustCreate(o client.Object) {
	s.t.Helper()
	if err := s.admin.Create(context.Background(), o); err != nil {
		s.t.Fatal(err)
	}
}

// notForControllers are objects that the admission policies refuse to the controller's token, also
// where RBAC permits them.
func (s *site) notForControllers() map[string]client.Object {
	m := metav1.ObjectMeta{Name: "x"}
	digest := s.header.Digest
	return map[string]client.Object{
		"approve a bundle": &v1alpha1.Bundle{ObjectMeta: m, Spec: v1alpha1.BundleSpec{Digest: digest}},
		"trust a key": &v1alpha1.TrustPolicy{ObjectMeta: m, Spec: v1alpha1.TrustPolicySpec{
			Keys: []v1alpha1.TrustedKey{{Name: "k", PublicKey: "-----BEGIN PUBLIC KEY-----\n"}}}},
		"start an update": &v1alpha1.ClusterUpdate{ObjectMeta: m, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest}},
		"make a track":    &v1alpha1.ImageTrack{ObjectMeta: m, Spec: v1alpha1.ImageTrackSpec{Repository: "r.example/a", Follow: v1alpha1.TrackFollow{Tag: "1"}}},
		"ask for a drill": askForDrill(),
	}
}

// waitForPolicy waits until admission refuses the object: the API server puts each policy in force
// on its own, some time after it was made.
func (s *site) waitForPolicy(what string, o client.Object) {
	s.t.Helper()
	var last error
	for range 900 {
		last = s.thief.Create(context.Background(), o.DeepCopyObject().(client.Object), client.DryRunAll)
		if last != nil && strings.Contains(last.Error(), "ValidatingAdmissionPolicy") && !strings.Contains(last.Error(), notSynced) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Fatalf("no admission policy is in force against: %s: %v", what, last)
}

// notSynced is in the refusal of an API server that has a policy and not yet the objects that are its
// parameters. It reads them some time after the policy was made.
const notSynced = "not yet synced"

// createNodeUpdate makes the NodeUpdate of a node, as the controller does.
func (s *site) createNodeUpdate(node string) {
	s.t.Helper()
	var err error
	for range 900 {
		err = s.thief.Create(context.Background(), &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: node}})
		if err == nil || !strings.Contains(err.Error(), notSynced) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// askForDrill is a NodeUpdate whose author asks for a drill.
func askForDrill() *v1alpha1.NodeUpdate {
	return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "x",
		Annotations: map[string]string{v1alpha1.AnnotationDrill: "x"}}}
}

func TestAStolenControllerToken(t *testing.T) {
	s := newSite(t)
	ctx := context.Background()
	s.createNodeUpdate("n1")
	s.grantOwn("n1")
	// As kube-apiserver's Node authorizer does.
	s.mustCreate(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:nodes"}}})
	// With every right that RBAC can give, so that admission alone decides.
	s.mustCreate(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: apitest.ControllerUser}}})
	for what, o := range s.notForControllers() {
		s.waitForPolicy(what, o)
	}
	digest := s.header.Digest
	t.Run("writes nothing that nodes take for an administrator's word", func(t *testing.T) {
		for what, o := range s.notForControllers() {
			s.refused(what, s.thief.Create(ctx, o))
		}
	})
	t.Run("an unapproved bundle is not obeyed", func(t *testing.T) {
		hold := model.PinSet{}
		for _, i := range s.header.Metadata.Images {
			hold.Images = append(hold.Images, model.PinSetImage{Name: i.Name, Digest: i.Digest, Bundle: digest})
		}
		name := s.content(v1alpha1.ContentPins, hold)
		trust := s.content(v1alpha1.ContentTrust, model.Trust{Policies: []model.TrustRule{{Name: "x", Threshold: 1, Keys: map[string]string{"k": publicKey(t)}}}})
		if err := s.tell(func(n *v1alpha1.NodeUpdateSpec) {
			n.Bundles, n.Pins, n.Trust = []v1alpha1.ApprovedBundle{{Digest: digest}}, name, trust
		}); err != nil {
			t.Fatal(err)
		}
		s.until("refused", stalled(v1alpha1.ReasonApprovalNotFound, digest))
		if nu := s.nodeUpdate(); len(nu.Status.Bundles) != 0 {
			t.Errorf("the node has %v", nu.Status.Bundles)
		}
	})
	t.Run("it is obeyed once an administrator approves it", func(t *testing.T) {
		s.mustCreate(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: v1alpha1.BundleSpec{Digest: digest}})
		s.until("held", func(nu *v1alpha1.NodeUpdate) bool {
			h := nu.Status.Pins
			return h != nil && h.ImagesTotal > 0 && h.ImagesPinned == h.ImagesTotal && len(nu.Status.Bundles) == 1
		})
		b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "release"}}
		s.refused("delete an approved bundle", s.thief.Delete(ctx, b))
		if err := s.thief.Create(ctx, &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "found"}}); err != nil {
			t.Errorf("a found bundle: %v", err)
		}
		if err := s.thief.Delete(ctx, &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "found"}}); err != nil {
			t.Errorf("deleting a discovered, unapproved bundle: %v", err)
		}
	})
	t.Run("runs", func(t *testing.T) { s.testRuns(t, digest) })
	t.Run("runs of tracks", s.testTrackRuns)
	t.Run("configurations", s.testConfigs)
	t.Run("plans that no update names", func(t *testing.T) { s.testUnnamedPlan(t, digest) })
	t.Run("drills", s.testDrills)
}

// grantOwn lets a node read its NodeUpdate, as the controller does.
func (s *site) grantOwn(node string) {
	m := metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "refit:node:" + node}
	s.mustCreate(&rbacv1.Role{ObjectMeta: m, Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"nodeupdates"}, ResourceNames: []string{node}, Verbs: []string{"get", "list", "watch"}}}})
	s.mustCreate(&rbacv1.RoleBinding{ObjectMeta: m, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: m.Name},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "system:node:" + node}}})
}

// withoutGate takes the API server's own guard of runs away: the node alone decides.
func (s *site) withoutGate() {
	for _, name := range gateBindings {
		b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := s.admin.Delete(context.Background(), b); err != nil {
			s.t.Fatal(err)
		}
	}
}

// gateBindings are those of config/admission/gate.yaml that guard spec.run and the
// start of an update.
var gateBindings = []string{"refit-gate-before-run", "refit-tracks-write-static-pods", "refit-people-start"}

// testRuns: the gate's admission policy believes the status that the controller writes;
// the node does not.
func (s *site) testRuns(t *testing.T, digest string) {
	ctx := context.Background()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: v1alpha1.ClusterUpdateSpec{Bundle: digest}}
	s.mustCreate(u)
	step := func(verb string) model.Plan {
		return model.Plan{Version: model.PlanVersion, Target: model.Target{Bundle: digest}, Nodes: []model.NodePlan{{Node: "n1", Steps: []model.Step{{ID: "a", Updater: "files", Verb: verb, By: model.ByAgent}}}}}
	}
	good, evil := step("apply"), step("evil")
	say := func(p model.Plan) { // what the controller says of the update
		t.Helper()
		if err := s.admin.Get(ctx, client.ObjectKey{Name: "u"}, u); err != nil {
			t.Fatal(err)
		}
		now := metav1.Now()
		name := v1alpha1.ContentName(v1alpha1.ContentPlan, string(p.JSON()))
		if err := s.admin.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &v1alpha1.Content{}); err != nil {
			s.text(v1alpha1.ContentPlan, string(p.JSON()))
		}
		u.Status.Plan, u.Status.PlanDigest, u.Status.StartedAt = name, p.Digest(), &now
		for range 100 { // the API server notices after a moment that its guard is gone
			err := s.thief.Status().Update(ctx, u)
			if err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
			u.Status.Plan, u.Status.PlanDigest, u.Status.StartedAt = name, p.Digest(), &now
		}
		t.Fatal("the status cannot be written")
	}
	permit := func(name string, p model.Plan, verb string) (err error) {
		for range 100 { // the API server notices after a moment that its guard is gone
			err = s.tell(func(n *v1alpha1.NodeUpdateSpec) {
				n.Run = &v1alpha1.NodeRun{Name: name, UID: string(u.UID), Bundle: digest, PlanDigest: p.Digest(), Attempt: 1, Steps: []v1alpha1.UpdateStep{{ID: "a", Updater: "files", Verb: verb}}}
			})
			if err == nil {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
	s.withoutGate()
	if err := permit("missing-update", evil, "evil"); err != nil {
		t.Fatal(err)
	}
	s.until("the run of no update is refused", stalled(v1alpha1.ReasonRunNotApproved, "there is no ClusterUpdate/missing-update"))
	say(evil)
	if err := permit("u", evil, "evil"); err != nil {
		t.Fatal(err)
	}
	s.until("a run that no administrator started is refused", stalled(v1alpha1.ReasonRunNotApproved, "no administrator started the update"))
	say(good)
	patch := client.MergeFrom(u.DeepCopy())
	u.Spec.Start, u.Spec.PlanDigest = v1alpha1.StartImmediate, good.Digest()
	if err := s.admin.Patch(ctx, u, patch); err != nil {
		t.Fatal(err)
	}
	if err := permit("u", good, "evil"); err != nil {
		t.Fatal(err)
	}
	s.until("unapproved steps are refused", stalled(v1alpha1.ReasonRunNotApproved, "not those of the plan"))
	say(evil)
	if err := permit("u", evil, "evil"); err != nil {
		t.Fatal(err)
	}
	s.until("an unapproved plan is refused", stalled(v1alpha1.ReasonRunNotApproved, "was approved"))
	if got := s.runner.started(); len(got) != 0 {
		t.Fatalf("started: %v", got)
	}
	say(good)
	if err := permit("u", good, "apply"); err != nil {
		t.Fatal(err)
	}
	s.until("the run that an administrator started runs", func(*v1alpha1.NodeUpdate) bool { return len(s.runner.started()) > 0 })
	for _, g := range s.runner.started() {
		if g != "u apply" {
			t.Errorf("started: %s", g)
		}
	}
}

// edgeRuns is what the node's static pod runs.
var edgeRuns = model.DigestOf([]byte("runs"))

// testTrackRuns: without an approval a static pod gets another name for what it runs, and
// no other image of the track's repository.
func (s *site) testTrackRuns(t *testing.T) {
	track := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.ImageTrackSpec{Repository: "r.example/edge",
		Follow: v1alpha1.TrackFollow{Tag: "1.0"}, Mode: v1alpha1.ModeWrite, Targets: []v1alpha1.TrackTarget{{Kind: "StaticPod", Namespace: "edge", Name: "edge"}}}}
	s.mustCreate(track)
	permit := func(verb, digest string) {
		t.Helper()
		p := model.StaticPodImages{Namespace: "edge", Pod: "edge", To: map[string]string{"c": "r.example/edge:1.0-b1@" + digest}, Was: map[string]string{"c": "r.example/edge:1.0"}}
		err := s.tell(func(n *v1alpha1.NodeUpdateSpec) {
			n.Run = &v1alpha1.NodeRun{Name: v1alpha1.TrackRun + "edge", UID: string(track.UID) + "-1", PlanDigest: digest, Attempt: 1,
				Steps: []v1alpha1.UpdateStep{{ID: "static-pod", Updater: model.UpdaterStaticPod, Verb: verb, Params: p.Params()}}}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	started := func(name string) bool {
		return slices.Contains(s.runner.started(), v1alpha1.TrackRun+"edge "+name)
	}
	permit("evil", model.DigestOf([]byte("evil")))
	s.until("an unapproved image that does not run is refused", stalled(v1alpha1.ReasonRunNotApproved, "no administrator approved r.example/edge:1.0-b1"))
	permit("write", edgeRuns)
	s.until("what runs gets a name that cannot move", func(*v1alpha1.NodeUpdate) bool { return started("write") })
	if started("evil") {
		t.Error("the unapproved image was written")
	}
}

func (s *site) testDrills(t *testing.T) {
	ctx := context.Background()
	ask := func(c client.Client, id string) error {
		nu := s.nodeUpdate()
		patch := client.MergeFrom(nu.DeepCopy())
		nu.Annotations = map[string]string{v1alpha1.AnnotationDrill: id}
		return c.Patch(ctx, nu, patch)
	}
	s.refused("restart a node", ask(s.thief, "evil"))
	nu := s.nodeUpdate()
	patch := client.MergeFrom(nu.DeepCopy())
	nu.Annotations = map[string]string{v1alpha1.AnnotationRestoreDrill: "evil"}
	s.refused("fill a node's disk with rehearsals", s.thief.Patch(ctx, nu, patch))
	if err := ask(s.admin, "drill-1"); err != nil {
		t.Fatal(err)
	}
	s.refused("restart it again", ask(s.thief, "drill-2"))
	select {
	case id := <-s.drilled:
		if id != "drill-1" {
			t.Errorf("drill %s is played", id)
		}
	case <-time.After(90 * time.Second):
		t.Error("the drill that an administrator asked for is not played")
	}
	if nu := s.nodeUpdate(); nu.Annotations[v1alpha1.AnnotationDrill] != "drill-1" {
		t.Errorf("the annotation is %v", nu.Annotations)
	}
}

func publicKey(t *testing.T) string {
	t.Helper()
	pem, err := bundle.PublicKeyPEM(bundletest.Key(1).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem)
}
