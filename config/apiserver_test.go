package config_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
)

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The rules that people meet say what to do about it (user-experience 4.2).
func TestAPIServer(t *testing.T) {
	cfg := apitest.Start(t)
	admin := newClient(t, cfg)
	t.Run("rules refuse with the fix", func(t *testing.T) { testRules(t, admin) })
	t.Run("a pool says its pace", func(t *testing.T) { testPools(t, admin) })
	t.Run("what is fixed stays fixed", func(t *testing.T) { testImmutable(t, admin) })
	t.Run("identities write only what is theirs", func(t *testing.T) { testIdentities(t, cfg, admin) })
	t.Run("a running update is not deleted by accident", func(t *testing.T) { testRunningStays(t, cfg, admin) })
	t.Run("no node runs before the gate is open", func(t *testing.T) { testGateBeforeRun(t, cfg, admin) })
	t.Run("a track permits static pods and nothing else", func(t *testing.T) { testTracksWriteStaticPods(t, cfg, admin) })
	t.Run("new pods start from images that are there, if the administrator wants it", func(t *testing.T) { testIfNotPresent(t, admin) })
	t.Run("stolen identities reach no further than their job", func(t *testing.T) { testStolenIdentities(t, cfg, admin) })
	t.Run("samples apply and damaged ones are refused", func(t *testing.T) { testSamples(t, cfg, admin) })
	t.Run("manifests apply", func(t *testing.T) { testManifests(t, admin) })
}

// imageTrack is a track, and what is changed of it.
func imageTrack(name string, change func(*v1alpha1.ImageTrackSpec)) *v1alpha1.ImageTrack {
	o := &v1alpha1.ImageTrack{ObjectMeta: meta(name), Spec: v1alpha1.ImageTrackSpec{Repository: "r.example/shop/app"}}
	if change != nil {
		change(&o.Spec)
	}
	return o
}

// images is a TrustPolicy with one rule for images.
func images(name string, r v1alpha1.ImageRule) *v1alpha1.TrustPolicy {
	return &v1alpha1.TrustPolicy{ObjectMeta: meta(name), Spec: v1alpha1.TrustPolicySpec{Images: []v1alpha1.ImageRule{r}}}
}

func cosign(pem string) *v1alpha1.CosignTrust {
	return &v1alpha1.CosignTrust{Keys: []v1alpha1.PEMText{{Name: "k", PEM: pem}}}
}

// inRegistry is a bundle in a registry, and what is changed of it.
func inRegistry(name, digest string, change func(*v1alpha1.BundleRegistry)) *v1alpha1.Bundle {
	o := &v1alpha1.Bundle{ObjectMeta: meta(name), Spec: v1alpha1.BundleSpec{Digest: digest, Registry: &v1alpha1.BundleRegistry{Reference: "r.example/site/bundles:v1"}}}
	if change != nil {
		change(o.Spec.Registry)
	}
	return o
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func nodeMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: v1alpha1.NodesNamespace}
}

