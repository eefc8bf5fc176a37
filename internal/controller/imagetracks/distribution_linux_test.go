package imagetracks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/registry/registrytest"
	"github.com/refit-dev/refit/test/results"
)

// registryRun is what tracks made of one registry.
type registryRun struct {
	Program string `json:"program"`
	// Tags of the largest repository, the pages of its listing, and the tokens that it took.
	Tags   int   `json:"tags"`
	Pages  int64 `json:"pages"`
	Tokens int   `json:"tokens"`
	// Verdicts of the situations.
	Verdicts []verdict `json:"verdicts"`

	t      *testing.T
	w      *testCluster
	tokens *registrytest.TokenServer
	mirror *registrytest.Server
}

type verdict struct {
	Situation string `json:"situation"`
	Verdict   string `json:"verdict"`
}

// TestRealRegistries follows tags of two real registries with token authentication, Debian's and
// distribution 3, and brings about what registries do wrong. The result file has the verdicts.
func TestRealRegistries(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("it builds a registry and writes 30,000 tags: make e2e")
	}
	var seen struct {
		Registries []*registryRun `json:"registries"`
	}
	results.Keep(t, filepath.Join("..", "testdata", "results", "registries.json"), func() any { return seen })
	for _, program := range []string{registrytest.Debian, buildDistribution(t)} {
		version, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", program, err, version)
		}
		_, name, _ := strings.Cut(strings.TrimSpace(string(version)), " ")
		r := &registryRun{Program: name}
		seen.Registries = append(seen.Registries, r)
		t.Run(filepath.Base(program), func(t *testing.T) { r.run(t, program) })
	}
}

// buildDistribution builds distribution 3 from its own module.
func buildDistribution(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "distribution")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, ".")
	cmd.Dir = filepath.Join("..", "..", "..", "test", "distribution")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build distribution: %v\n%s", err, text)
	}
	return out
}

func (r *registryRun) run(t *testing.T, program string) {
	r.t, r.tokens = t, registrytest.StartTokens(t)
	for _, name := range []string{"shop", "many", "copy", "other"} {
		r.tokens.AddReader(name, name+"-password", name+"/")
	}
	r.w = newTestClusterOf(t, registrytest.StartWithTokens(t, program, r.tokens))
	r.mirror = registrytest.StartWithTokens(t, program, r.tokens)
	for _, situation := range []struct {
		name string
		run  func() string
	}{
		{"the login of the longest path counts", r.pathLogin},
		{"a login for another path only", r.otherLogin},
		{"15,001 tags over pages of 100, with tokens that expire on the way", r.manyTags},
		{"a mirror that lags", r.laggingMirror},
		{"a digest that mirror and repository deleted", r.deletedDigest},
		{"a severity label without a signature", r.forgedLabel},
		{"signatures of another image and of another repository", r.replayedSignature},
		{"a release record that says that manifests change", r.releaseRecord},
		{"a token server that is down for one poll, and for two", r.tokenServerDown},
	} {
		if got := situation.run(); !t.Failed() {
			r.Verdicts = append(r.Verdicts, verdict{situation.name, got})
		} else {
			t.Fatalf("%s: %s", situation.name, got)
		}
	}
}

// follow creates a track without targets, and reconciles it once.
func (r *registryRun) follow(name, repository string, change ...func(*v1alpha1.ImageTrackSpec)) *v1alpha1.ImageTrack {
	r.t.Helper()
	o := &v1alpha1.ImageTrack{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ImageTrackSpec{Repository: repository, Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"},
		PullSecret: &v1alpha1.PullSecret{Name: "logins"}, IntervalSeconds: 3600, DiscoverSeconds: 3600}}
	for _, f := range change {
		f(&o.Spec)
	}
	r.w.create(o)
	return r.w.reconcile(name)
}

// poll lets a track poll once more.
func (r *registryRun) poll(name string) *v1alpha1.ImageTrack {
	r.t.Helper()
	r.w.nextPoll()
	return r.w.reconcile(name)
}

