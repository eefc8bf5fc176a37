package bundlecmd

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
)

// proofSite is a registry with images and the keys of their publisher.
type proofSite struct {
	t    *testing.T
	host string
	key  *ecdsa.PrivateKey
}

func newProofSite(t *testing.T, options ...registry.Option) *proofSite {
	t.Helper()
	server := httptest.NewServer(registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...))
	t.Cleanup(server.Close)
	t.Chdir(t.TempDir())
	s := &proofSite{t: t, host: strings.TrimPrefix(server.URL, "http://")}
	s.key = s.newKey("release.pub")
	return s
}

func (s *proofSite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// newKey writes the public half into a file.
func (s *proofSite) newKey(file string) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	s.must(err)
	s.must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644))
	return k
}

func (s *proofSite) ref(text string) name.Reference {
	r, err := name.ParseReference(s.host + "/" + text)
	s.must(err)
	return r
}

// push uploads an image and returns its digest.
func (s *proofSite) push(ref string) string {
	img, err := random.Image(500, 1)
	s.must(err)
	s.must(remote.Write(s.ref(ref), img))
	d, err := img.Digest()
	s.must(err)
	return d.String()
}

// artifact has one document.
func (s *proofSite) artifact(mediaType, configType string, content []byte, annotations map[string]string) v1.Image {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(configType))
	img, err := mutate.Append(img, mutate.Addendum{Layer: static.NewLayer(content, types.MediaType(mediaType)), Annotations: annotations, MediaType: types.MediaType(mediaType)})
	s.must(err)
	return img
}

func (s *proofSite) signature(k *ecdsa.PrivateKey, reference, digest string) v1.Image {
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, reference, digest)
	sum := sha256.Sum256(payload)
	sig, err := k.Sign(rand.Reader, sum[:], crypto.SHA256)
	s.must(err)
	return s.artifact(imageproof.MediaTypeSimpleSigning, "application/vnd.oci.image.config.v1+json", payload, map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)})
}

// tag keeps a signature as cosign does by default.
func (s *proofSite) tag(repository, digest string, img v1.Image) {
	s.must(remote.Write(s.ref(repository+":"+strings.Replace(digest, ":", "-", 1)+".sig"), img))
}

// attach keeps an artifact as a referrer.
func (s *proofSite) attach(repository, digest string, img v1.Image) {
	target, err := remote.Get(s.ref(repository + "@" + digest))
	s.must(err)
	img = mutate.Subject(img, target.Descriptor).(v1.Image)
	d, err := img.Digest()
	s.must(err)
	s.must(remote.Write(s.ref(repository+"@"+d.String()), img))
}

func (s *proofSite) policy(rules string) {
	s.must(os.WriteFile("policy.yaml", []byte("apiVersion: refit.dev/imageproofpolicy/v1\nkind: ImageProofPolicy\nrules:\n"+strings.ReplaceAll(rules, "HOST", s.host)), 0o644))
}

func (s *proofSite) create(args ...string) result {
	s.t.Helper()
	return refit(s.t, append([]string{"bundle", "create", "--output", "b", "--unsigned", "--version", "1.0.0"}, args...)...)
}

func (s *proofSite) inspect() bundleView {
	s.t.Helper()
	var v bundleView
	s.must(json.Unmarshal([]byte(must(s.t, "bundle", "inspect", "b", "-o", "json")), &v))
	return v
}

const releaseRule = "- images: HOST/*\n  cosign: {keys: [{name: release, file: release.pub}]}\n"