func testRules(t *testing.T, c client.Client) {
	budget := intstr.FromInt32(0)
	percent := intstr.FromString("0%")
	soon, none := metav1.NewTime(time.Now().Add(time.Hour)), int64(0)
	key := v1alpha1.TrustedKey{Name: "k", PublicKey: "-----BEGIN PUBLIC KEY-----\n"}
	cases := map[string]struct {
		obj  client.Object
		want string // empty: accepted
	}{
		"a bundle without a digest is a found one": {&v1alpha1.Bundle{ObjectMeta: meta("b1")}, ""},
		"a bundle with a digest is approved":       {&v1alpha1.Bundle{ObjectMeta: meta("b2"), Spec: v1alpha1.BundleSpec{Digest: digestA}}, ""},
		"a short digest is refused":                {&v1alpha1.Bundle{ObjectMeta: meta("b3"), Spec: v1alpha1.BundleSpec{Digest: "sha256:abc"}}, "as `refit bundle inspect` prints it"},
		"a bundle comes from a registry":           {inRegistry("b4", digestA, nil), ""},
		"from a mirror, by digest": {inRegistry("b5", digestA, func(r *v1alpha1.BundleRegistry) {
			r.Reference, r.Mirrors = "r.example:5000/site/bundles@"+digestB, []string{"mirror.example/site/bundles"}
		}), ""},
		"a registry needs the digest":               {inRegistry("b6", "", nil), "nodes fetch nothing from a registry that is not approved by its digest"},
		"a registry needs a tag":                    {inRegistry("b7", digestA, func(r *v1alpha1.BundleRegistry) { r.Reference = "r.example/site/bundles" }), "a tag or a digest"},
		"a registry is no URL":                      {inRegistry("b8", digestA, func(r *v1alpha1.BundleRegistry) { r.Reference = "https://r.example/site/bundles:v1" }), "a tag or a digest"},
		"a mirror has no tag":                       {inRegistry("b9", digestA, func(r *v1alpha1.BundleRegistry) { r.Mirrors = []string{"mirror.example/site/bundles:v1"} }), "without tag or digest"},
		"an update needs a digest":                  {&v1alpha1.ClusterUpdate{ObjectMeta: meta("u1"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: "v1.36.3"}}, "as `kubectl get bundles -o wide` shows it"},
		"an update starts in a known way":           {&v1alpha1.ClusterUpdate{ObjectMeta: meta("u2"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA, Start: "Now"}}, `supported values: "Manual", "Immediate"`},
		"a budget of no node is refused":            {&v1alpha1.UpdatePool{ObjectMeta: meta("p1"), Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &budget}}, "use paused to stop"},
		"a budget of no percent is refused":         {&v1alpha1.UpdatePool{ObjectMeta: meta("p2"), Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &percent}}, "use paused to stop"},
		"a pool without a budget has one":           {&v1alpha1.UpdatePool{ObjectMeta: meta("p3")}, ""},
		"a risk says why and until when":            {risky("r1", v1alpha1.AcceptedRisk{Check: "clock", Reason: "no NTP here", Until: soon}), ""},
		"a risk without a reason is refused":        {risky("r2", v1alpha1.AcceptedRisk{Check: "clock", Reason: " ", Until: soon}), "say why the risk is taken"},
		"a quorum can never be accepted":            {risky("r3", v1alpha1.AcceptedRisk{Check: "quorum", Reason: "be quick", Until: soon}), "this check can never be accepted"},
		"a check has a name":                        {risky("r4", v1alpha1.AcceptedRisk{Check: "The Clock", Reason: "no NTP here", Until: soon}), "as `refit gate` lists them"},
		"a grace of zero would be force":            {drains("r5", v1alpha1.DrainOptions{GracePeriodSeconds: &none}), "would be gone from the API while it still runs"},
		"a drain may leave pods where they are":     {drains("r6", v1alpha1.DrainOptions{SkipSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "local"}}}), ""},
		"a policy needs keys":                       {&v1alpha1.TrustPolicy{ObjectMeta: meta("t1"), Spec: v1alpha1.TrustPolicySpec{}}, "name keys that sign bundles, or images that must be signed"},
		"a private key is not a public one":         {&v1alpha1.TrustPolicy{ObjectMeta: meta("t2"), Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "k", PublicKey: "-----BEGIN PRIVATE KEY-----"}}}}, "a private key must never be put here"},
		"an image rule needs keys":                  {images("ti1", v1alpha1.ImageRule{Images: "r.example/*"}), "name cosign keys or notation roots"},
		"an exception has no keys":                  {images("ti2", v1alpha1.ImageRule{Images: "r.example/*", Accept: "Unsigned", Cosign: cosign("-----BEGIN PUBLIC KEY-----")}), "and not both"},
		"a rule names a registry":                   {images("ti3", v1alpha1.ImageRule{Images: "nginx", Accept: "Unsigned"}), "spec.images[0].images"},
		"a rule names no tag":                       {images("ti4", v1alpha1.ImageRule{Images: "r.example/a:v1", Accept: "Unsigned"}), "spec.images[0].images"},
		"a star only stands for a part of the path": {images("ti5", v1alpha1.ImageRule{Images: "r.example/a*", Accept: "Unsigned"}), "spec.images[0].images"},
		"a private key of cosign":                   {images("ti6", v1alpha1.ImageRule{Images: "*", Cosign: cosign("-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----")}), "a private key must never be put here"},
		"a certificate is no key of cosign":         {images("ti7", v1alpha1.ImageRule{Images: "*", Cosign: cosign("-----BEGIN CERTIFICATE-----")}), "keys of cosign are public keys"},
		"a key is no root of notation":              {images("ti8", v1alpha1.ImageRule{Images: "*", Notation: &v1alpha1.NotationTrust{Roots: cosign("-----BEGIN PUBLIC KEY-----").Keys, Identities: []string{"*"}}}), "roots of notation are certificates"},
		"an identity is a subject":                  {images("ti9", v1alpha1.ImageRule{Images: "*", Notation: &v1alpha1.NotationTrust{Roots: cosign("-----BEGIN CERTIFICATE-----").Keys, Identities: []string{"CN=x"}}}), "spec.images[0].notation.identities[0]"},
		"a threshold above the keys is refused":     {&v1alpha1.TrustPolicy{ObjectMeta: meta("t3"), Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{key}, Threshold: 2}}, "lower it or add keys"},
		"all of a bundle needs the bundle":          {&v1alpha1.PinnedImageSet{ObjectMeta: meta("s1"), Spec: v1alpha1.PinnedImageSetSpec{AllOfBundle: true}}, "name the digest of the bundle"},
		"an image is pinned by digest":              {set("s2", v1alpha1.PinnedImage{Name: "a:1", Digest: "latest"}), "a tag alone can move"},
		"an image twice in a group is refused":      {set("s3", v1alpha1.PinnedImage{Name: "a:1", Digest: digestA}, v1alpha1.PinnedImage{Name: "a:1", Digest: digestA}), "Duplicate value"},
		"a file has contents or is absent":          {nodeConfig("c1", v1alpha1.NodeFile{Path: "/etc/x"}), "set contents, or absent: true"},
		"a file's path does not climb":              {nodeConfig("c2", v1alpha1.NodeFile{Path: "/etc/../x", Absent: true}), "must be an absolute, clean path"},
		"contents come from one place":              {nodeConfig("c3", v1alpha1.NodeFile{Path: "/etc/x", Contents: &v1alpha1.FileContents{}}), "exactly one of inline, base64, configMap and payload"},
		"pools or a selector, not both":             {&v1alpha1.NodeConfig{ObjectMeta: meta("c4"), Spec: v1alpha1.NodeConfigSpec{Pools: []string{"a"}, NodeSelector: &metav1.LabelSelector{}}}, "not both"},
		"a masked unit has no file of its own":      {&v1alpha1.NodeConfig{ObjectMeta: meta("c5"), Spec: v1alpha1.NodeConfigSpec{Units: []v1alpha1.NodeUnit{{Name: "x.service", State: "masked", Contents: "x"}}}}, "cannot be masked"},
		"a unit has a type":                         {&v1alpha1.NodeConfig{ObjectMeta: meta("c6"), Spec: v1alpha1.NodeConfigSpec{Units: []v1alpha1.NodeUnit{{Name: "x", State: "masked"}}}}, "with its type"},
		"a certificate is asked something":          {&v1alpha1.NodeConfig{ObjectMeta: meta("c7"), Spec: v1alpha1.NodeConfigSpec{Certificates: []v1alpha1.NodeCertificate{{Name: "apiserver"}}}}, "set notBefore or daysLeft"},
		"kubelet fields are any":                    {&v1alpha1.NodeConfig{ObjectMeta: meta("c8"), Spec: v1alpha1.NodeConfigSpec{Kubelet: &runtime.RawExtension{Raw: []byte(`{"maxPods":50,"evictionHard":{"memory.available":"1Gi"}}`)}}}, ""},
		"an updater is asked over https":            {&v1alpha1.Updater{ObjectMeta: meta("x1"), Spec: v1alpha1.UpdaterSpec{URL: "http://a", CABundle: "-----BEGIN CERTIFICATE-----"}}, "must begin with https://"},
		"an updater's CA is known":                  {&v1alpha1.Updater{ObjectMeta: meta("x2"), Spec: v1alpha1.UpdaterSpec{URL: "https://a"}}, "must be CA certificates in PEM"},
		"refit's own updaters keep their names":     {&v1alpha1.Updater{ObjectMeta: meta("kubernetes"), Spec: v1alpha1.UpdaterSpec{URL: "https://a", CABundle: "-----BEGIN CERTIFICATE-----"}}, "take another"},
		"an updater with all of it is registered":   {&v1alpha1.Updater{ObjectMeta: meta("x3"), Spec: v1alpha1.UpdaterSpec{URL: "https://a", CABundle: "-----BEGIN CERTIFICATE-----"}}, ""},
		"a track follows one thing":                 {imageTrack("k1", nil), "set exactly one of tag"},
		"a single tag has one version":              {imageTrack("k2", func(s *v1alpha1.ImageTrackSpec) { s.Follow = v1alpha1.TrackFollow{Tag: "1", Versions: "~1"} }), "a single tag has one version"},
		"a scheme is declared":                      {imageTrack("k3", func(s *v1alpha1.ImageTrackSpec) { s.Follow.Tag, s.Scheme = "1", "guess" }), "regexp: and an expression"},
		"what floats has no tiers":                  {imageTrack("k4", func(s *v1alpha1.ImageTrackSpec) { s.Follow.Tier, s.Scheme = "Short", "floating" }), "follow one tag"},
		"a repository has no tag":                   {imageTrack("k5", func(s *v1alpha1.ImageTrackSpec) { s.Follow.Tag, s.Repository = "1", "r.example/app:1" }), "without tag or digest"},
		"an approval is for a digest": {imageTrack("k6", func(s *v1alpha1.ImageTrackSpec) {
			s.Follow.Tag = "1"
			s.Approvals = []v1alpha1.TrackApproval{{Digest: "1.2.3", Serial: 1}}
		}), "a tag cannot be approved"},
		"a version mismatch does not move by itself": {imageTrack("k7", func(s *v1alpha1.ImageTrackSpec) {
			s.Follow.Tag, s.Automatic = "1", []string{v1alpha1.ClassTagVersionMismatch}
		}), "supported values"},
		"bundles need no pull secret": {imageTrack("k8", func(s *v1alpha1.ImageTrackSpec) {
			s.Follow.Tag, s.Source, s.PullSecret = "1", "Bundles", &v1alpha1.PullSecret{Name: "x"}
		}), "bundles are read from the nodes"},
		"a track with a tier and a range": {imageTrack("k9", func(s *v1alpha1.ImageTrackSpec) {
			s.Follow = v1alpha1.TrackFollow{Tier: "Intermediate", Versions: "~2.6"}
		}), ""},
		"what a bundle has is not fetched":          {&v1alpha1.PinnedImageSet{ObjectMeta: meta("s5"), Spec: v1alpha1.PinnedImageSetSpec{Bundle: digestA, FromRegistry: true}}, "leave out one of bundle and fromRegistry"},
		"a stream has one source":                   {stream("bs1", v1alpha1.BootImageStreamSpec{}), "exactly one of inline, configMap, url, bundle and artifact"},
		"a stream with two has none":                {stream("bs2", v1alpha1.BootImageStreamSpec{Inline: ptr("{}"), URL: &v1alpha1.StreamURL{URL: "https://a"}}), "exactly one of inline, configMap, url, bundle and artifact"},
		"a stream is fetched over https":            {stream("bs3", v1alpha1.BootImageStreamSpec{URL: &v1alpha1.StreamURL{URL: "http://a"}}), "new machines start from what it names"},
		"a stream of a bundle":                      {stream("bs6", v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: digestA}}), ""},
		"a stream of a bundle names it by digest":   {stream("bs7", v1alpha1.BootImageStreamSpec{Bundle: &v1alpha1.StreamBundle{Digest: "kubernetes"}}), "must be sha256:"},
		"a stream of a registry":                    {stream("bs8", v1alpha1.BootImageStreamSpec{Artifact: &v1alpha1.StreamArtifact{Reference: "r.example/boot-images:4.19"}}), ""},
		"an upload is known by its sum":             {stream("bs9", v1alpha1.BootImageStreamSpec{Inline: ptr("{}"), Uploaded: []v1alpha1.UploadedImage{{SHA256: "rhcos.ova"}}}), "spec.uploaded[0].sha256"},
		"a stream in a ConfigMap":                   {stream("bs4", v1alpha1.BootImageStreamSpec{ConfigMap: &v1alpha1.StreamConfigMap{Namespace: "a", Name: "b"}}), ""},
		"a rule limits something":                   {stream("bs5", v1alpha1.BootImageStreamSpec{Inline: ptr("{}"), Rules: []v1alpha1.SkewRule{{Name: "r"}}}), "a rule limits something"},
		"a part of the managers has a selector":     {bootPolicy("bp1", v1alpha1.MachineSelection{Group: "g", Kind: "K", Select: "Partial"}), "selector is for select: Partial"},
		"all of the managers have none":             {bootPolicy("bp2", v1alpha1.MachineSelection{Group: "g", Kind: "K", Select: "All", Selector: &metav1.LabelSelector{}}), "selector is for select: Partial"},
		"there is no part of one":                   {bootPolicy("bp3", v1alpha1.MachineSelection{Group: "g", Kind: "ControlPlaneMachineSet", Select: "Partial", Selector: &metav1.LabelSelector{}}), "select All or None"},
		"windows are for rolling":                   {bootPolicy("bp4", v1alpha1.MachineSelection{Group: "g", Kind: "K", Windows: []v1alpha1.Window{{Start: "22:00", DurationMinutes: 60}}}), "windows are for mode Roll"},
		"Automatic is not declared":                 {&v1alpha1.BootImagePolicy{ObjectMeta: meta("bp5"), Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"a"}, Skew: v1alpha1.BootImageSkew{Mode: "Automatic"}}}, "Unsupported value"},
		"a waiver has a reason":                     {&v1alpha1.BootImagePolicy{ObjectMeta: meta("bp6"), Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"a"}, Skew: v1alpha1.BootImageSkew{Waivers: []v1alpha1.SkewWaiver{{Source: "*", Reason: " ", Until: soon}}}}}, "a waiver without one does not count"},
		"a policy with defaults":                    {bootPolicy("bp7", v1alpha1.MachineSelection{Group: "g", Kind: "K"}), ""},
		"a source says what it is":                  {&v1alpha1.MachineSource{ObjectMeta: meta("ms1")}, "set declared"},
		"a declaration says something":              {&v1alpha1.MachineSource{ObjectMeta: meta("ms2"), Spec: v1alpha1.MachineSourceSpec{Declared: &v1alpha1.DeclaredImage{}}}, "declare the release, the OS version, or both"},
		"a source that is declared":                 {&v1alpha1.MachineSource{ObjectMeta: meta("ms3"), Spec: v1alpha1.MachineSourceSpec{Declared: &v1alpha1.DeclaredImage{OS: "9.6.20251023-0"}}}, ""},
		"only a manager is rolled back":             {&v1alpha1.MachineSource{ObjectMeta: meta("ms4"), Spec: v1alpha1.MachineSourceSpec{Declared: &v1alpha1.DeclaredImage{OS: "9.6.20251023-0"}, Rollback: &v1alpha1.ImageRollback{To: "a"}}}, "a source without a manager has no rollback"},
		"a refused image has a name":                {&v1alpha1.BootImagePolicy{ObjectMeta: meta("bp8"), Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"a"}, Refused: []v1alpha1.RefusedImage{{Reason: "x"}}}}, "name the image, or the OS version in it"},
		"a refused image has a reason":              {&v1alpha1.BootImagePolicy{ObjectMeta: meta("bp9"), Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"a"}, Refused: []v1alpha1.RefusedImage{{OS: "9.6", Reason: " "}}}}, "set a reason"},
		"images of a group with digests are pinned": {set("s4", v1alpha1.PinnedImage{Name: "a:1", Digest: digestA}), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := c.Create(context.Background(), tc.obj)
			if tc.want == "" && err != nil {
				t.Fatalf("refused: %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("want a refusal with %q, got %v", tc.want, err)
			}
		})
	}
	var p v1alpha1.UpdatePool
	if err := c.Get(context.Background(), client.ObjectKey{Name: "p3"}, &p); err != nil || p.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the default budget is one node, got %v %v", p.Spec.MaxUnavailable, err)
	}
}

