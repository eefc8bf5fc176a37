package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/authority"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// people are the objects that administrators wrote.
type people struct {
	bundles  []v1alpha1.Bundle
	policies []v1alpha1.TrustPolicy
	update   *v1alpha1.ClusterUpdate
	track    *v1alpha1.ImageTrack
	configs  []v1alpha1.NodeConfig
	pools    []v1alpha1.UpdatePool
	// strict: only what is written here counts. Otherwise administrators approved
	// regardless of what the controller writes.
	strict bool
}

func approvedBundle(digest string) v1alpha1.Bundle {
	return v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "b-" + digest[7:15]}, Spec: v1alpha1.BundleSpec{Digest: digest}}
}

var errAway = errors.New("connection refused")

func (f *fakeAPI) Bundles(context.Context) ([]v1alpha1.Bundle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(f.people.bundles)
	if f.away {
		return nil, errAway
	}
	for _, b := range f.nu.Spec.Bundles {
		if !f.people.strict {
			out = append(out, approvedBundle(b.Digest))
		}
	}
	return out, nil
}

func (f *fakeAPI) TrustPolicies(context.Context) ([]v1alpha1.TrustPolicy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, errAway
	}
	return slices.Clone(f.people.policies), nil
}

func (f *fakeAPI) ClusterUpdate(_ context.Context, name string) (*v1alpha1.ClusterUpdate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.away:
		return nil, errAway
	case f.people.update == nil || f.people.update.Name != name:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "clusterupdates"}, name)
	}
	return f.people.update.DeepCopy(), nil
}

func (f *fakeAPI) ImageTrack(_ context.Context, name string) (*v1alpha1.ImageTrack, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.people.track; t != nil && t.Name == name {
		return t.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "imagetracks"}, name)
}

func (f *fakeAPI) ClusterUpdates(context.Context) ([]v1alpha1.ClusterUpdate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.away:
		return nil, errAway
	case f.people.update == nil:
		return nil, nil
	}
	return []v1alpha1.ClusterUpdate{*f.people.update.DeepCopy()}, nil
}

func (f *fakeAPI) NodeConfigs(context.Context) ([]v1alpha1.NodeConfig, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.people.configs), nil
}

func (f *fakeAPI) UpdatePools(context.Context) ([]v1alpha1.UpdatePool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.people.pools), nil
}

func (f *fakeAPI) OSImages(context.Context) ([]v1alpha1.OSImage, error) { return nil, nil }
func (f *fakeAPI) ConfigMap(context.Context, string) (*convert.ConfigMap, error) {
	return nil, nil
}

func (f *fakeAPI) NodeLabels(context.Context) (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, errAway
	}
	return map[string]string{"kubernetes.io/hostname": "n1"}, nil
}

// ordered is a run that an administrator started, with its plan.
func (f *fakeAPI) ordered(t *testing.T, uid string, steps ...model.Step) *v1alpha1.NodeRun {
	t.Helper()
	run := &v1alpha1.NodeRun{Name: "u", UID: uid, Attempt: 1}
	for i := range steps {
		steps[i].By = model.ByAgent
		run.Steps = append(run.Steps, v1alpha1.UpdateStep{ID: steps[i].ID, Updater: steps[i].Updater})
	}
	p := model.Plan{Version: model.PlanVersion, Nodes: []model.NodePlan{{Node: "n1", Steps: steps}}}
	run.PlanDigest = p.Digest()
	name := v1alpha1.ContentName(v1alpha1.ContentPlan, string(p.JSON()))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.contents[name] = &v1alpha1.Content{Type: v1alpha1.ContentPlan, Data: string(p.JSON())}
	f.people.update = &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u", UID: types.UID(uid)},
		Spec:   v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartImmediate, PlanDigest: run.PlanDigest},
		Status: v1alpha1.ClusterUpdateStatus{Plan: name, PlanDigest: run.PlanDigest}}
	return run
}

func (f *fakeAPI) says(change func(*people)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.people)
}