// logins are a pull secret, by registry or path.
func (r *registryRun) logins(secret string, users map[string]string) {
	r.t.Helper()
	auths := map[string]any{}
	for at, user := range users {
		auths[at] = map[string]string{"username": user, "password": user + "-password"}
	}
	text, err := json.Marshal(map[string]any{"auths": auths})
	r.w.must(err)
	r.w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.BuildsNamespace, Name: secret}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: text}})
}

// condition is the Ready condition as "reason: message".
func condition(o *v1alpha1.ImageTrack) string {
	for _, c := range o.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return "no condition"
}

func (r *registryRun) expect(got, begin string, words ...string) string {
	r.t.Helper()
	if !strings.HasPrefix(got, begin) {
		r.t.Errorf("%s, want %s", got, begin)
	}
	for _, word := range words {
		if !strings.Contains(got, word) {
			r.t.Errorf("no %q in: %s", word, got)
		}
	}
	return begin
}

func (r *registryRun) pathLogin() string {
	r.w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	r.logins("logins", map[string]string{r.w.reg.Addr: "other", r.w.reg.Ref("shop"): "shop", r.w.reg.Ref("shop/apple"): "other", r.mirror.Addr: "other", r.mirror.Ref("copy"): "copy"})
	r.tokens.Issued()
	got := r.expect(condition(r.follow("path", r.w.reg.Ref("shop/app"))), "True AsExpected")
	for _, token := range r.tokens.Issued() {
		if !strings.HasPrefix(token, "shop repository:shop/app:pull") {
			r.t.Errorf("a token for %q", token)
		}
	}
	return got
}

func (r *registryRun) otherLogin() string {
	r.logins("other", map[string]string{r.w.reg.Addr: "other"})
	o := r.follow("other", r.w.reg.Ref("shop/app"), func(s *v1alpha1.ImageTrackSpec) { s.PullSecret.Name = "other" })
	if strings.Contains(condition(o), "password") {
		r.t.Error("the status shows a password")
	}
	return r.expect(condition(o), "False RegistryUnauthorized")
}

// manyTags follows the newest of 15,000 lines, which stands in the middle of the listing, behind a
// proxy that makes pages of 100 tags, as registries of clouds do.
func (r *registryRun) manyTags() string {
	old := r.w.reg.Push("many/app", build("old"), "2.6.0-rev1-b1.1")
	var tags []string
	for fix := range 150 {
		for rev := range 100 {
			tags = append(tags, fmt.Sprintf("2.6.%d-rev%d", fix, rev+1))
		}
	}
	r.w.reg.TagMany("many/app", old, tags)
	fresh := r.w.reg.Push("many/app", registrytest.Image{Version: "2.6.149", Layers: []string{"new"}}, "2.6.149-rev100-b1.1", "2.6.149-rev100")
	proxy := r.pages()
	r.logins("many", map[string]string{proxy: "many"})
	r.tokens.SetLife(2 * time.Second)
	r.tokens.Issued()
	o := r.follow("many", proxy+"/many/app", func(s *v1alpha1.ImageTrackSpec) {
		s.PullSecret.Name, s.Follow = "many", v1alpha1.TrackFollow{Tier: v1alpha1.TierIntermediate}
	})
	r.Tags, r.Tokens = len(tags)+2, len(r.tokens.Issued())
	r.tokens.SetLife(5 * time.Minute)
	if a := o.Status.Approved; a == nil || a.Digest != fresh || a.LongTag != "2.6.149-rev100-b1.1" {
		r.t.Errorf("it follows %+v", a)
	}
	if r.Pages > 1 && (r.Pages < 150 || r.Tokens < 3) { // Debian's version has one page only
		r.t.Errorf("%d pages with %d tokens", r.Pages, r.Tokens)
	}
	return r.expect(condition(o), "True AsExpected", "2.6.149-rev100-b1.1")
}

