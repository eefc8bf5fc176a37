package imageproof

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestMostSpecificRuleCounts(t *testing.T) {
	t.Parallel()
	p := &Policy{Rules: []Rule{{Images: "*"}, {Images: "r.example/*"}, {Images: "r.example/team/*"}, {Images: "r.example/team/app"}}}
	for repository, want := range map[string]string{
		"r.example/team/app": "r.example/team/app", "r.example/team/app/sub": "r.example/team/*", "r.example/team": "r.example/*",
		"r.example/teams/app": "r.example/*", "r.example.evil/app": "*", "docker.io/library/nginx": "*",
	} {
		if got := p.RuleFor(repository); got.Images != want {
			t.Errorf("%s: rule %s, want %s", repository, got.Images, want)
		}
	}
	p.Rules = p.Rules[1:]
	if got := p.RuleFor("docker.io/library/nginx"); got != nil {
		t.Errorf("rule %s, want none", got.Images)
	}
}

func TestInvalidPolicies(t *testing.T) {
	t.Parallel()
	k := newSigner(t, "p256").trusted("k")
	ca := newAuthority(t)
	for want, rules := range map[string][]Rule{
		"has no rules":                  nil,
		"there is another rule":         {{Images: "*", AcceptUnsigned: true}, {Images: "*", AcceptUnsigned: true}},
		"exclude each other":            {{Images: "*", AcceptUnsigned: true, Keys: []Key{k}}},
		"or write accept":               {{Images: "*"}},
		"has no identities":             {{Images: "*", Roots: ca.roots()}},
		"has no roots":                  {{Images: "*", Keys: []Key{k}, Identities: []Identity{{}}}},
		"write a repository":            {{Images: "r.example/a*", AcceptUnsigned: true}},
		"write docker.io/library/nginx": {{Images: "nginx", AcceptUnsigned: true}},
		"without tag":                   {{Images: "r.example/a:v1", AcceptUnsigned: true}},
	} {
		if err := (&Policy{Rules: rules}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestInvalidKeysAndIdentities(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := ParseKey("k", []byte(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
		if _, err := ParseRoots([]byte(text)); err == nil {
			t.Errorf("%q was accepted as a root", text)
		}
	}
	for _, s := range []string{"", "CN=x", "x509.subject:", "x509.subject: CN", "x509.subject: XX=1", "x509.subject: CN=a, CN=b"} {
		if _, err := ParseIdentity(s); err == nil {
			t.Errorf("identity %q was accepted", s)
		}
	}
	id := must[Identity](t)(ParseIdentity(`x509.subject: O=Example\, Inc., CN=release`))
	if id["O"] != "Example, Inc." || id["CN"] != "release" {
		t.Errorf("got %v", id)
	}
}

func TestRepositories(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"nginx": "docker.io/library/nginx", "index.docker.io/library/nginx:1": "docker.io/library/nginx", "team/app@sha256:0": "docker.io/team/app",
		"localhost:5000/app:v1": "localhost:5000/app", "localhost:5000/app": "localhost:5000/app", "": "",
	} {
		if got := repositoryOf(ref); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
}

// artifact is a manifest with its documents, for archives.
type artifact struct {
	manifest []byte
	blobs    map[string][]byte
}

func makeArtifact(t testing.TB, artifactType, subject string, layers ...Layer) artifact {
	a := artifact{blobs: map[string][]byte{digestOf("{}"): []byte("{}")}}
	m := map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": artifactType,
		"config": Descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: digestOf("{}"), Size: 2}, "subject": Descriptor{MediaType: mediaTypeIndex, Digest: subject, Size: 1}}
	var ds []Descriptor
	for _, l := range layers {
		d := fmt.Sprintf("sha256:%x", sha256.Sum256(l.Content))
		a.blobs[d] = l.Content
		ds = append(ds, Descriptor{MediaType: l.MediaType, Digest: d, Size: int64(len(l.Content)), Annotations: l.Annotations})
	}
	m["layers"] = ds
	a.manifest = must[[]byte](t)(json.Marshal(m))
	return a
}

// archive writes artifacts of images.
func archive(t testing.TB, entries []Entry, artifacts ...artifact) []byte {
	manifests, blobs := map[string][]byte{}, map[string][]byte{}
	for i, a := range artifacts {
		d := fmt.Sprintf("sha256:%x", sha256.Sum256(a.manifest))
		entries[i].Manifest = Descriptor{MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: d, Size: int64(len(a.manifest))}
		manifests[d] = a.manifest
		for k, v := range a.blobs {
			blobs[k] = v
		}
	}
	var b bytes.Buffer
	err := WriteArchive(&b, entries, manifests, func(d Descriptor) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(blobs[d.Digest])), nil })
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchive(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "p256")
	entries := []Entry{{Image: "r.example/b:v1", Subject: digestB}, {Image: "r.example/a:v1", Subject: digestA, Tag: "sha256-x.sig"}}
	sbom := Layer{MediaType: "text/spdx+json", Content: []byte(`{"spdxVersion":"SPDX-2.3"}`)}
	raw := archive(t, entries, makeArtifact(t, "application/spdx+json", digestB, sbom), makeArtifact(t, "", digestA, s.cosign("r.example/a", digestA), s.cosign("r.example/a", digestA)))
	again := archive(t, []Entry{entries[1], entries[0]}, makeArtifact(t, "", digestA, s.cosign("r.example/a", digestA)), makeArtifact(t, "application/spdx+json", digestB, sbom))
	if len(raw)%512 != 0 || len(again)%512 != 0 {
		t.Errorf("the archive has %d bytes", len(raw))
	}
	blobs := 0
	got, err := ReadArchive(bytes.NewReader(raw), func(b Blob) error { blobs++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Image != "r.example/a:v1" || got[0].Kind != KindSignature || got[0].Format != FormatCosign || len(got[0].Proofs) == 0 || got[0].Tag != "sha256-x.sig" {
		t.Errorf("got %+v", got)
	}
	if got[1].Kind != KindSBOM || got[1].Format != FormatPlain || blobs < 4 {
		t.Errorf("got %+v, %d blobs", got[1], blobs)
	}
	images := []Image{{Name: "r.example/a:v1", Repository: "r.example/a", Digest: digestA}, {Name: "r.example/b:v1", Repository: "r.example/b", Digest: digestB}}
	p := &Policy{Rules: []Rule{{Images: "*", Keys: []Key{s.trusted("release")}}}}
	refused := p.Check(images, got, now)
	if len(refused) != 1 || refused[0].Image != "r.example/b:v1" || refused[0].Reason != Missing || refused[0].Fix == "" || got[0].Signer == "" {
		t.Errorf("refused %v", refused)
	}
	// Every changed bit of the documents is found, and every cut.
	for i := 0; i < len(raw); i += 7 {
		c := bytes.Clone(raw)
		c[i] ^= 1
		if e, err := ReadArchive(bytes.NewReader(c), nil); err == nil && len(p.Check(images, e, now)) == 0 {
			t.Fatalf("byte %d: a changed archive passes", i)
		}
		if e, err := ReadArchive(bytes.NewReader(raw[:i]), nil); err == nil && len(p.Check(images, e, now)) == 0 {
			t.Fatalf("cut at %d: passes", i)
		}
	}
}

func TestWriteArchiveChecksBlobs(t *testing.T) {
	t.Parallel()
	a := makeArtifact(t, "application/spdx+json", digestB, Layer{MediaType: "text/spdx+json", Content: []byte("x")})
	d := fmt.Sprintf("sha256:%x", sha256.Sum256(a.manifest))
	entries := []Entry{{Image: "r.example/b:v1", Subject: digestB, Manifest: Descriptor{Digest: d, Size: int64(len(a.manifest))}}}
	for _, content := range []string{"", "no", "short"} {
		err := WriteArchive(io.Discard, entries, map[string][]byte{d: a.manifest}, func(Descriptor) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil })
		if err == nil {
			t.Errorf("content %q was accepted", content)
		}
	}
	err := WriteArchive(failingWriter{}, entries, map[string][]byte{d: a.manifest}, func(Descriptor) (io.ReadCloser, error) { return nil, errors.New("not there") })
	if err == nil {
		t.Error("a full disk is no error")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestEachPlatform(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "p256")
	img := Image{Name: "r.example/a:v1", Repository: "r.example/a", Digest: digestA, Platforms: []string{digestB, digestOf("c")}}
	entry := func(subject string) Entry {
		p, err := Parse(s.cosign("r.example/a", subject))
		if err != nil {
			t.Fatal(err)
		}
		return Entry{Image: img.Name, Subject: subject, Proofs: []*Proof{p}}
	}
	index := []Entry{entry(digestA)}
	each := []Entry{entry(digestB), entry(digestOf("c"))}
	p := &Policy{Rules: []Rule{{Images: "*", Keys: []Key{s.trusted("k")}}}}
	if got := p.Check([]Image{img}, index, now); len(got) != 0 {
		t.Error(got)
	}
	if got := p.Check([]Image{img}, each, now); len(got) != 1 || got[0].Digest != digestA {
		t.Error(got)
	}
	p.Rules[0].EachPlatform = true
	if got := p.Check([]Image{img}, each, now); len(got) != 0 {
		t.Error(got)
	}
	if got := p.Check([]Image{img}, index, now); len(got) != 2 {
		t.Error(got)
	}
	if got := p.Check([]Image{img}, each[:1], now); len(got) != 1 || got[0].Digest != digestOf("c") {
		t.Error(got)
	}
	index0 := `{"manifests":[{"digest":"` + digestB + `","platform":{"os":"linux"}},{"digest":"` + digestA + `","platform":{"os":"unknown"}}]}`
	if got := PlatformManifests([]byte(index0)); len(got) != 1 || got[0] != digestB {
		t.Error(got)
	}
}

func FuzzReadArchive(f *testing.F) {
	s := newSigner(f, "p256")
	f.Add(archive(f, []Entry{{Image: "r.example/a:v1", Subject: digestA}}, makeArtifact(f, "", digestA, s.cosign("r.example/a", digestA))))
	p := &Policy{Rules: []Rule{{Images: "*", Keys: []Key{newSigner(f, "p256").trusted("k")}}}}
	images := []Image{{Name: "r.example/a:v1", Repository: "r.example/a", Digest: digestA}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := ReadArchive(bytes.NewReader(raw), nil)
		if err == nil && len(p.Check(images, entries, now)) == 0 {
			t.Fatal("accepted without a signature of the key")
		}
		entries, err = ReadSignatures(bytes.NewReader(raw), map[string]bool{"r.example/a:v1": true})
		if err == nil && len(p.Check(images, entries, now)) == 0 {
			t.Fatal("accepted on a node without a signature of the key")
		}
	})
}
