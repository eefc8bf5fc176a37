package imageproof

import (
	"bytes"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

// demandSite is an archive with the signatures of one image.
type demandSite struct {
	t     *testing.T
	image Image
	key   signer
}

func newDemandSite(t *testing.T) *demandSite {
	return &demandSite{t, Image{Name: "r.example/app:1", Repository: "r.example/app", Digest: "sha256:" + strings.Repeat("a", 64)}, newSigner(t, "p256")}
}

// read writes an archive of layers that are attached to the image, and reads its signatures.
func (s *demandSite) read(layers ...Layer) []Entry {
	s.t.Helper()
	var entries []Entry
	var artifacts []artifact
	for _, l := range layers {
		entries = append(entries, Entry{Image: s.image.Name, Subject: s.image.Digest})
		artifacts = append(artifacts, makeArtifact(s.t, "", s.image.Digest, l))
	}
	return must[[]Entry](s.t)(ReadSignatures(bytes.NewReader(archive(s.t, entries, artifacts...)), map[string]bool{s.image.Name: true}))
}

func (s *demandSite) rule(k signer) RuleSpec {
	return RuleSpec{Images: "r.example/*", Cosign: &CosignSpec{Keys: []PEMSpec{{Name: "release", PEM: string(k.pem())}}}}
}

// The words of a refusal on a node are those at create.
func TestDemands(t *testing.T) {
	t.Parallel()
	s := newDemandSite(t)
	other, ca := newSigner(t, "p256"), newAuthority(t)
	good := s.key.cosign("r.example/app", s.image.Digest)
	leaf := newSigner(t, "p256")
	roots := RuleSpec{Images: "r.example/*", Notation: &NotationSpec{Roots: []PEMSpec{{Name: "ca", PEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))}}, Identities: []string{"x509.subject: C=DE, O=Example"}}}
	for name, c := range map[string]struct {
		rules  []NamedRules
		layers []Layer
		want   Reason
	}{
		"signed":               {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}}, []Layer{good}, ""},
		"no signature":         {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}}, nil, Missing},
		"another key":          {[]NamedRules{{"a", []RuleSpec{s.rule(other)}}}, []Layer{good}, WrongKey},
		"another digest":       {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}}, []Layer{s.key.cosign("r.example/app", "sha256:"+strings.Repeat("b", 64))}, WrongDigest},
		"of another image":     {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}}, []Layer{s.key.cosign("r.example/tool", s.image.Digest)}, Replayed},
		"damaged":              {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}}, []Layer{{MediaType: MediaTypeSimpleSigning, Content: []byte("{"), Annotations: good.Annotations}}, Damaged},
		"an SBOM is no proof":  {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}}, []Layer{s.key.dsse("https://spdx.dev/Document", s.image.Digest)}, Missing},
		"notation":             {[]NamedRules{{"a", []RuleSpec{roots}}}, []Layer{leaf.notation(s.image.Digest, nil, ca.leaf(leaf, time.Unix(1<<33, 0)), ca.cert)}, ""},
		"notation, expired":    {[]NamedRules{{"a", []RuleSpec{roots}}}, []Layer{leaf.notation(s.image.Digest, nil, ca.leaf(leaf, time.Unix(1, 0)), ca.cert)}, Expired},
		"a rule of none":       {[]NamedRules{{"a", []RuleSpec{{Images: "other.example/*", Cosign: s.rule(s.key).Cosign}}}}, nil, ""},
		"a narrow exception":   {[]NamedRules{{"a", []RuleSpec{s.rule(s.key), {Images: "r.example/app", Accept: "Unsigned"}}}}, nil, ""},
		"both policies met":    {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}, {"b", []RuleSpec{{Images: "*", Accept: "Unsigned"}}}}, []Layer{good}, ""},
		"one of two not met":   {[]NamedRules{{"a", []RuleSpec{s.rule(s.key)}}, {"b", []RuleSpec{s.rule(other)}}}, []Layer{good}, WrongKey},
		"an unreadable key":    {[]NamedRules{{"a", []RuleSpec{{Images: "r.example/*", Cosign: &CosignSpec{Keys: []PEMSpec{{PEM: "x"}}}}}}}, []Layer{good}, InvalidRule},
		"a file in a policy":   {[]NamedRules{{"a", []RuleSpec{{Images: "r.example/*", Cosign: &CosignSpec{Keys: []PEMSpec{{File: "x"}}}}}}}, []Layer{good}, InvalidRule},
		"an unreadable image":  {[]NamedRules{{"a", []RuleSpec{{Images: "r.example/a*", Accept: "Unsigned"}}}}, []Layer{good}, InvalidRule},
		"it reads nothing for": {[]NamedRules{{"a", []RuleSpec{{Images: "other.example/*", Cosign: &CosignSpec{Keys: []PEMSpec{{PEM: "x"}}}}}}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDemands(c.rules)
			got := d.Check([]Image{s.image}, s.read(c.layers...), time.Unix(1_700_000_000, 0))
			switch {
			case c.want == "" && len(got) > 0:
				t.Fatal(got)
			case c.want != "" && (len(got) != 1 || got[0].Reason != c.want || got[0].Fix == "" || !strings.Contains(got[0].Message, "TrustPolicy ")):
				t.Fatalf("%v, want %s", got, c.want)
			case c.want != "" && !d.For(s.image.Repository):
				t.Error("the repository has no rule")
			}
		})
	}
}

// A hostile archive costs bounded memory: many entries that share a document count it each.
func TestReadSignaturesIsBounded(t *testing.T) {
	t.Parallel()
	s := newDemandSite(t)
	big := Layer{MediaType: MediaTypeDSSE, Content: bytes.Repeat([]byte(" "), MaxSignature)}
	var entries []Entry
	var artifacts []artifact
	for range 40 {
		entries = append(entries, Entry{Image: s.image.Name, Subject: s.image.Digest})
		artifacts = append(artifacts, makeArtifact(t, "", s.image.Digest, big))
	}
	raw := archive(t, entries, artifacts...)
	if _, err := ReadSignatures(bytes.NewReader(raw), map[string]bool{s.image.Name: true}); err == nil || !strings.Contains(err.Error(), "have more than") {
		t.Errorf("got %v", err)
	}
	// Of other images nothing is kept.
	if got, err := ReadSignatures(bytes.NewReader(raw), map[string]bool{"r.example/other:1": true}); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, n := range []int{0, 1, 511, 512, 700, len(raw) / 2} {
		if got, err := ReadSignatures(bytes.NewReader(raw[:n]), map[string]bool{s.image.Name: true}); err == nil && len(got) > 0 {
			t.Errorf("%d bytes of the archive gave %d entries", n, len(got))
		}
	}
}