func ptr(s string) *string { return &s }

func stream(name string, spec v1alpha1.BootImageStreamSpec) *v1alpha1.BootImageStream {
	return &v1alpha1.BootImageStream{ObjectMeta: meta(name), Spec: spec}
}

func bootPolicy(name string, m v1alpha1.MachineSelection) *v1alpha1.BootImagePolicy {
	return &v1alpha1.BootImagePolicy{ObjectMeta: meta(name), Spec: v1alpha1.BootImagePolicySpec{Streams: []string{"a"}, Managers: []v1alpha1.MachineSelection{m}}}
}

func nodeConfig(name string, files ...v1alpha1.NodeFile) *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{ObjectMeta: meta(name), Spec: v1alpha1.NodeConfigSpec{Files: files}}
}

func set(name string, images ...v1alpha1.PinnedImage) *v1alpha1.PinnedImageSet {
	return &v1alpha1.PinnedImageSet{ObjectMeta: meta(name), Spec: v1alpha1.PinnedImageSetSpec{Groups: []v1alpha1.ImageGroup{{Name: "g", Images: images}}}}
}

func risky(name string, r v1alpha1.AcceptedRisk) *v1alpha1.ClusterUpdate {
	return &v1alpha1.ClusterUpdate{ObjectMeta: meta(name), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA, AcceptedRisks: []v1alpha1.AcceptedRisk{r}}}
}

