package imageproof

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

const (
	payloadInToto = "application/vnd.in-toto+json"
	// predicateSign is the statement by which cosign signs an image itself.
	predicateSign = "https://sigstore.dev/cosign/sign/v1"
)

// envelope is a DSSE envelope.
type envelope struct {
	Payload     string `json:"payload"`
	PayloadType string `json:"payloadType"`
	Signatures  []struct {
		Sig string `json:"sig"`
	} `json:"signatures"`
}

func parseDSSE(format Format, content []byte) (*Proof, error) {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return nil, problemf(Damaged, "the DSSE envelope is not JSON: %s", err)
	}
	return e.proof(format)
}

func (e *envelope) proof(format Format) (*Proof, error) {
	if e.PayloadType != payloadInToto {
		return nil, problemf(Unsupported, "the DSSE envelope has payload type %.80q, not %s", e.PayloadType, payloadInToto)
	}
	if len(e.Signatures) == 0 || len(e.Signatures) > maxSignatures {
		return nil, problemf(Damaged, "the DSSE envelope has %d signatures, want 1 to %d", len(e.Signatures), maxSignatures)
	}
	payload, err := decode64(e.Payload)
	if err != nil {
		return nil, problemf(Damaged, "the payload of the DSSE envelope is not base64")
	}
	p, err := parseStatement(payload)
	if err != nil {
		return nil, err
	}
	p.Format = format
	p.message = append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(e.PayloadType), e.PayloadType, len(payload)), payload...)
	for _, s := range e.Signatures {
		sig, err := decode64(s.Sig)
		if err != nil || len(sig) == 0 {
			return nil, problemf(Damaged, "a signature of the DSSE envelope is not base64")
		}
		p.signatures = append(p.signatures, sig)
	}
	return p, nil
}

// decode64 accepts both alphabets, as DSSE does.
func decode64(s string) ([]byte, error) {
	if b, err := base64.StdEncoding.DecodeString(s); err == nil {
		return b, nil
	}
	return base64.URLEncoding.DecodeString(s)
}

// parseStatement reads an in-toto statement: what it is about, and its type.
func parseStatement(payload []byte) (*Proof, error) {
	var s struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string            `json:"name"`
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		PredicateType string `json:"predicateType"`
	}
	if err := json.Unmarshal(payload, &s); err != nil {
		return nil, problemf(Damaged, "the in-toto statement is not JSON: %s", err)
	}
	if len(s.Subject) > maxSubjects {
		return nil, problemf(Damaged, "the in-toto statement has %d subjects, at most %d are read", len(s.Subject), maxSubjects)
	}
	p := &Proof{Kind: KindAttestation, Predicate: s.PredicateType}
	if k := kindOf(s.PredicateType); k != KindOther {
		p.Kind = k
	}
	for _, sub := range s.Subject {
		// The name of a subject is free text, so only the digest binds the statement to an image.
		if d := "sha256:" + sub.Digest["sha256"]; ValidDigest(d) {
			p.Claims = append(p.Claims, Claim{Digest: d})
		}
	}
	if len(p.Claims) == 0 {
		return nil, problemf(Damaged, "the in-toto statement names no SHA-256 digest")
	}
	if p.Kind == KindSignature && s.PredicateType != predicateSign {
		p.Kind = KindAttestation
	}
	return p, nil
}

// parseSigstore reads a bundle of sigstore that a key signed.
func parseSigstore(content []byte) (*Proof, error) {
	var b struct {
		Material struct {
			PublicKey   *struct{}       `json:"publicKey"`
			Certificate json.RawMessage `json:"certificate"`
			Chain       json.RawMessage `json:"x509CertificateChain"`
		} `json:"verificationMaterial"`
		DSSE    *envelope `json:"dsseEnvelope"`
		Message *struct {
			Digest struct {
				Algorithm string `json:"algorithm"`
				Digest    []byte `json:"digest"`
			} `json:"messageDigest"`
			Signature []byte `json:"signature"`
		} `json:"messageSignature"`
	}
	if err := json.Unmarshal(content, &b); err != nil {
		return nil, problemf(Damaged, "the sigstore bundle is not JSON: %s", err)
	}
	switch {
	case len(b.Material.Certificate) > 0 || len(b.Material.Chain) > 0:
		return nil, problemf(Unsupported, "the sigstore bundle is keyless (it has a certificate): only signatures by keys are verified")
	case b.DSSE != nil && b.Message != nil:
		return nil, problemf(Damaged, "the sigstore bundle has two signed contents, want one")
	case b.DSSE != nil:
		return b.DSSE.proof(FormatSigstore)
	case b.Message == nil || len(b.Message.Signature) == 0:
		return nil, problemf(Damaged, "the sigstore bundle has no signed content")
	case b.Message.Digest.Algorithm != "SHA2_256" || len(b.Message.Digest.Digest) != 32:
		return nil, problemf(Unsupported, "the sigstore bundle has a digest by %.40q, not SHA2_256", b.Message.Digest.Algorithm)
	}
	// The message is the manifest itself, so its SHA-256 is the digest of the image.
	return &Proof{Format: FormatSigstore, Kind: KindSignature, sum: b.Message.Digest.Digest, signatures: [][]byte{b.Message.Signature},
		Claims: []Claim{{Digest: fmt.Sprintf("sha256:%x", b.Message.Digest.Digest)}}}, nil
}