// Every way in which registries keep a signature is found, verified and carried, and verified
// again from the bundle without the registry.
func TestSignedImages(t *testing.T) {
	for name, options := range map[string][]registry.Option{"referrers API": {registry.WithReferrersSupport(true)}, "fallback tag": nil, "tag of cosign": nil} {
		t.Run(name, func(t *testing.T) {
			s := newProofSite(t, options...)
			d := s.push("team/app:1")
			if name == "tag of cosign" {
				s.tag("team/app", d, s.signature(s.key, s.host+"/team/app", d))
			} else {
				s.attach("team/app", d, s.signature(s.key, s.host+"/team/app", d))
			}
			s.attach("team/app", d, s.artifact("text/spdx+json", "application/spdx+json", []byte(`{"spdxVersion":"SPDX-2.3"}`), nil))
			s.attach("team/app", d, s.artifact(imagetag.RecordType, imagetag.RecordType, []byte(`{"kind":"ReleaseRecord"}`), nil))
			s.policy(releaseRule)
			if r := s.create("--verify", "policy.yaml", "docker://"+s.host+"/team/app:1"); r.code != console.ExitOK {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			v := s.inspect()
			kinds := map[string]string{}
			for _, p := range v.Proofs {
				if p.Image != s.host+"/team/app:1" || p.Subject != d {
					t.Errorf("proof %+v", p)
				}
				kinds[p.Kind] = p.Signer
			}
			if _, has := kinds["release-record"]; !has || len(kinds) != 3 || !strings.HasPrefix(kinds["signature"], "cosign key release (") || kinds["sbom"] != "" {
				t.Errorf("proofs %+v", v.Proofs)
			}
			first, err := os.ReadFile("b")
			s.must(err)
			s.must(os.Rename("b", "old"))
			s.host = "gone.invalid" // nothing below asks the registry
			if r := refit(t, "bundle", "inspect", "old", "--verify", "policy.yaml"); r.code != console.ExitOK || !strings.Contains(r.out, "VERIFIED NOW") {
				t.Errorf("exit %d: %s %s", r.code, r.err, r.out)
			}
			if sum, err := ProofSummary("old"); err != nil || !strings.Contains(sum, "1 image by cosign key release") {
				t.Errorf("%q, %v", sum, err)
			}
			if r := s.create("bundle:old"); r.code != console.ExitOK {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			if again, err := os.ReadFile("b"); err != nil || !bytes.Equal(first, again) {
				t.Errorf("a bundle of the bundle has other bytes (%v)", err)
			}
			must(t, "bundle", "verify", "b", "--digest", v.Digest)
			s.newKey("release.pub")
			if r := refit(t, "bundle", "inspect", "old", "--verify", "policy.yaml"); r.code != console.ExitVerification || !strings.Contains(r.err, "WrongKey") {
				t.Errorf("exit %d: %s", r.code, r.err)
			}
		})
	}
}

// All images that the policy refuses are named at once, each with its reason and a fix, and
// nothing is written.
func TestRefusedImages(t *testing.T) {
	s := newProofSite(t)
	other := s.newKey("other.pub")
	good, wrong, digest, replayed := s.push("team/good:1"), s.push("team/wrong:1"), s.push("team/digest:1"), s.push("team/replayed:1")
	s.push("team/missing:1")
	s.push("free/a:1")
	s.tag("team/good", good, s.signature(s.key, s.host+"/team/good", good))
	s.tag("team/wrong", wrong, s.signature(other, s.host+"/team/wrong", wrong))
	s.tag("team/digest", digest, s.signature(s.key, s.host+"/team/digest", good))
	s.tag("team/replayed", replayed, s.signature(s.key, s.host+"/team/good", replayed))
	s.policy(strings.Replace(releaseRule, "HOST/*", "HOST/team/*", 1) + "- images: HOST/free/*\n  accept: Unsigned\n")
	s.push("norule/a:1")
	var sources []string
	for _, i := range []string{"team/good", "team/missing", "team/wrong", "team/digest", "team/replayed", "free/a", "norule/a"} {
		sources = append(sources, "docker://"+s.host+"/"+i+":1")
	}
	r := s.create(append(sources, "--verify", "policy.yaml")...)
	if r.code != console.ExitVerification {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	for image, reason := range map[string]string{"team/missing": "Missing", "team/wrong": "WrongKey", "team/digest": "WrongDigest", "team/replayed": "Replayed", "norule/a": "NoRule"} {
		if !regexp.MustCompile(regexp.QuoteMeta(s.host+"/"+image) + `:1 \(sha256:[0-9a-f]{64}\): ` + reason + `: .+ Fix: .+`).MatchString(r.err) {
			t.Errorf("%s: no %s in %s", image, reason, r.err)
		}
	}
	if strings.Contains(r.err, "team/good:1 (") || strings.Contains(r.err, "free/a:1 (") || !strings.Contains(r.err, "refuses 5 images") {
		t.Errorf("wrong images are refused: %s", r.err)
	}
	left, err := os.ReadDir(".")
	s.must(err)
	for _, f := range left {
		if f.Name() != "policy.yaml" && !strings.HasSuffix(f.Name(), ".pub") {
			t.Errorf("%s was written", f.Name())
		}
	}
}

// Without the flags nothing is asked of a registry, and a bundle has no proofs.
func TestProofsAreOffByDefault(t *testing.T) {
	s := newProofSite(t)
	d := s.push("team/app:1")
	s.tag("team/app", d, s.signature(s.key, s.host+"/team/app", d))
	if r := s.create("docker://" + s.host + "/team/app:1"); r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	if v := s.inspect(); len(v.Proofs) != 0 || len(v.Payloads) != 0 {
		t.Errorf("got %+v", v)
	}
	if r := s.create("--with-proofs", "docker://"+s.host+"/team/app:1"); r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	if v := s.inspect(); len(v.Proofs) != 1 || v.Proofs[0].Signer != "" || v.Payloads[0].Name != imageproof.PayloadName {
		t.Errorf("got %+v", v)
	}
	if out := must(t, "bundle", "inspect", "b"); !strings.Contains(out, "not verified") {
		t.Error(out)
	}
}

func TestPolicyErrors(t *testing.T) {
	s := newProofSite(t)
	for rules, want := range map[string]string{
		"- images: '*'\n  cosig: {}\n":                                           "unknown field",
		"- images: '*'\n  cosign: {keys: [{file: none.pub}]}\n":                  "none.pub",
		"- images: '*'\n  cosign: {keys: [{}]}\n":                                "name a file",
		"- images: '*'\n  cosign: {keys: [{pem: x}]}\n":                          "BEGIN PUBLIC KEY",
		"- images: '*'\n  accept: unsigned\n":                                    "write Unsigned",
		"- images: '*'\n  signed: Index\n  accept: Unsigned\n":                   "EachPlatform",
		"- images: '*'\n  notation: {roots: [{pem: x}]}\n":                       "BEGIN CERTIFICATE",
		"- images: '*'\n  notation: {identities: ['O=x']}\n":                     "x509.subject",
		"- images: '*'\n  accept: Unsigned\n- images: '*'\n  accept: Unsigned\n": "another rule",
	} {
		s.policy(rules)
		if r := s.create("--verify", "policy.yaml", "docker://none.invalid/a:1"); r.code != console.ExitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: exit %d: %s", rules, r.code, r.err)
		}
	}
}

// The SBOM has the members that SPDX 2.3 requires, every digest of the header, and the same
// bytes each time.
func TestSBOM(t *testing.T) {
	site(t)
	must(t, "bundle", "create", "--output", "b", "--unsigned", "oci:layout", "payload:kubelet@v1.36.3=kubelet")
	out := must(t, "bundle", "inspect", "b", "--sbom")
	if again := must(t, "bundle", "inspect", "b", "--sbom"); again != out {
		t.Error("other bytes")
	}
	var d map[string]any
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships"} {
		if d[k] == nil {
			t.Errorf("no %s", k)
		}
	}
	created := d["creationInfo"].(map[string]any)
	if d["spdxVersion"] != "SPDX-2.3" || d["dataLicense"] != "CC0-1.0" || !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(created["created"].(string)) {
		t.Errorf("head %v", d)
	}
	for _, c := range created["creators"].([]any) {
		if !regexp.MustCompile(`^(Person|Organization|Tool): .+`).MatchString(c.(string)) {
			t.Errorf("creator %v", c)
		}
	}
	ids, purls := map[string]bool{"SPDXRef-DOCUMENT": true}, []string{}
	for _, x := range d["packages"].([]any) {
		p := x.(map[string]any)
		id := p["SPDXID"].(string)
		if ids[id] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(id) || p["name"] == "" || p["downloadLocation"] == "" {
			t.Errorf("package %v", p)
		}
		ids[id] = true
		for _, c := range p["checksums"].([]any) {
			if c := c.(map[string]any); c["algorithm"] != "SHA256" || len(c["checksumValue"].(string)) != 64 {
				t.Errorf("checksum %v", c)
			}
		}
		if refs, ok := p["externalRefs"].([]any); ok {
			purls = append(purls, refs[0].(map[string]any)["referenceLocator"].(string))
		}
	}
	for _, x := range d["relationships"].([]any) {
		r := x.(map[string]any)
		if !ids[r["spdxElementId"].(string)] || !ids[r["relatedSpdxElement"].(string)] {
			t.Errorf("relationship %v", r)
		}
	}
	f, err := bundlereader.OpenPath("b")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := f.Header().Metadata
	want := "pkg:oci/app@sha256%3A" + strings.TrimPrefix(m.Images[0].Digest, "sha256:") + "?repository_url=registry.example/app&tag=1"
	if len(purls) != 2 || purls[0] != want || !strings.HasPrefix(purls[1], "pkg:generic/kubelet@v1.36.3?checksum=sha256:") {
		t.Errorf("purls %q, want %q", purls, want)
	}
	if r := refit(t, "bundle", "inspect", "b", "--sbom", "-o", "json"); r.code != console.ExitUsage {
		t.Errorf("exit %d", r.code)
	}
}

// The policy in the documentation is read as it stands.
func TestShownPolicy(t *testing.T) {
	page, err := os.ReadFile("../../../docs/how-to/trust-and-approve.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "apiVersion: refit.dev/imageproofpolicy/v1\n")
	text, _, end := strings.Cut(text, "```")
	if !ok || !end {
		t.Fatal("the page shows no policy")
	}
	s := newProofSite(t)
	s.newKey("os.pub")
	s.must(os.WriteFile("vendor-ca.pem", notationRoot(t), 0o644))
	p, err := parsePolicy([]byte("apiVersion: refit.dev/imageproofpolicy/v1\n"+text), ".")
	s.must(err)
	if len(p.Rules) != 4 || !p.Rules[1].EachPlatform || len(p.Rules[2].Roots) != 1 || !p.Rules[3].AcceptUnsigned {
		t.Errorf("got %+v", p.Rules)
	}
}

func notationRoot(t *testing.T) []byte {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A registry that lists artifacts without end, or an image whose documents are cut or changed,
// ends the command with an error that names the image; memory and time are bounded.
func TestHostileRegistries(t *testing.T) {
	var answer func(w http.ResponseWriter, r *http.Request) bool
	s := newProofSite(t)
	d := s.push("team/app:1")
	s.tag("team/app", d, s.signature(s.key, s.host+"/team/app", d))
	real := s.host
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer != nil && answer(w, r) {
			return
		}
		resp, err := http.Get("http://" + real + r.URL.Path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(proxy.Close)
	s.host = strings.TrimPrefix(proxy.URL, "http://")
	s.policy("- images: HOST/*\n  signedAs: ['" + real + "/*']\n  cosign: {keys: [{file: release.pub}]}\n")
	source := "docker://" + s.host + "/team/app:1"
	if r := s.create("--verify", "policy.yaml", source); r.code != console.ExitOK {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	s.must(os.Remove("b"))
	referrers := func(body func(io.Writer)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/referrers/") {
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			body(w)
			return true
		}
	}
	for name, a := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"many": referrers(func(w io.Writer) {
			one := fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"digest":%q}`, d)
			fmt.Fprintf(w, `{"schemaVersion":2,"manifests":[%s%s]}`, strings.Repeat(one+",", 300), one)
		}),
		"endless": referrers(func(w io.Writer) {
			for range 64 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
					return
				}
			}
		}),
		"changed document": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") || r.Header.Get("Range") != "" {
				return false
			}
			_, _ = w.Write([]byte("other bytes"))
			return true
		},
	} {
		answer = a
		if r := s.create("--verify", "policy.yaml", source); r.code == console.ExitOK {
			t.Errorf("%s: accepted", name)
		}
		if _, err := os.Stat("b"); err == nil {
			t.Errorf("%s: a bundle was written", name)
		}
	}
}

// An OCI image layout in a directory has signatures as referrers or under the tags of cosign.
func TestSignaturesInLayouts(t *testing.T) {
	s := newProofSite(t)
	img, err := random.Image(500, 1)
	s.must(err)
	d, err := img.Digest()
	s.must(err)
	p, err := layout.Write("layout", empty.Index)
	s.must(err)
	name := func(n string) layout.Option {
		return layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": n})
	}
	s.must(p.AppendImage(img, name("registry.example/app:1")))
	tag := strings.Replace(d.String(), ":", "-", 1) + ".sig"
	s.must(p.AppendImage(s.signature(s.key, "registry.example/app", d.String()), name("registry.example/app:"+tag)))
	s.policy("- images: '*'\n  cosign: {keys: [{file: release.pub}]}\n")
	if r := s.create("--verify", "policy.yaml", "oci:layout:registry.example/app:1"); r.code != console.ExitOK {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	if v := s.inspect(); len(v.Images) != 1 || len(v.Proofs) != 1 || v.Proofs[0].Signer == "" {
		t.Errorf("got %+v", v)
	}
}
