package imageproof

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"
)

// signer makes signatures in the formats of cosign and notation.
type signer struct {
	t   testing.TB
	key crypto.Signer
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newSigner(t testing.TB, kind string) signer {
	t.Helper()
	var k crypto.Signer
	var err error
	switch kind {
	case "p256":
		k, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "p384":
		k, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "rsa":
		k, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ed25519":
		_, k, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer{t, k}
}

func (s signer) pem() []byte {
	der := must[[]byte](s.t)(x509.MarshalPKIXPublicKey(s.key.Public()))
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (s signer) trusted(name string) Key { return must[Key](s.t)(ParseKey(name, s.pem())) }

// sign signs as cosign does: SHA-256, PKCS #1 v1.5 for RSA, the message itself for Ed25519.
func (s signer) sign(message []byte) []byte {
	if _, ok := s.key.(ed25519.PrivateKey); ok {
		return must[[]byte](s.t)(s.key.Sign(rand.Reader, message, crypto.Hash(0)))
	}
	sum := sha256.Sum256(message)
	return must[[]byte](s.t)(s.key.Sign(rand.Reader, sum[:], crypto.SHA256))
}

func (s signer) cosign(reference, digest string) Layer {
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, reference, digest)
	return Layer{MediaType: MediaTypeSimpleSigning, Content: payload, Annotations: map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(s.sign(payload))}}
}

func (s signer) envelope(predicate, digest string) map[string]any {
	statement := fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"","digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`, digest[len("sha256:"):], predicate)
	pae := append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadInToto), payloadInToto, len(statement)), statement...)
	return map[string]any{"payload": statement, "payloadType": payloadInToto, "signatures": []any{map[string]any{"sig": s.sign(pae), "keyid": ""}}}
}

func (s signer) dsse(predicate, digest string) Layer {
	return Layer{MediaType: MediaTypeDSSE, Content: must[[]byte](s.t)(json.Marshal(s.envelope(predicate, digest)))}
}

func (s signer) sigstore(predicate, digest string) Layer {
	const mediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	return Layer{MediaType: mediaType, Content: must[[]byte](s.t)(json.Marshal(map[string]any{
		"mediaType": mediaType, "verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}}, "dsseEnvelope": s.envelope(predicate, digest)}))}
}

func (s signer) sigstoreMessage(manifest []byte) Layer {
	const mediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	sum := sha256.Sum256(manifest)
	return Layer{MediaType: mediaType, Content: must[[]byte](s.t)(json.Marshal(map[string]any{
		"mediaType": mediaType, "verificationMaterial": map[string]any{"publicKey": map[string]any{}},
		"messageSignature": map[string]any{"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": sum[:]}, "signature": s.sign(manifest)}}))}
}

// authority issues certificates for notation.
type authority struct {
	signer
	cert *x509.Certificate
}

func newAuthority(t testing.TB) authority {
	a := authority{signer: newSigner(t, "p256")}
	a.cert = a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}, a.signer, nil)
	return a
}

func (a authority) issue(c *x509.Certificate, to signer, parent *x509.Certificate) *x509.Certificate {
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if parent == nil {
		parent = c
	}
	der := must[[]byte](a.t)(x509.CreateCertificate(rand.Reader, c, parent, to.key.Public(), a.key))
	return must[*x509.Certificate](a.t)(x509.ParseCertificate(der))
}

// leaf is a certificate for code signing.
func (a authority) leaf(to signer, notAfter time.Time) *x509.Certificate {
	return a.issue(&x509.Certificate{Subject: pkix.Name{Country: []string{"DE"}, Organization: []string{"Example"}, CommonName: "release"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, NotBefore: time.Unix(0, 0), NotAfter: notAfter}, to, a.cert)
}

// notation makes a JWS envelope; edit may change its protected header.
func (s signer) notation(digest string, edit func(map[string]any), chain ...*x509.Certificate) Layer {
	h := map[string]any{"alg": "PS256", "cty": contentTypePayload, "crit": []string{headerScheme}, headerScheme: schemeX509, "io.cncf.notary.signingTime": "2026-11-20T10:00:00Z"}
	if _, ok := s.key.(*ecdsa.PrivateKey); ok {
		h["alg"] = "ES256"
	}
	if edit != nil {
		edit(h)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	head := b64(must[[]byte](s.t)(json.Marshal(h)))
	payload := b64(fmt.Appendf(nil, `{"targetArtifact":{"mediaType":"application/vnd.oci.image.index.v1+json","digest":%q,"size":10}}`, digest))
	sum := sha256.Sum256([]byte(head + "." + payload))
	var sig []byte
	switch k := s.key.(type) {
	case *rsa.PrivateKey:
		sig = must[[]byte](s.t)(rsa.SignPSS(rand.Reader, k, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}))
	case *ecdsa.PrivateKey:
		r, v, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			s.t.Fatal(err)
		}
		sig = append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...)
	}
	var x5c [][]byte
	for _, c := range chain {
		x5c = append(x5c, c.Raw)
	}
	return Layer{MediaType: MediaTypeJWS, Content: must[[]byte](s.t)(json.Marshal(map[string]any{"payload": payload, "protected": head, "signature": b64(sig), "header": map[string]any{"x5c": x5c}}))}
}

func (a authority) roots() []*x509.Certificate { return []*x509.Certificate{a.cert} }