func drains(name string, o v1alpha1.DrainOptions) *v1alpha1.ClusterUpdate {
	return &v1alpha1.ClusterUpdate{ObjectMeta: meta(name), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA, Drain: &o}}
}

func testImmutable(t *testing.T, c client.Client) {
	ctx := context.Background()
	b := &v1alpha1.Bundle{ObjectMeta: meta("fixed")}
	mustCreate(t, c, b)
	b.Spec.Digest = digestA
	if err := c.Update(ctx, b); err != nil {
		t.Fatalf("a found bundle can be approved: %v", err)
	}
	b.Spec.Digest = digestB
	refused(t, c.Update(ctx, b), "delete this Bundle and create one with the other digest")
	b.Spec.Digest = ""
	refused(t, c.Update(ctx, b), "delete this Bundle and create one with the other digest")
	u := &v1alpha1.ClusterUpdate{ObjectMeta: meta("fixed"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA}}
	mustCreate(t, c, u)
	u.Spec.Nodes = []string{"n1"}
	refused(t, c.Update(ctx, u), "the nodes of an update cannot be changed")
	u.Spec.Nodes = nil
	u.Spec.Bundle = digestB
	refused(t, c.Update(ctx, u), "delete this ClusterUpdate and create another")
}

func mustCreate(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(context.Background(), o); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want a refusal with %q, got: %v", want, err)
	}
}

