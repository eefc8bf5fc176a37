package bundle_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func public(seed byte) ed25519.PublicKey { return bundletest.Key(seed).Public().(ed25519.PublicKey) }

func publicPEM(t *testing.T, seed byte) string {
	t.Helper()
	b, err := bundle.PublicKeyPEM(public(seed))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func rule(t *testing.T, threshold int, keys map[string]byte) model.TrustRule {
	t.Helper()
	r := model.TrustRule{Name: "rule", Threshold: threshold, Keys: map[string]string{}}
	for name, seed := range keys {
		r.Keys[name] = publicPEM(t, seed)
	}
	return r
}
func TestDecide(t *testing.T) {
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1), bundletest.Key(2)))
	unsigned := parse(t, bundletest.Bytes(t, bundletest.Tiny()))
	other := "sha256:" + strings.Repeat("0", 64)
	trust := func(rules ...model.TrustRule) model.Trust { return model.Trust{Policies: rules} }
	strict := func(rules ...model.TrustRule) model.Trust {
		return model.Trust{Policies: rules, RequireSignatures: true}
	}
	found := fmt.Sprintf("tiny 1.2.3 (%s)", h.Digest)
	for sentence, c := range map[string]struct {
		h        *bundle.Header
		approved []string
		trust    model.Trust
		refit    string
		allowed  string
		signedBy []string
		reason   string
		says     []string
	}{
		"an approved digest allows an unsigned bundle":                {h: unsigned, approved: []string{other, h.Digest}, allowed: bundle.ByDigest},
		"a trusted key allows it":                                     {h: h, trust: trust(rule(t, 1, map[string]byte{"alice": 1})), allowed: bundle.ByKey, signedBy: []string{"alice"}},
		"a threshold of 0 means 1":                                    {h: unsigned, trust: trust(rule(t, 0, map[string]byte{"alice": 1})), reason: v1alpha1.ReasonBundleNotApproved, says: []string{found, "not signed"}},
		"two of two keys":                                             {h: h, trust: trust(rule(t, 2, map[string]byte{"alice": 1, "bob": 2})), allowed: bundle.ByKey, signedBy: []string{"alice", "bob"}},
		"one key under two names counts once":                         {h: h, trust: trust(rule(t, 2, map[string]byte{"alice": 1, "alias": 1})), signedBy: []string{"alias", "alice"}, reason: v1alpha1.ReasonBundleNotApproved, says: []string{"not enough"}},
		"keys of two rules do not add up":                             {h: h, trust: trust(rule(t, 2, map[string]byte{"alice": 1, "carol": 3}), rule(t, 2, map[string]byte{"bob": 2, "dave": 4})), signedBy: []string{"alice", "bob"}, reason: v1alpha1.ReasonBundleNotApproved},
		"no approval":                                                 {h: unsigned, reason: v1alpha1.ReasonBundleNotApproved, says: []string{found, "no Bundle or TrustPolicy approves"}},
		"the wrong stick names what was found and expected":           {h: unsigned, approved: []string{other}, reason: v1alpha1.ReasonDigestMismatch, says: []string{"found bundle " + found, "expected " + other}},
		"a stranger's signature names its key":                        {h: h, trust: trust(rule(t, 1, map[string]byte{"eve": 9})), reason: v1alpha1.ReasonBundleNotApproved, says: []string{bundle.KeyID(public(1)), "no trusted key"}},
		"a revoked digest is refused although it is approved":         {h: h, approved: []string{h.Digest}, trust: model.Trust{Policies: []model.TrustRule{rule(t, 1, map[string]byte{"alice": 1})}, RevokedDigests: []string{h.Digest}}, signedBy: []string{"alice"}, reason: v1alpha1.ReasonBundleRevoked, says: []string{found}},
		"a digest is not enough where signatures are required":        {h: h, approved: []string{h.Digest}, trust: strict(rule(t, 1, map[string]byte{"eve": 9})), reason: v1alpha1.ReasonSignaturesRequired, says: []string{found, "requires signatures", "no trusted key"}},
		"one signature of two is not enough where they are required":  {h: h, approved: []string{h.Digest}, trust: strict(rule(t, 2, map[string]byte{"alice": 1, "eve": 9})), signedBy: []string{"alice"}, reason: v1alpha1.ReasonSignaturesRequired, says: []string{"not enough"}},
		"enough signatures are enough where they are required":        {h: h, approved: []string{h.Digest}, trust: strict(rule(t, 2, map[string]byte{"alice": 1, "bob": 2})), allowed: bundle.ByDigest, signedBy: []string{"alice", "bob"}},
		"signatures need no approved digest where they are required":  {h: h, trust: strict(rule(t, 1, map[string]byte{"alice": 1})), allowed: bundle.ByKey, signedBy: []string{"alice"}},
		"an unsigned bundle is refused where signatures are required": {h: unsigned, approved: []string{unsigned.Digest}, trust: strict(rule(t, 1, map[string]byte{"alice": 1})), reason: v1alpha1.ReasonSignaturesRequired, says: []string{"not signed"}},
		"a bundle for a later refit is refused":                       {h: h, approved: []string{h.Digest}, refit: "0.0.9", reason: v1alpha1.ReasonBundleTooNew, says: []string{found, "0.1.0", "0.0.9"}},
		"a development build reads what its release will":             {h: h, approved: []string{h.Digest}, refit: "0.1.0-dev", allowed: bundle.ByDigest},
		"a key that cannot be read never counts":                      {h: h, trust: trust(model.TrustRule{Threshold: 1, Keys: map[string]string{"x": "garbage"}}), reason: v1alpha1.ReasonBundleNotApproved},
		"an approved digest says who signed all the same":             {h: h, approved: []string{h.Digest}, trust: trust(rule(t, 1, map[string]byte{"bob": 2})), allowed: bundle.ByDigest, signedBy: []string{"bob"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := bundle.Decide(c.h, c.approved, c.trust, c.refit)
			if d.Allowed != (c.allowed != "") || d.By != c.allowed || d.Blocker.Reason != c.reason {
				t.Fatalf("got %+v", d)
			}
			if diff := cmp.Diff(c.signedBy, d.SignedBy); diff != "" {
				t.Errorf("signed by: %s", diff)
			}
			for _, s := range c.says {
				if !strings.Contains(d.Blocker.Message, s) {
					t.Errorf("%q does not say %q", d.Blocker.Message, s)
				}
			}
			if !d.Allowed && (d.Blocker.Fix == "" || d.Blocker.Waiting) {
				t.Errorf("an administrator must act, and the blocker has no fix: %+v", d.Blocker)
			}
		})
	}
}

