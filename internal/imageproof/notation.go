package imageproof

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

const (
	headerScheme       = "io.cncf.notary.signingScheme"
	headerExpiry       = "io.cncf.notary.expiry"
	schemeX509         = "notary.x509"
	contentTypePayload = "application/vnd.cncf.notary.payload.v1+json"
)

// algorithms are those of the specification, with the key that each needs.
var algorithms = map[string]struct {
	hash crypto.Hash
	bits int // of the RSA key or the curve
	rsa  bool
}{
	"PS256": {crypto.SHA256, 2048, true}, "PS384": {crypto.SHA384, 3072, true}, "PS512": {crypto.SHA512, 4096, true},
	"ES256": {crypto.SHA256, 256, false}, "ES384": {crypto.SHA384, 384, false}, "ES512": {crypto.SHA512, 521, false},
}

// protected is the protected header of a JWS envelope of notation.
type protected struct {
	Algorithm   string   `json:"alg"`
	ContentType string   `json:"cty"`
	Critical    []string `json:"crit"`
	Scheme      string   `json:"io.cncf.notary.signingScheme"`
	Expiry      string   `json:"io.cncf.notary.expiry"`
}

// parseJWS reads a JWS envelope of notation in its JSON serialization.
func parseJWS(content []byte) (*Proof, error) {
	var e struct {
		Payload   string `json:"payload"`
		Protected string `json:"protected"`
		Signature string `json:"signature"`
		Header    struct {
			Chain [][]byte `json:"x5c"`
		} `json:"header"`
	}
	if err := json.Unmarshal(content, &e); err != nil {
		return nil, problemf(Damaged, "the JWS envelope is not JSON: %s", err)
	}
	p := &Proof{Format: FormatNotation, Kind: KindSignature, message: []byte(e.Protected + "." + e.Payload)}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(e.Signature)
	if err != nil || len(sig) == 0 {
		return nil, problemf(Damaged, "the JWS envelope has no signature in base64url")
	}
	p.signatures = [][]byte{sig}
	if err := p.readProtected(e.Protected); err != nil {
		return nil, err
	}
	if err := p.readTarget(e.Payload); err != nil {
		return nil, err
	}
	return p, p.readChain(e.Header.Chain)
}

func (p *Proof) readProtected(text string) error {
	var h protected
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &h)
	}
	if err != nil {
		return problemf(Damaged, "the protected header of the JWS envelope cannot be read: %s", err)
	}
	_, known := algorithms[h.Algorithm]
	switch {
	case !known:
		return problemf(Unsupported, "the JWS envelope has algorithm %.40q", h.Algorithm)
	case h.ContentType != contentTypePayload:
		return problemf(Unsupported, "the JWS envelope has content type %.80q", h.ContentType)
	case h.Scheme != schemeX509:
		return problemf(Unsupported, "the JWS envelope has signing scheme %.60q, not %s", h.Scheme, schemeX509)
	}
	for _, c := range h.Critical {
		if c != headerScheme && c != headerExpiry {
			return problemf(Unsupported, "the JWS envelope has the critical header %.60q", c)
		}
	}
	p.jws = h.Algorithm
	if h.Expiry == "" {
		return nil
	}
	if p.expiry, err = time.Parse(time.RFC3339, h.Expiry); err != nil {
		return problemf(Damaged, "the JWS envelope has the expiry %.40q", h.Expiry)
	}
	return nil
}

func (p *Proof) readTarget(text string) error {
	var t struct {
		Target struct {
			Digest string `json:"digest"`
		} `json:"targetArtifact"`
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || !ValidDigest(t.Target.Digest) {
		return problemf(Damaged, "the payload of the JWS envelope names no SHA-256 digest")
	}
	p.Claims = []Claim{{Digest: t.Target.Digest}}
	return nil
}

func (p *Proof) readChain(chain [][]byte) error {
	if len(chain) == 0 || len(chain) > maxChain {
		return problemf(Damaged, "the JWS envelope has %d certificates, want 1 to %d", len(chain), maxChain)
	}
	for i, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return problemf(Damaged, "certificate %d of the JWS envelope cannot be read: %s", i+1, err)
		}
		p.chain = append(p.chain, c)
	}
	return nil
}