// Promise 10: a node's identity can write only that node's own status, and read no Secret.
func testIdentities(t *testing.T, cfg *rest.Config, admin client.Client) {
	ctx := context.Background()
	controllerClient := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	waitForPolicies(t, admin)
	for _, n := range []string{"n1", "n2"} {
		mustCreate(t, controllerClient, &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta(n)})
	}
	if err := (&controller.NodeRightsGranter{Client: controllerClient, Live: controllerClient}).Grant(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	n1 := newClient(t, apitest.AsNode(cfg, "n1"))
	own, other := &v1alpha1.NodeUpdate{}, &v1alpha1.NodeUpdate{}
	var err error
	for range 50 { // the API server notices the grant a moment later
		if err = n1.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n1"}, own); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("a node reads its NodeUpdate: %v", err)
	}
	own.Status.Phase = "Idle"
	if err := n1.Status().Update(ctx, own); err != nil {
		t.Errorf("a node writes its own status: %v", err)
	}
	for what, hostile := range map[string]v1alpha1.NodeUpdateStatus{
		"a message that controls a terminal": {Message: "\x1b]0;owned\a"},
		"a device with a line break":         {Media: []v1alpha1.Medium{{Device: "/dev/sdb\nVerified: yes", State: "Found"}}},
		"a name that turns the text":         {Media: []v1alpha1.Medium{{Device: "/dev/sdb", Name: "k\u202e3.63.1", State: "Found"}}},
		"a version without end":              {Agent: &v1alpha1.AgentInfo{Version: strings.Repeat("1", 1000)}},
		"a thousand signers":                 {Media: []v1alpha1.Medium{{Device: "/dev/sdb", State: "Found", SignedBy: make([]string, 1000)}}},
	} {
		bad := own.DeepCopy()
		bad.Status = hostile
		if err := n1.Status().Update(ctx, bad); !apierrors.IsInvalid(err) {
			t.Errorf("%s is accepted: %v", what, err)
		}
	}
	forbidden(t, "a node reads another's NodeUpdate", n1.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n2"}, other))
	if err := admin.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n2"}, other); err != nil {
		t.Fatal(err)
	}
	other.Status.Phase = "Idle"
	refused(t, n1.Status().Update(ctx, other), "may write only the status of the NodeUpdate that has its node's name")
	own.Spec.Pins = "pins-x"
	forbidden(t, "a node writes its own spec", n1.Update(ctx, own))
	forbidden(t, "a node makes a NodeUpdate", n1.Create(ctx, &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta("n3")}))
	forbidden(t, "a node deletes a NodeUpdate", n1.Delete(ctx, other))
	forbidden(t, "a node approves a bundle", n1.Create(ctx, &v1alpha1.Bundle{ObjectMeta: meta("evil")}))
	forbidden(t, "a node reads Secrets", n1.List(ctx, &corev1.SecretList{}, client.InNamespace(v1alpha1.SystemNamespace)))

	refused(t, admin.Create(ctx, &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta("n4")}), "only refit's controller writes NodeUpdate specs")
	refused(t, admin.Create(ctx, &v1alpha1.Content{ObjectMeta: nodeMeta("pins-x"), Type: "pins", Data: "{}"}), "only refit's controller writes NodeUpdate specs")
	var nu v1alpha1.NodeUpdate
	if err := admin.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: "n1"}, &nu); err != nil {
		t.Fatal(err)
	}
	nu.Labels = map[string]string{"team": "edge"}
	if err := admin.Update(ctx, &nu); err != nil {
		t.Errorf("an administrator may label a NodeUpdate: %v", err)
	}
	nu.Spec.Pins = "pins-x"
	refused(t, admin.Update(ctx, &nu), "only refit's controller writes NodeUpdate specs")

	content := &v1alpha1.Content{ObjectMeta: nodeMeta("plan-x"), Type: "plan", Data: "{}"}
	mustCreate(t, controllerClient, content)
	content.Data = "{1}"
	if err := controllerClient.Patch(ctx, content, client.Merge); err == nil {
		mergeContent(t, controllerClient, content.Name)
	}
	mustCreate(t, controllerClient, &v1alpha1.Bundle{ObjectMeta: meta("found")})
	refused(t, controllerClient.Create(ctx, &v1alpha1.Bundle{ObjectMeta: meta("approved"), Spec: v1alpha1.BundleSpec{Digest: digestA}}), "approved by a person")
}