func TestASignatureIsOverDigestNameAndVersion(t *testing.T) {
	p := bundletest.Make(t, bundletest.Tiny())
	h, err := bundle.ParseHeader(p.Header(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, sign := range map[string][3]string{
		"another digest":  {"sha256:" + strings.Repeat("1", 64), "tiny", "1.2.3"},
		"another name":    {h.Digest, "other", "1.2.3"},
		"another version": {h.Digest, "tiny", "1.2.4"},
	} {
		env, err := bundle.Sign(bundletest.Key(1), sign[0], sign[1], sign[2])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WithSignature(env); err == nil {
			t.Errorf("a signature over %s was accepted into the slot", name)
		}
	}
}

// The pre-authentication encoding is that of the DSSE specification, so that
// other tools can check the signatures.
func TestSignaturesAreDSSE(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	env, err := bundle.Sign(bundletest.Key(1), digest, "n", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	payload := `{"digest":"` + digest + `","name":"n","version":"1.0.0"}`
	msg := fmt.Sprintf("DSSEv1 36 application/vnd.refit.bundle.v1+json %d %s", len(payload), payload)
	if string(env.Payload) != payload || env.PayloadType != "application/vnd.refit.bundle.v1+json" {
		t.Fatalf("envelope: %+v", env)
	}
	if !ed25519.Verify(public(1), []byte(msg), env.Signatures[0].Sig) {
		t.Fatal("the signature is not over DSSE's pre-authentication encoding")
	}
	again, err := bundle.Sign(bundletest.Key(1), digest, "n", "1.0.0")
	if err != nil || cmp.Diff(env, again) != "" {
		t.Fatal("signing is not deterministic")
	}
}

func TestOrderOfSigningDoesNotMatter(t *testing.T) {
	a := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1), bundletest.Key(2), bundletest.Key(1))
	b := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(2), bundletest.Key(1))
	if string(a) != string(b) {
		t.Error("the order of signing changes the bundle")
	}
}