// pages is the address of a proxy that asks the registry for 100 tags at once, and takes its time.
func (r *registryRun) pages() string {
	u, err := url.Parse("http://" + r.w.reg.Addr)
	r.w.must(err)
	proxy := httputil.NewSingleHostReverseProxy(u)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/tags/list") && req.Header.Get("Authorization") != "" {
			atomic.AddInt64(&r.Pages, 1)
			time.Sleep(40 * time.Millisecond)
			if q := req.URL.Query(); q.Get("n") == "" {
				q.Set("n", "100")
				req.URL.RawQuery = q.Encode()
			}
		}
		proxy.ServeHTTP(w, req)
	}))
	r.t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func (r *registryRun) laggingMirror() string {
	fresh := r.w.reg.Push("shop/lags", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	old := r.mirror.Push("copy/lags", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	o := r.follow("lags", r.w.reg.Ref("shop/lags"), func(s *v1alpha1.ImageTrackSpec) { s.Mirrors = []string{r.mirror.Ref("copy/lags")} })
	r.expect(condition(o), "True AsExpected")
	p := (&auditfacts.Objects{Tracks: []v1alpha1.ImageTrack{*o}}).Facts().Published[r.w.reg.Ref("shop/lags")+":2.6.2-rev1"]
	if o.Status.Endpoint != r.mirror.Ref("copy/lags") || o.Status.Approved.Digest != old || p.Mirror != old || p.Digest != fresh {
		r.t.Errorf("%s answered, the report knows %+v", o.Status.Endpoint, p)
	}
	return "the mirror's image is followed, the repository's is reported as newer upstream"
}

func (r *registryRun) deletedDigest() string {
	one := r.w.reg.Push("shop/gone", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	if r.mirror.Push("copy/gone", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1") != one {
		r.t.Error("the copy is another image")
	}
	r.follow("gone", r.w.reg.Ref("shop/gone"), func(s *v1alpha1.ImageTrackSpec) { s.Mirrors = []string{r.mirror.Ref("copy/gone")} })
	r.mirror.Push("copy/gone", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	r.w.reg.Push("shop/gone", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	r.mirror.Delete("copy/gone", one)
	if o := r.poll("gone"); len(o.Status.DeletedDigests) != 0 {
		r.t.Errorf("the repository has it still: %v", o.Status.DeletedDigests)
	}
	r.w.reg.Delete("shop/gone", one)
	if o := r.poll("gone"); !slices.Equal(o.Status.DeletedDigests, []string{one}) {
		r.t.Errorf("deleted are %v", o.Status.DeletedDigests)
	}
	return "listed in status.deletedDigests once neither has it"
}

// decision about the only candidate.
func (r *registryRun) decision(o *v1alpha1.ImageTrack, digest string) string {
	r.t.Helper()
	if o.Status.Approved != nil && o.Status.Approved.Digest == digest {
		return "approved"
	}
	if len(o.Status.Candidates) != 1 || o.Status.Candidates[0].Digest != digest {
		return fmt.Sprintf("candidates %+v", o.Status.Candidates)
	}
	c := o.Status.Candidates[0]
	return c.Decision + " " + c.Class + ": " + c.Why
}

// trust lets a key sign the images of a repository.
func (r *registryRun) trust(name, repository string, p bundletest.Publisher) {
	r.t.Helper()
	r.w.create(&v1alpha1.TrustPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TrustPolicySpec{Images: []v1alpha1.ImageRule{{Images: r.w.reg.Ref(repository),
		Cosign: &v1alpha1.CosignTrust{Keys: []v1alpha1.PEMText{{Name: "release", PEM: p.PublicKey()}}}}}}})
}

// sign attaches a signature that names signedRepository and signed to an image.
func (r *registryRun) sign(p bundletest.Publisher, repository, digest, signedRepository, signed string) {
	r.t.Helper()
	payload, signature := p.Sign(r.w.reg.Ref(signedRepository), signed)
	r.w.reg.Sign(repository, digest, payload, signature)
}

func (r *registryRun) forgedLabel() string {
	r.w.reg.Push("shop/label", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	r.follow("label", r.w.reg.Ref("shop/label"), func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassSecurity} })
	forged := build("two")
	forged.Labels = map[string]string{track.SecurityLabel: "security"}
	b := r.w.reg.Push("shop/label", forged, "2.6.2-rev1-b5.2", "2.6.2-rev1")
	got := r.expect(r.decision(r.poll("label"), b), v1alpha1.DecisionApproval+" "+v1alpha1.ClassSecurity)
	publisher, stranger := bundletest.NewPublisher(r.t), bundletest.NewPublisher(r.t)
	r.trust("label", "shop/label", publisher)
	r.sign(stranger, "shop/label", b, "shop/label", b)
	r.expect(r.decision(r.poll("label"), b), v1alpha1.DecisionBlocked, "refused, WrongKey:")
	r.sign(publisher, "shop/label", b, "shop/label", b)
	r.expect(r.decision(r.poll("label"), b), "approved")
	return got + "; signed by a stranger Blocked; signed by the publisher it is taken"
}

func (r *registryRun) replayedSignature() string {
	a := r.w.reg.Push("shop/replay", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	r.follow("replay", r.w.reg.Ref("shop/replay"), func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassRebuild} })
	b := r.w.reg.Push("shop/replay", build("two"), "2.6.2-rev1-b5.2", "2.6.2-rev1")
	publisher := bundletest.NewPublisher(r.t)
	r.trust("replay", "shop/replay", publisher)
	r.sign(publisher, "shop/replay", b, "shop/replay", a)
	r.expect(r.decision(r.poll("replay"), b), v1alpha1.DecisionBlocked, "refused, WrongDigest:")
	r.sign(publisher, "shop/replay", b, "shop/tool", b)
	r.expect(r.decision(r.poll("replay"), b), v1alpha1.DecisionBlocked, "refused, Replayed:")
	r.sign(publisher, "shop/replay", b, "shop/replay", b)
	r.expect(r.decision(r.poll("replay"), b), "approved")
	return "Blocked as WrongDigest and as Replayed; with its own signature it is taken"
}

func (r *registryRun) releaseRecord() string {
	r.w.reg.Push("shop/record", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1")
	r.follow("record", r.w.reg.Ref("shop/record"), func(s *v1alpha1.ImageTrackSpec) { s.Automatic = []string{v1alpha1.ClassRebuild} })
	b := r.w.reg.Push("shop/record", build("two"), "2.6.2-rev1-b5.2")
	record, err := imagetag.NewRecord(imagetag.ReleaseRecord{Digest: b, ManifestsChange: true, Fixes: []string{"CVE-2026-1234"}})
	r.w.must(err)
	text, err := json.Marshal(record)
	r.w.must(err)
	r.w.reg.Attach("shop/record", b, imagetag.RecordType, text)
	r.w.reg.Tag("shop/record", b, "2.6.2-rev1")
	return r.expect(r.decision(r.poll("record"), b), v1alpha1.DecisionApproval+" "+v1alpha1.ClassRebuild, "manifests change with it")
}

func (r *registryRun) tokenServerDown() string {
	r.tokens.SetLife(time.Second)
	r.w.restart() // without a token of before
	if got := condition(r.poll("path")); !strings.HasPrefix(got, "True AsExpected") {
		r.t.Error(got)
	}
	time.Sleep(2100 * time.Millisecond) // tokens count whole seconds
	r.tokens.Stop()
	r.expect(condition(r.poll("path")), "True AsExpected", "the last poll failed 1 of 3 times")
	got := condition(r.poll("path"))
	if !strings.HasPrefix(got, "False Registry") {
		r.t.Error(got)
	}
	_, reason, _ := strings.Cut(got, " ")
	reason, _, _ = strings.Cut(reason, ":")
	r.tokens.Resume()
	r.tokens.SetLife(5 * time.Minute)
	r.expect(condition(r.poll("path")), "True AsExpected")
	return "named at the first poll, " + reason + " two hours later, gone when it answers"
}