// signedByLeaf checks the signature with the key of the first certificate.
func (p *Proof) signedByLeaf() bool {
	a := algorithms[p.jws]
	sig := p.signatures[0]
	h := a.hash.New()
	h.Write(p.message)
	sum := h.Sum(nil)
	switch pub := p.chain[0].PublicKey.(type) {
	case *rsa.PublicKey:
		return a.rsa && pub.N.BitLen() == a.bits && rsa.VerifyPSS(pub, a.hash, sum, sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
	case *ecdsa.PublicKey:
		half := (a.bits + 7) / 8
		if a.rsa || pub.Curve.Params().BitSize != a.bits || len(sig) != 2*half {
			return false
		}
		return ecdsa.Verify(pub, sum, new(big.Int).SetBytes(sig[:half]), new(big.Int).SetBytes(sig[half:]))
	}
	return false
}

// verifyChain returns the subject of the signer, or why the rule does not trust it at now.
func (r *Rule) verifyChain(p *Proof, now time.Time) (string, *Problem) {
	leaf := p.chain[0]
	subject := leaf.Subject.String()
	if !p.signedByLeaf() {
		return "", problemf(WrongKey, "the signature is not that of its certificate %s", subject)
	}
	roots, middle := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range r.Roots {
		roots.AddCert(c)
	}
	for _, c := range p.chain[1:] {
		middle.AddCert(c)
	}
	o := x509.VerifyOptions{Roots: roots, Intermediates: middle, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}}
	if _, err := leaf.Verify(o); err != nil {
		return "", chainProblem(subject, err)
	}
	switch {
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageCodeSigning):
		return "", problemf(WrongKey, "certificate %s is not for digital signatures of code", subject)
	case !p.expiry.IsZero() && now.After(p.expiry):
		return "", problemf(Expired, "the signature of %s was valid to %s", subject, p.expiry.Format(time.RFC3339))
	case !slices.ContainsFunc(r.Identities, func(i Identity) bool { return i.matches(leaf.Subject) }):
		return "", problemf(WrongIdentity, "certificate %s has none of the identities of the rule", subject)
	}
	return "notation certificate " + subject, nil
}

// chainProblem explains why a chain does not lead to a root.
func chainProblem(subject string, err error) *Problem {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		c := invalid.Cert
		return problemf(Expired, "certificate %s is valid from %s to %s", c.Subject, c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339))
	}
	return problemf(WrongKey, "no root of the policy issued certificate %s for code signing: %s", subject, err)
}

// ParseRoots reads certificates in PEM.
func ParseRoots(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a PEM block %.40q: want CERTIFICATE", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("it has no certificate in PEM: want a block BEGIN CERTIFICATE")
	}
	return out, nil
}

// Identity is a set of attributes that the subject of a certificate must have; an empty one
// matches every subject.
type Identity map[string]string

// attributes are the names of attributes that an identity may have, with their object identifiers.
var attributes = map[string]string{
	"C": "2.5.4.6", "ST": "2.5.4.8", "L": "2.5.4.7", "O": "2.5.4.10", "OU": "2.5.4.11", "CN": "2.5.4.3", "STREET": "2.5.4.9", "POSTALCODE": "2.5.4.17", "SERIALNUMBER": "2.5.4.5",
}

// ParseIdentity reads "x509.subject: C=DE, O=Example, CN=release", or "*" for any certificate of the roots.
func ParseIdentity(s string) (Identity, error) {
	if s == "*" {
		return Identity{}, nil
	}
	rest, ok := strings.CutPrefix(s, "x509.subject:")
	if !ok {
		return nil, fmt.Errorf("identity %.80q: write x509.subject: C=..., O=..., CN=..., or * for every certificate of the roots", s)
	}
	out := Identity{}
	for _, part := range splitEscaped(rest) {
		name, value, found := strings.Cut(part, "=")
		name, value = strings.ToUpper(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !found || value == "" || attributes[name] == "" {
			return nil, fmt.Errorf("identity %.80q: %.40q is no attribute: use C, ST, L, O, OU or CN, each with =VALUE", s, part)
		}
		if out[name] != "" {
			return nil, fmt.Errorf("identity %.80q names %s twice", s, name)
		}
		out[name] = value
	}
	return out, nil
}

// splitEscaped splits at commas; a backslash makes the next character part of the value.
func splitEscaped(s string) []string {
	var parts []string
	var b strings.Builder
	escaped := false
	for _, c := range s {
		switch {
		case !escaped && c == '\\':
			escaped = true
			continue
		case !escaped && c == ',':
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteRune(c)
		}
		escaped = false
	}
	return append(parts, b.String())
}

func (i Identity) matches(subject pkix.Name) bool {
	for name, want := range i {
		has := slices.ContainsFunc(subject.Names, func(a pkix.AttributeTypeAndValue) bool {
			v, ok := a.Value.(string)
			return ok && a.Type.String() == attributes[name] && v == want
		})
		if !has {
			return false
		}
	}
	return true
}
