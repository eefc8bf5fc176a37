package imageproof

import (
	"encoding/json"
	"os"
	"testing"
)

// TestMadeByOthers verifies signatures that the libraries of cosign and notation made:
// github.com/sigstore/sigstore v1.9.5 and github.com/notaryproject/notation-core-go v1.3.0.
func TestMadeByOthers(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/made-by-others.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Digest, Key, Root string
		Cosign            struct{ Payload, Signature string }
		DSSE              json.RawMessage
		Notation          []byte
		NotationCOSE      []byte
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	id := must[Identity](t)(ParseIdentity("x509.subject: C=DE, ST=BE, O=Example"))
	rule := &Rule{Images: "*", Keys: []Key{must[Key](t)(ParseKey("k", []byte(f.Key)))}}
	notation := &Rule{Images: "*", Identities: []Identity{id}}
	notation.Roots, err = ParseRoots([]byte(f.Root))
	if err != nil {
		t.Fatal(err)
	}
	cosign := Layer{MediaType: MediaTypeSimpleSigning, Content: []byte(f.Cosign.Payload), Annotations: map[string]string{annotationSignature: f.Cosign.Signature}}
	sigstore := Layer{MediaType: "application/vnd.dev.sigstore.bundle.v0.3+json", Content: append(append([]byte(`{"verificationMaterial":{"publicKey":{"hint":""}},"dsseEnvelope":`), f.DSSE...), '}')}
	jws := Layer{MediaType: MediaTypeJWS, Content: f.Notation}
	const repo = "registry.example/team/app"
	for name, c := range map[string]struct {
		rule  *Rule
		layer Layer
	}{"cosign": {rule, cosign}, "sigstore bundle": {rule, sigstore}, "notation": {notation, jws}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantReason(t, check(c.rule, Target{repo, f.Digest}, c.layer), "")
			wantReason(t, check(c.rule, Target{repo, digestB}, c.layer), WrongDigest)
		})
	}
	wantReason(t, check(rule, Target{"registry.example/team/other", f.Digest}, cosign), Replayed)
	wantReason(t, check(notation, Target{repo, f.Digest}, Layer{MediaType: MediaTypeCOSE, Content: f.NotationCOSE}), Unsupported)
}
