package bundle_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// A digest becomes a path: each character that may not stand in one, at the
// first place, in the middle and at the last, in a text of the right length.
func TestValidDigest(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("0123456789abcdef", 4)
	if !bundle.ValidDigest("sha256:" + good) {
		t.Error("a digest is refused")
	}
	for _, c := range []byte{'/', '.', '\\', 'g', 'A', 'F', 'G', '`', ':', ' ', 0, 0x7f, '@', '-', '_', '\n', 0xff} {
		for _, at := range []int{0, 31, 63} {
			if d := "sha256:" + good[:at] + string([]byte{c}) + good[at+1:]; bundle.ValidDigest(d) {
				t.Errorf("%q is a digest", d)
			}
		}
	}
	for _, d := range []string{"", "sha256:", good, "sha512:" + good, "sha256-" + good, "SHA256:" + good, "sha256:" + good[1:], "sha256:" + good + "0", "sha256:" + strings.Repeat("../", 21) + "a",
		"sha512:" + good + good, "sha256:" + strings.Repeat("é", 32), ":" + good + "sha256"} {
		if bundle.ValidDigest(d) {
			t.Errorf("%q is a digest", d)
		}
	}
	if got := bundle.DigestOf([]byte("abc")); got != "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(got)
	}
}

// Each operand of a signature alone: whose it is, over what, of which type, and
// whether it verifies.
func TestASignatureCountsOnlyWhole(t *testing.T) {
	t.Parallel()
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny()))
	sign := func(change func(*bundle.Envelope)) []bundle.Envelope {
		e, err := bundle.Sign(bundletest.Key(1), h.Digest, h.Metadata.Name, h.Metadata.Version)
		if err != nil {
			t.Fatal(err)
		}
		change(&e)
		return []bundle.Envelope{e}
	}
	other, err := bundle.Sign(bundletest.Key(1), h.Digest, "other", h.Metadata.Version)
	if err != nil {
		t.Fatal(err)
	}
	twos, err := bundle.Sign(bundletest.Key(2), h.Digest, h.Metadata.Name, h.Metadata.Version)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		signatures []bundle.Envelope
		want       bool
	}{
		"as it was made":                 {sign(func(*bundle.Envelope) {}), true},
		"none":                           {nil, false},
		"an envelope without signatures": {sign(func(e *bundle.Envelope) { e.Signatures = nil }), false},
		"over another statement":         {[]bundle.Envelope{other}, false},
		"the right statement, the other's signature": {sign(func(e *bundle.Envelope) { e.Signatures = other.Signatures }), false},
		"another payload type":                       {sign(func(e *bundle.Envelope) { e.PayloadType += "x" }), false},
		"no payload type":                            {sign(func(e *bundle.Envelope) { e.PayloadType = "" }), false},
		"one bit of it":                              {sign(func(e *bundle.Envelope) { e.Signatures[0].Sig[0] ^= 1 }), false},
		"the last bit of it":                         {sign(func(e *bundle.Envelope) { e.Signatures[0].Sig[63] ^= 0x80 }), false},
		"an empty one":                               {sign(func(e *bundle.Envelope) { e.Signatures[0].Sig = nil }), false},
		"another key's, under the trusted key's ID":  {sign(func(e *bundle.Envelope) { e.Signatures[0].Sig = twos.Signatures[0].Sig }), false},
		"the trusted key's, under another's ID":      {sign(func(e *bundle.Envelope) { e.Signatures[0].KeyID = twos.Signatures[0].KeyID }), false},
		"another key's":                              {[]bundle.Envelope{twos}, false},
		"after another key's":                        {append([]bundle.Envelope{twos}, sign(func(*bundle.Envelope) {})...), true},
		"after one over another statement":           {append([]bundle.Envelope{other}, sign(func(*bundle.Envelope) {})...), true},
		"after a bad one of the same ID in an envelope": {sign(func(e *bundle.Envelope) {
			e.Signatures = append([]bundle.Signature{{KeyID: e.Signatures[0].KeyID, Sig: make([]byte, 64)}}, e.Signatures...)
		}), true},
	} {
		signed := *h
		signed.Signatures = tc.signatures
		got := signed.SignedBy(map[string]ed25519.PublicKey{"alice": public(1), "short": public(1)[:31], "none": nil})
		if want := map[bool]string{true: "alice", false: ""}[tc.want]; strings.Join(got, ",") != want {
			t.Errorf("%s: signed by %v", name, got)
		}
	}
}