func stalledBy(reason string) func(*v1alpha1.NodeUpdateStatus) bool {
	return func(s *v1alpha1.NodeUpdateStatus) bool {
		st, r := condition(s, v1alpha1.ConditionStalled)
		return st == "True" && r == reason
	}
}

// An attacker with the controller's token can name any bundle: a node loads it only if an
// administrator approved it.
func TestTheControllerAloneApprovesNothing(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 17971, path)
	n.api.says(func(p *people) { p.strict = true })
	approve(t, h, everything(h), n)
	s := n.reported("refused", stalledBy(v1alpha1.ReasonApprovalNotFound))
	if !strings.Contains(s.Message, h.Digest) || len(s.Bundles) != 0 || n.runtime.count() != 0 {
		t.Errorf("%s; serves %v, %d images", s.Message, s.Bundles, n.runtime.count())
	}
	n.api.says(func(p *people) { p.bundles = []v1alpha1.Bundle{approvedBundle(h.Digest)} })
	n.agent.authority.RequestRead(0)
	n.reported("loaded once a Bundle approves it", held)

	t.Run("what was allowed is kept without an API server, and when its approval is withdrawn", func(t *testing.T) {
		n.api.says(func(p *people) { p.bundles = nil })
		n.agent.authority.RequestRead(0)
		n.stop()
		n.api.mu.Lock()
		n.api.away = true
		n.api.mu.Unlock()
		n.start()
		n.runtime.lose(h.Metadata.Images[0].Name)
		waitFor(t, "the image is back", func() bool { return n.runtime.has(h.Metadata.Images[0].Name) })
		n.api.mu.Lock()
		n.api.away = false
		n.api.mu.Unlock()
		n.api.tell(func(*v1alpha1.NodeUpdateSpec) {})
	})
	t.Run("a revocation that the controller withholds is found", func(t *testing.T) {
		n.api.says(func(p *people) {
			p.policies = []v1alpha1.TrustPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.TrustPolicySpec{RevokedDigests: []string{h.Digest}}}}
		})
		n.agent.authority.RequestRead(0) // the half-hourly read
		n.reported("stalled", stalledBy(v1alpha1.ReasonBundleRevoked))
	})
}

// The trust list that the controller wrote may only take away.
func TestATrustListOfTheControllerTrustsNoKey(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 7)
	n := newTestNode(t, "n1", 17972, path)
	n.api.says(func(p *people) { p.strict = true })
	forged := n.api.content(t, v1alpha1.ContentTrust, model.Trust{Policies: []model.TrustRule{ruleOf(t, 7)}})
	hold := n.api.content(t, v1alpha1.ContentPins, everything(h))
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Trust, s.Pins, s.Bundles = forged, hold, []v1alpha1.ApprovedBundle{{Digest: h.Digest}}
	})
	n.reported("refused", stalledBy(v1alpha1.ReasonApprovalNotFound))
	n.api.says(func(p *people) { p.policies = []v1alpha1.TrustPolicy{policyOf(t, 7)} })
	n.agent.authority.RequestRead(0)
	n.reported("held by the key of a TrustPolicy", held)
}

func TestSignaturesAreRequiredOnTheNode(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 7)
	n := newTestNode(t, "n1", 17973, path)
	strict := policyOf(t, 8)
	strict.Spec.Require = v1alpha1.RequireSignatures
	n.api.says(func(p *people) { p.policies = []v1alpha1.TrustPolicy{strict} })
	approve(t, h, everything(h), n)
	n.reported("a digest alone is refused", stalledBy(v1alpha1.ReasonSignaturesRequired))
	n.api.says(func(p *people) { p.policies = append(p.policies, policyOf(t, 7)) })
	n.agent.authority.RequestRead(0)
	n.reported("held once a trusted key signed it", held)
}

