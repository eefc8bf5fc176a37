package bundle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// PayloadType is the DSSE payload type of a bundle's signatures.
const PayloadType = "application/vnd.refit.bundle.v1+json"

// Envelope is a DSSE envelope over a Statement, or another document that refit signs.
type Envelope struct {
	PayloadType string `json:"payloadType"`
	// Payload is the document as JSON (base64 in the envelope's JSON).
	Payload    []byte      `json:"payload"`
	Signatures []Signature `json:"signatures"`
}

// Signature is one key's signature over an envelope.
type Signature struct {
	// KeyID is a hint which key to try, see KeyID.
	KeyID string `json:"keyid"`
	// Sig is the ed25519 signature.
	Sig []byte `json:"sig"`
}

// keyIDForm is what KeyID gives. People read key ids, so a bundle brings no others.
var keyIDForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Statement is what is signed: this digest is this bundle.
type Statement struct {
	Digest  string `json:"digest"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

// KeyID is the first 16 hex digits of the SHA-256 of the PKIX DER of a public key.
func KeyID(pub ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8])
}

// Sign signs the statement that digest is the bundle name in that version.
func Sign(priv ed25519.PrivateKey, digest, name, version string) (Envelope, error) {
	if !ValidDigest(digest) {
		return Envelope{}, fmt.Errorf("sign bundle: %q is not a digest", digest)
	}
	return SignPayload(priv, PayloadType, canonical(Statement{Digest: digest, Name: name, Version: version}))
}

// SignPayload signs any document. Each kind of document has its own payload type, so that no
// signature counts for another kind.
func SignPayload(priv ed25519.PrivateKey, payloadType string, payload []byte) (Envelope, error) {
	if len(priv) != ed25519.PrivateKeySize {
		return Envelope{}, errors.New("sign: not an ed25519 private key")
	}
	pub := priv.Public().(ed25519.PublicKey)
	return Envelope{PayloadType: payloadType, Payload: payload,
		Signatures: []Signature{{KeyID: KeyID(pub), Sig: ed25519.Sign(priv, preAuth(payloadType, payload))}}}, nil
}

// ValidKeyID reports whether s has the form of what KeyID returns.
func ValidKeyID(s string) bool { return keyIDForm.MatchString(s) }

// preAuth is DSSE's pre-authentication encoding: what the key really signs.
func preAuth(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// AddSignature merges an envelope into those that a bundle has; a signature
// of the same key is replaced. The result is sorted, so that the order of
// signing does not matter.
func AddSignature(have []Envelope, add Envelope) []Envelope {
	byKey := map[string]Signature{}
	for _, e := range append(append([]Envelope{}, have...), add) {
		if !bytes.Equal(e.Payload, add.Payload) {
			continue // a statement about another bundle
		}
		for _, s := range e.Signatures {
			byKey[s.KeyID] = s
		}
	}
	out := Envelope{PayloadType: add.PayloadType, Payload: add.Payload}
	for _, s := range byKey {
		out.Signatures = append(out.Signatures, s)
	}
	sort.Slice(out.Signatures, func(i, j int) bool { return out.Signatures[i].KeyID < out.Signatures[j].KeyID })
	return []Envelope{out}
}

// slot is the JSON of the signature entry.
type slot struct {
	Signatures []Envelope `json:"signatures"`
}

// EncodeSlot is the content of the signature entry: JSON padded with spaces.
func EncodeSlot(sigs []Envelope) ([]byte, error) {
	if sigs == nil {
		sigs = []Envelope{}
	}
	b := canonical(slot{Signatures: sigs})
	if len(b) > SignatureSlotSize {
		return nil, fmt.Errorf("the signatures take %d bytes, the bundle has room for %d: use fewer keys", len(b), SignatureSlotSize)
	}
	return append(b, strings.Repeat(" ", SignatureSlotSize-len(b))...), nil
}

// decodeSlot accepts only what EncodeSlot writes, about this very bundle.
func decodeSlot(content []byte, want Statement) ([]Envelope, string) {
	var s slot
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, "not JSON: " + err.Error()
	}
	if again, err := EncodeSlot(s.Signatures); err != nil || !bytes.Equal(again, content) {
		return nil, "not in the one form allowed (compact JSON, padded with spaces)"
	}
	for _, e := range s.Signatures {
		if e.PayloadType != PayloadType {
			return nil, fmt.Sprintf("a signature of type %q", e.PayloadType)
		}
		if !bytes.Equal(e.Payload, canonical(want)) {
			return nil, "a signature over another bundle"
		}
		for _, sig := range e.Signatures {
			if !ValidKeyID(sig.KeyID) {
				return nil, "a key id that is not 16 lower-case hexadecimal digits"
			}
		}
	}
	return s.Signatures, ""
}

// SignedBy lists the names of the keys that signed the bundle, sorted.
func (h *Header) SignedBy(keys map[string]ed25519.PublicKey) []string {
	return namesOf(keys, h.hasSignature)
}

func namesOf(keys map[string]ed25519.PublicKey, signed func(ed25519.PublicKey) bool) []string {
	var names []string
	for name, key := range keys {
		if len(key) == ed25519.PublicKeySize && signed(key) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func (h *Header) hasSignature(key ed25519.PublicKey) bool {
	want := canonical(h.statement())
	for _, e := range h.Signatures {
		if e.PayloadType == PayloadType && bytes.Equal(e.Payload, want) && e.hasSignature(key) {
			return true
		}
	}
	return false
}

// SignedBy lists the names of the keys that signed the payload, sorted. The caller compares the
// payload type.
func (e Envelope) SignedBy(keys map[string]ed25519.PublicKey) []string {
	return namesOf(keys, e.hasSignature)
}

func (e Envelope) hasSignature(key ed25519.PublicKey) bool {
	id, msg := KeyID(key), preAuth(e.PayloadType, e.Payload)
	for _, s := range e.Signatures {
		if s.KeyID == id && ed25519.Verify(key, msg, s.Sig) {
			return true
		}
	}
	return false
}

func (h *Header) statement() Statement {
	return Statement{Digest: h.Digest, Name: h.Metadata.Name, Version: h.Metadata.Version}
}

// ParsePublicKeyPEM reads an ed25519 public key (PKIX), as refit.pub holds it.
func ParsePublicKeyPEM(text []byte) (ed25519.PublicKey, error) {
	der, err := pemBlock(text, "PUBLIC KEY")
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	k, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	pub, ok := k.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("public key: it is a %T, bundles are signed with ed25519", k)
	}
	return pub, nil
}

// ParsePrivateKeyPEM reads an ed25519 private key (PKCS #8), as refit.key holds it.
func ParsePrivateKeyPEM(text []byte) (ed25519.PrivateKey, error) {
	der, err := pemBlock(text, "PRIVATE KEY")
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	priv, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key: it is a %T, bundles are signed with ed25519", k)
	}
	return priv, nil
}

func pemBlock(text []byte, want string) ([]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM text in it")
	}
	if block.Type != want {
		return nil, fmt.Errorf("PEM block %q found, %q expected", block.Type, want)
	}
	return block.Bytes, nil
}

// PublicKeyPEM writes a public key as PKIX PEM.
func PublicKeyPEM(pub ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// PrivateKeyPEM writes a private key as PKCS #8 PEM.
func PrivateKeyPEM(priv ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// WithSignature is the header with one more signature, checked again. Only the
// signature slot differs.
func (h *Header) WithSignature(e Envelope) (*Header, error) {
	content, err := EncodeSlot(AddSignature(h.Signatures, e))
	if err != nil {
		return nil, err
	}
	raw := bytes.Clone(h.Raw)
	copy(raw[h.slotAt:], content)
	return ParseHeader(raw)
}
