package imageproof

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	now     = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	digestA = digestOf("a")
	digestB = digestOf("b")
)

func digestOf(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }

// check parses a layer and verifies it for one target.
func check(r *Rule, t Target, l Layer) Result {
	p, err := Parse(l)
	var broken *Problem
	if errors.As(err, &broken) {
		return r.Verify(t, nil, []*Problem{broken}, now)
	}
	return r.Verify(t, []*Proof{p}, nil, now)
}

func wantReason(t *testing.T, r Result, want Reason) {
	t.Helper()
	if r.Problem == nil && want == "" && r.Signer != "" {
		return
	}
	if r.Problem == nil || r.Problem.Reason != want || r.Signer != "" {
		t.Errorf("got signer %q, problem %v, want reason %q", r.Signer, r.Problem, want)
	}
}

func TestSignaturesByKeys(t *testing.T) {
	t.Parallel()
	const repo = "registry.example/team/app"
	target := Target{repo, digestA}
	for _, kind := range []string{"p256", "p384", "rsa", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, other := newSigner(t, kind), newSigner(t, kind)
			rule := &Rule{Images: "*", Keys: []Key{other.trusted("other"), s.trusted("release")}}
			stranger := &Rule{Images: "*", Keys: []Key{other.trusted("other")}}
			for name, l := range map[string]Layer{"cosign": s.cosign(repo+":v1", digestA), "sigstore": s.sigstore(predicateSign, digestA)} {
				r := check(rule, target, l)
				wantReason(t, r, "")
				if want := "cosign key release (" + s.trusted("x").ID + ")"; r.Signer != want {
					t.Errorf("%s: signer %q, want %q", name, r.Signer, want)
				}
				wantReason(t, check(stranger, target, l), WrongKey)
				wantReason(t, check(rule, Target{repo, digestB}, l), WrongDigest)
			}
			wantReason(t, check(rule, Target{"registry.example/team/other", digestA}, s.cosign(repo, digestA)), Replayed)
			copied := &Rule{Images: "*", Keys: rule.Keys, SignedAs: []string{"registry.example/team/*"}}
			wantReason(t, check(copied, Target{"mirror.example/app", digestA}, s.cosign(repo, digestA)), "")
			// An attestation by the right key does not sign the image.
			wantReason(t, check(rule, target, s.dsse("https://slsa.dev/provenance/v1", digestA)), Missing)
			wantReason(t, check(rule, target, s.sigstore("https://spdx.dev/Document/v2.3", digestA)), Missing)
		})
	}
}

func TestMessageSignatures(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]Reason{"p256": "", "rsa": "", "ed25519": WrongKey} {
		s := newSigner(t, kind)
		rule := &Rule{Images: "*", Keys: []Key{s.trusted("k")}}
		wantReason(t, check(rule, Target{"r.example/a", digestA}, s.sigstoreMessage([]byte("a"))), want)
	}
	s := newSigner(t, "p256")
	rule := &Rule{Images: "*", Keys: []Key{s.trusted("k")}}
	wantReason(t, check(rule, Target{"r.example/a", digestB}, s.sigstoreMessage([]byte("a"))), WrongDigest)
}

// TestEveryChangedByteIsRefused: no byte of a payload or signature can change.
func TestEveryChangedByteIsRefused(t *testing.T) {
	t.Parallel()
	const repo = "registry.example/app"
	s := newSigner(t, "p256")
	ca := newAuthority(t)
	leaf := ca.leaf(s, now.Add(time.Hour))
	rule := &Rule{Images: "*", Keys: []Key{s.trusted("k")}, Roots: ca.roots(), Identities: []Identity{{}}}
	for name, l := range map[string]Layer{"cosign": s.cosign(repo, digestA), "sigstore": s.sigstore(predicateSign, digestA), "notation": s.notation(digestA, nil, leaf)} {
		wantReason(t, check(rule, Target{repo, digestA}, l), "")
		accepted := 0
		for i := range l.Content {
			c := l
			c.Content = append([]byte{}, l.Content...)
			c.Content[i] ^= 1
			if r := check(rule, Target{repo, digestA}, c); r.Problem == nil {
				accepted++
			}
		}
		// Members that nothing signs may change: media type, hint, key ID and their names. So may the
		// unused bits of the last character of a certificate in base64: the certificate is the same.
		if limit := map[string]int{"cosign": 0, "sigstore": 140, "notation": 1}[name]; accepted > limit {
			t.Errorf("%s: %d changed bytes were accepted, want at most %d", name, accepted, limit)
		}
	}
}