// A run starts only for a ClusterUpdate that an administrator started, with the steps
// of its plan.
func TestARunNeedsAnUpdateOfAnAdministrator(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*people, *v1alpha1.NodeRun)
		reason string
		says   string
	}{
		"started by an administrator":    {func(*people, *v1alpha1.NodeRun) {}, "", ""},
		"an update that does not exist":  {func(_ *people, r *v1alpha1.NodeRun) { r.Name = "missing-update" }, v1alpha1.ReasonRunNotApproved, "there is no ClusterUpdate/missing-update"},
		"without a name":                 {func(_ *people, r *v1alpha1.NodeRun) { r.Name = "" }, v1alpha1.ReasonRunNotApproved, "there is no"},
		"another update of the name":     {func(_ *people, r *v1alpha1.NodeRun) { r.UID = "other" }, v1alpha1.ReasonRunNotApproved, "UID"},
		"another bundle":                 {func(_ *people, r *v1alpha1.NodeRun) { r.Bundle = "sha256:b" }, v1alpha1.ReasonRunNotApproved, "bundle"},
		"another plan than the update's": {func(p *people, r *v1alpha1.NodeRun) { p.update.Spec.PlanDigest, r.PlanDigest = "", "sha256:c" }, v1alpha1.ReasonRunNotApproved, "digest"},
		"another plan than the approved": {func(p *people, _ *v1alpha1.NodeRun) { p.update.Spec.PlanDigest = "sha256:c" }, v1alpha1.ReasonRunNotApproved, "was approved"},
		"steps that are not the plan's":  {func(_ *people, r *v1alpha1.NodeRun) { r.Steps[0].Params = map[string]string{"mode": "evil"} }, v1alpha1.ReasonRunNotApproved, "not those of the plan"},
		"one step more":                  {func(_ *people, r *v1alpha1.NodeRun) { r.Steps = append(r.Steps, r.Steps[0]) }, v1alpha1.ReasonRunNotApproved, "not those of the plan"},
		"it was not started":             {func(p *people, _ *v1alpha1.NodeRun) { p.update.Spec.Start = v1alpha1.StartManual }, v1alpha1.ReasonRunNotApproved, "no administrator started"},
		"another node's":                 {func(p *people, _ *v1alpha1.NodeRun) { p.update.Spec.Nodes = []string{"n2"} }, v1alpha1.ReasonRunNotApproved, "does not name node n1"},
		"a paused update waits":          {func(p *people, _ *v1alpha1.NodeRun) { p.update.Spec.Paused = true }, v1alpha1.ReasonPaused, "paused"},
		"an undo of a paused update":     {func(p *people, r *v1alpha1.NodeRun) { p.update.Spec.Paused, r.Undo = true, true }, "", ""},
		"a track that does not exist":    {func(_ *people, r *v1alpha1.NodeRun) { r.Name = "ImageTrack/x" }, v1alpha1.ReasonRunNotApproved, "there is no ImageTrack/x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := idle(t, &fakeRuntime{})
			api := a.api.(*fakeAPI)
			run := api.ordered(t, "u", model.Step{ID: "files", Updater: "files"})
			c.change(&api.people, run)
			a.watch.follow(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: run}}, nil)
			may := a.runs.approve(t.Context())
			if may != (c.reason == "") || may != (a.runs.permitted() != nil) {
				t.Fatalf("may run: %v, permitted %v, verdict %+v", may, a.runs.permitted(), a.state.runVerdict)
			}
			if v := a.state.runVerdict; c.reason != "" && (v == nil || v.Reason != c.reason || !strings.Contains(v.Message, c.says) || v.Fix == "") {
				t.Errorf("verdict %+v", v)
			}
		})
	}
}