func TestTooManySignaturesAreRefused(t *testing.T) {
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny()))
	var err error
	n := 0
	for ; err == nil && n < 250; n++ {
		var env bundle.Envelope
		if env, err = bundle.Sign(bundletest.Key(byte(n)), h.Digest, "tiny", "1.2.3"); err != nil {
			t.Fatal(err)
		}
		var next *bundle.Header
		if next, err = h.WithSignature(env); err == nil {
			h = next
		}
	}
	if n < 32 || err == nil || !strings.Contains(err.Error(), "room") {
		t.Fatalf("after %d signatures: %v", n, err)
	}
}

func TestKeysInPEM(t *testing.T) {
	priv, err := bundle.PrivateKeyPEM(bundletest.Key(1))
	if err != nil {
		t.Fatal(err)
	}
	got, err := bundle.ParsePrivateKeyPEM(priv)
	if err != nil || !got.Equal(bundletest.Key(1)) {
		t.Fatalf("private key: %v", err)
	}
	pub, err := bundle.ParsePublicKeyPEM([]byte(publicPEM(t, 1)))
	if err != nil || !pub.Equal(public(1)) {
		t.Fatalf("public key: %v", err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&ec.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"nothing":                        nil,
		"a private key for a public one": priv,
		"an elliptic curve key":          pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"damaged":                        pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der[5:]}),
	} {
		if _, err := bundle.ParsePublicKeyPEM(text); err == nil {
			t.Errorf("%s was accepted as public key", name)
		}
	}
	if _, err := bundle.ParsePrivateKeyPEM([]byte(publicPEM(t, 1))); err == nil || !strings.Contains(err.Error(), "expected") {
		t.Errorf("a public key was accepted as private key: %v", err)
	}
}

// A key id has the one form that KeyID gives: anything else is words of a stranger
// that people would read as refit's own.
func TestKeyIDsHaveOneForm(t *testing.T) {
	t.Parallel()
	file := bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1))
	good := parse(t, file).Signatures
	own := good[0].Signatures[0].KeyID
	for _, id := range []string{"", "a", own[:15], own + "0", strings.ToUpper(own), "evil\x1b[2J\nVerified: yes", own[:15] + "g", own[:14] + "\u202e", "sha256:" + own} {
		sigs := []bundle.Envelope{{PayloadType: good[0].PayloadType, Payload: good[0].Payload, Signatures: []bundle.Signature{{KeyID: id, Sig: good[0].Signatures[0].Sig}}}}
		slot, err := bundle.EncodeSlot(sigs)
		if err != nil {
			t.Fatal(err)
		}
		raw := slices.Clone(file)
		copy(raw[parse(t, file).SlotOffset():], slot)
		_, err = bundle.ParseHeader(raw[:len(parse(t, file).Raw)])
		if err == nil || !strings.Contains(err.Error(), "16 lower-case hexadecimal digits") || strings.ContainsAny(err.Error(), "\x1b\n\u202e") {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := bundle.ParseHeader(file[:len(parse(t, file).Raw)]); err != nil {
		t.Error(err)
	}
}