// mergeContent shows that a Content cannot be changed, not even by its maker.
func mergeContent(t *testing.T, c client.Client, name string) {
	t.Helper()
	o := &v1alpha1.Content{ObjectMeta: nodeMeta(name)}
	refused(t, c.Patch(context.Background(), o, client.RawPatch("application/merge-patch+json", []byte(`{"data":"{1}"}`))), "create another")
}

func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("%s: want a refusal, got %v", what, err)
	}
}

// waitForPolicies waits until the API server enforces the admission policies:
// it takes a moment to notice new ones.
func waitForPolicies(t *testing.T, admin client.Client) {
	t.Helper()
	for range 300 {
		err := admin.Create(context.Background(), &v1alpha1.Content{ObjectMeta: nodeMeta("probe"), Type: "pins", Data: "{}"}, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "only refit's controller") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the admission policies do not come into force")
}

func testRunningStays(t *testing.T, cfg *rest.Config, c client.Client) {
	ctx := context.Background()
	controllerClient := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	waitForPolicies(t, c)
	u := &v1alpha1.ClusterUpdate{ObjectMeta: meta("running"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA}}
	mustCreate(t, c, u)
	u.Status.Phase = v1alpha1.PhaseUpdating
	if err := controllerClient.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	refused(t, c.Delete(ctx, u), "annotate it with refit.dev/allow-delete=true")
	u.Annotations = map[string]string{v1alpha1.AnnotationAllowDelete: "true"}
	if err := c.Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, u); err != nil {
		t.Errorf("with the annotation it is deleted: %v", err)
	}
}

func testManifests(t *testing.T, c client.Client) {
	objs, err := config.Manifests("refit.dev/refit:v1")
	if err != nil {
		t.Fatal(err)
	}
	management, _, workload, err := config.ClusterAPI() // the registration is of a kind that is not here
	if err != nil {
		t.Fatal(err)
	}
	objs = slices.Concat(objs, management, workload)
	for range 2 { // twice is the same as once
		for _, o := range objs {
			if err := c.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("refit"), client.ForceOwnership); err != nil {
				t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
}