// A runtime that does not answer holds the run of a track up, and nothing more.
func TestATracksRunWaitsForTheRuntime(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	runs := model.DigestOf([]byte("runs"))
	err := errors.New("DeadlineExceeded")
	a.runs.running = func(context.Context, string, string, string) ([]string, error) { return []string{runs}, err }
	a.api.(*fakeAPI).people.track = &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "t"}, Spec: v1alpha1.ImageTrackSpec{Repository: "r.example/edge", Mode: v1alpha1.ModeWrite}}
	p := model.StaticPodImages{Namespace: "edge", Pod: "edge", To: map[string]string{"c": "r.example/edge:1.0-b1@" + runs}, Was: map[string]string{"c": "r.example/edge:1.0"}}
	run := &v1alpha1.NodeRun{Name: v1alpha1.TrackRun + "edge", UID: "t-1", Attempt: 1, Steps: []v1alpha1.UpdateStep{{Updater: model.UpdaterStaticPod, Params: p.Params()}}}
	a.watch.follow(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: run}}, nil)
	<-a.wakeRuns // by the desired state
	if a.runs.approve(t.Context()) || a.state.runVerdict == nil || !a.state.runVerdict.Waiting {
		t.Fatalf("it does not wait: %+v", a.state.runVerdict)
	}
	select {
	case <-a.wakeRuns:
	case <-time.After(10 * approvalRetry):
		t.Fatal("it is not checked again")
	}
	err = nil
	if !a.runs.approve(t.Context()) || a.runs.permitted() == nil || a.state.runVerdict != nil {
		t.Fatalf("it does not start: %+v", a.state.runVerdict)
	}
}

// What was approved is that run, word for word.
func TestAnApprovalIsForOneRun(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	run := a.api.(*fakeAPI).ordered(t, "u", model.Step{ID: "files", Updater: "files"})
	a.watch.follow(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: run}}, nil)
	if !a.runs.approve(t.Context()) || a.runs.permitted() == nil {
		t.Fatal("not approved")
	}
	changed := run.DeepCopy()
	changed.Steps[0].Verb = "evil"
	a.watch.follow(t.Context(), &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: changed}}, nil)
	if a.runs.permitted() != nil || a.runs.approve(t.Context()) {
		t.Error("other steps are permitted under the same approval")
	}
	if authority.RunKey(run) == authority.RunKey(changed) {
		t.Error("two runs have one key")
	}
}

func policyOf(t *testing.T, seed byte) v1alpha1.TrustPolicy {
	t.Helper()
	return v1alpha1.TrustPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", seed)},
		Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "k", PublicKey: ruleOf(t, seed).Keys["k"]}}, Threshold: 1}}
}

func ruleOf(t *testing.T, seed byte) model.TrustRule {
	t.Helper()
	pem, err := bundle.PublicKeyPEM(bundletest.Key(seed).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return model.TrustRule{Name: "site", Keys: map[string]string{"k": string(pem)}, Threshold: 1}
}

func (f files) Bundles(context.Context) (out []v1alpha1.Bundle, err error) {
	nu := &v1alpha1.NodeUpdate{}
	f.read("nodeupdate", nu)
	var at v1alpha1.BundleRegistry
	f.read("registry", &at)
	for _, b := range nu.Spec.Bundles {
		approved := approvedBundle(b.Digest)
		if approved.Generation = b.Fetch; at.Reference != "" {
			approved.Spec.Registry = &at
		}
		out = append(out, approved)
	}
	return out, nil
}

func (f files) TrustPolicies(context.Context) ([]v1alpha1.TrustPolicy, error) { return nil, nil }

func (f files) ClusterUpdate(context.Context, string) (*v1alpha1.ClusterUpdate, error) {
	return nil, errAway
}

func (f files) ImageTrack(context.Context, string) (*v1alpha1.ImageTrack, error) { return nil, errAway }

func (files) ClusterUpdates(context.Context) ([]v1alpha1.ClusterUpdate, error) { return nil, nil }
func (files) NodeConfigs(context.Context) ([]v1alpha1.NodeConfig, error)       { return nil, nil }
func (files) UpdatePools(context.Context) ([]v1alpha1.UpdatePool, error)       { return nil, nil }
func (files) OSImages(context.Context) ([]v1alpha1.OSImage, error)             { return nil, nil }
func (files) NodeLabels(context.Context) (map[string]string, error)            { return nil, nil }
func (files) ConfigMap(context.Context, string) (*convert.ConfigMap, error)    { return nil, nil }