// The signature entry takes one form and statements about this bundle only.
func TestTheSignatureEntry(t *testing.T) {
	t.Parallel()
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny()))
	e, err := bundle.Sign(bundletest.Key(1), h.Digest, h.Metadata.Name, h.Metadata.Version)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := bundle.EncodeSlot([]bundle.Envelope{e})
	if err != nil {
		t.Fatal(err)
	}
	wrongType := e
	wrongType.PayloadType = strings.Replace(bundle.PayloadType, "v1", "v2", 1)
	typed, err := bundle.EncodeSlot([]bundle.Envelope{wrongType})
	if err != nil {
		t.Fatal(err)
	}
	about, err := bundle.Sign(bundletest.Key(1), h.Digest, h.Metadata.Name, "9.9.9")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := bundle.EncodeSlot([]bundle.Envelope{about})
	if err != nil {
		t.Fatal(err)
	}
	both, err := bundle.EncodeSlot([]bundle.Envelope{e, about})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		content []byte
		says    string
	}{
		"as it was written":             {slot, ""},
		"not JSON":                      {bytes.Replace(slot, []byte("{"), []byte("<"), 1), "signature"},
		"a space at another place":      {bytes.Replace(slot, []byte(`{"signatures":[{`), []byte(`{ "signatures":[{`), 1)[:len(slot)], "form"},
		"padded with zeros":             {bytes.ReplaceAll(slot, []byte(" "), []byte{0}), "signature"},
		"an envelope of another type":   {typed, "type"},
		"a statement of another bundle": {foreign, "another bundle"},
		"the second is of another":      {both, "another bundle"},
	} {
		raw := bytes.Clone(h.Raw)
		at := bytes.Index(raw, []byte(`{"signatures":[]}`))
		if at < 0 {
			t.Fatal("no signature entry")
		}
		copy(raw[at:at+len(tc.content)], tc.content)
		_, err := bundle.ParseHeader(raw)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("a", 64)
	if _, err := bundle.Sign(bundletest.Key(1)[:63], digest, "n", "1.0.0"); err == nil || !strings.Contains(err.Error(), "private key") {
		t.Error(err)
	}
	if _, err := bundle.Sign(bundletest.Key(1), "sha256:"+strings.Repeat("../", 21)+"a", "n", "1.0.0"); err == nil || !strings.Contains(err.Error(), "not a digest") {
		t.Error(err)
	}
	if id := bundle.KeyID(public(1)); len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "" || id == bundle.KeyID(public(2)) {
		t.Errorf("key ID %q", id)
	}
}

// A signature over the right statement under another payload type does not count, and
// neither does a key that is not a valid key.
func TestASignatureOfAnotherType(t *testing.T) {
	t.Parallel()
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny()))
	e, err := bundle.Sign(bundletest.Key(1), h.Digest, h.Metadata.Name, h.Metadata.Version)
	if err != nil {
		t.Fatal(err)
	}
	short := public(1)[:31]
	e.Signatures = append(e.Signatures, bundle.Signature{KeyID: bundle.KeyID(short), Sig: e.Signatures[0].Sig})
	typed := e
	typed.PayloadType = "application/vnd.example+json"
	msg := fmt.Sprintf("DSSEv1 %d %s %d %s", len(typed.PayloadType), typed.PayloadType, len(typed.Payload), typed.Payload)
	typed.Signatures = []bundle.Signature{{KeyID: e.Signatures[0].KeyID, Sig: ed25519.Sign(bundletest.Key(1), []byte(msg))}}
	signed := *h
	signed.Signatures = []bundle.Envelope{typed}
	if by := signed.SignedBy(map[string]ed25519.PublicKey{"alice": public(1)}); len(by) > 0 {
		t.Errorf("signed by %v", by)
	}
	signed.Signatures = []bundle.Envelope{e}
	if by := signed.SignedBy(map[string]ed25519.PublicKey{"short": short}); len(by) > 0 {
		t.Errorf("signed by %v", by)
	}
}

// The names of the signers are in order, and a strict trust list changes nothing
// about a bundle without an approval.
func TestSignersInOrder(t *testing.T) {
	t.Parallel()
	h := parse(t, bundletest.Bytes(t, bundletest.Tiny(), bundletest.Key(1), bundletest.Key(2)))
	keys, want := map[string]ed25519.PublicKey{}, []string{}
	texts := map[string]string{}
	for c := 'a'; c <= 'z'; c++ {
		keys[string(c)], want = public(byte(1+c%2)), append(want, string(c))
		texts[string(c)] = publicPEM(t, byte(1+c%2))
	}
	if by := h.SignedBy(keys); !slices.Equal(by, want) {
		t.Errorf("%v", by)
	}
	if ok, by := bundle.Satisfies(h, model.Trust{Policies: []model.TrustRule{{Threshold: 2, Keys: texts}}}); !ok || !slices.Equal(by, want) {
		t.Errorf("%t, %v", ok, by)
	}
	strict := model.Trust{RequireSignatures: true}
	if d := bundle.Decide(h, []string{"sha256:" + strings.Repeat("0", 64)}, strict, ""); d.Allowed || d.Blocker.Reason != "DigestMismatch" {
		t.Errorf("%+v", d)
	}
	if d := bundle.Decide(h, nil, strict, ""); d.Allowed || d.Blocker.Reason != "BundleNotApproved" {
		t.Errorf("%+v", d)
	}
}