func TestNotation(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"rsa", "p256"} {
		s, ca, otherCA := newSigner(t, kind), newAuthority(t), newAuthority(t)
		leaf := ca.leaf(s, now.Add(time.Hour))
		target := Target{"registry.example/app", digestA}
		id := must[Identity](t)(ParseIdentity("x509.subject: C=DE, O=Example"))
		rule := &Rule{Images: "*", Roots: ca.roots(), Identities: []Identity{id}}
		wantReason(t, check(rule, target, s.notation(digestA, nil, leaf, ca.cert)), "")
		wantReason(t, check(rule, target, s.notation(digestA, nil, leaf)), "")
		wantReason(t, check(rule, target, s.notation(digestB, nil, leaf)), WrongDigest)
		wantReason(t, check(rule, target, newSigner(t, kind).notation(digestA, nil, leaf)), WrongKey)
		wantReason(t, check(rule, target, s.notation(digestA, nil, ca.leaf(s, now.Add(-time.Hour)))), Expired)
		expiry := func(at time.Time) func(map[string]any) {
			return func(h map[string]any) {
				h[headerExpiry], h["crit"] = at.Format(time.RFC3339), []string{headerScheme, headerExpiry}
			}
		}
		wantReason(t, check(rule, target, s.notation(digestA, expiry(now.Add(-time.Second)), leaf)), Expired)
		wantReason(t, check(rule, target, s.notation(digestA, expiry(now.Add(time.Hour)), leaf)), "")
		wantReason(t, check(&Rule{Images: "*", Roots: otherCA.roots(), Identities: []Identity{{}}}, target, s.notation(digestA, nil, leaf)), WrongKey)
		stranger := must[Identity](t)(ParseIdentity("x509.subject: O=Other"))
		wantReason(t, check(&Rule{Images: "*", Roots: ca.roots(), Identities: []Identity{stranger}}, target, s.notation(digestA, nil, leaf)), WrongIdentity)
		// The root itself is no certificate for code.
		wantReason(t, check(rule, target, ca.notation(digestA, nil, ca.cert)), WrongKey)
		for _, edit := range []func(map[string]any){
			func(h map[string]any) { h["crit"] = []string{headerScheme, "io.cncf.notary.verificationPlugin"} },
			func(h map[string]any) { h[headerScheme] = "notary.x509.signingAuthority" },
			func(h map[string]any) { h["alg"] = "none" },
			func(h map[string]any) { h["cty"] = "text/plain" },
		} {
			wantReason(t, check(rule, target, s.notation(digestA, edit, leaf)), Unsupported)
		}
		wantReason(t, check(rule, target, s.notation(digestA, func(h map[string]any) { h["alg"] = "PS512" }, leaf)), WrongKey)
		wantReason(t, check(&Rule{Images: "*", Keys: []Key{s.trusted("k")}}, target, s.notation(digestA, nil, leaf)), WrongKey)
		wantReason(t, check(rule, target, Layer{MediaType: MediaTypeCOSE, Content: []byte{0xd2}}), Unsupported)
	}
}

func TestKeylessIsUnsupported(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "p256")
	rule := &Rule{Images: "*", Keys: []Key{s.trusted("k")}}
	l := s.cosign("r.example/a", digestA)
	l.Annotations[annotationCertificate] = "-----BEGIN CERTIFICATE-----"
	wantReason(t, check(rule, Target{"r.example/a", digestA}, l), Unsupported)
	b := s.sigstore(predicateSign, digestA)
	b.Content = []byte(strings.Replace(string(b.Content), `"publicKey":{"hint":"x"}`, `"certificate":{"rawBytes":"AA=="}`, 1))
	wantReason(t, check(rule, Target{"r.example/a", digestA}, b), Unsupported)
}

func TestHostileSizes(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "p256")
	rule := &Rule{Images: "*", Keys: []Key{s.trusted("k")}}
	big := s.cosign("r.example/a", digestA)
	big.Content = append(big.Content, make([]byte, MaxSignature)...)
	wantReason(t, check(rule, Target{"r.example/a", digestA}, big), Damaged)
	deep := Layer{MediaType: MediaTypeDSSE, Content: []byte(strings.Repeat("[", MaxDocument))}
	wantReason(t, check(rule, Target{"r.example/a", digestA}, deep), Damaged)
	many := Layer{MediaType: MediaTypeDSSE, Content: []byte(`{"payloadType":"` + payloadInToto + `","signatures":[` + strings.Repeat(`{"sig":""},`, maxSignatures) + `{"sig":""}]}`)}
	wantReason(t, check(rule, Target{"r.example/a", digestA}, many), Damaged)
	if _, err := ParseManifest([]byte(`{"layers":[` + strings.Repeat(`{},`, maxLayers) + `{}]}`)); err == nil {
		t.Error("a manifest with too many layers was accepted")
	}
	if _, err := ParseManifest(fmt.Appendf(nil, `{"config":{"digest":%q,"size":2},"layers":[{"digest":%q,"size":%d}]}`, digestA, digestB, MaxArtifact)); err == nil {
		t.Error("a manifest with too large documents was accepted")
	}
}

func FuzzParse(f *testing.F) {
	s, ca := newSigner(f, "p256"), newAuthority(f)
	for _, l := range []Layer{s.cosign("r.example/a", digestA), s.dsse(predicateSign, digestA), s.sigstore(predicateSign, digestA), s.sigstoreMessage([]byte("a")), s.notation(digestA, nil, ca.leaf(s, now.Add(time.Hour)))} {
		f.Add(l.MediaType, l.Content, l.Annotations[annotationSignature])
	}
	// The key of this rule signed nothing, so no input can be valid.
	rule := &Rule{Images: "*", Keys: []Key{newSigner(f, "p256").trusted("k")}, Roots: newAuthority(f).roots(), Identities: []Identity{{}}}
	f.Fuzz(func(t *testing.T, mediaType string, content []byte, sig string) {
		l := Layer{MediaType: mediaType, Content: content, Annotations: map[string]string{annotationSignature: sig}}
		p, err := Parse(l)
		if (p == nil) == (err == nil) {
			t.Fatalf("proof %v, error %v", p, err)
		}
		if r := check(rule, Target{"r.example/a", digestA}, l); r.Problem == nil {
			t.Fatalf("accepted: %+v", r)
		}
	})
}
