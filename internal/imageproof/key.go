package imageproof

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// minRSA is the length in bits of the shortest RSA key that counts.
const minRSA = 2048

// Key is a public key that may sign images.
type Key struct {
	// Name of the policy, for messages.
	Name string
	// ID is the first 16 hexadecimal digits of the SHA-256 of the key's PKIX DER, as for keys of bundles.
	ID  string
	key crypto.PublicKey
}

// String names the key and its identifier.
func (k Key) String() string { return fmt.Sprintf("cosign key %s (%s)", k.Name, k.ID) }

// ParseKey reads a public key in PEM (PKIX), as `cosign generate-key-pair` writes it.
func ParseKey(name string, text []byte) (Key, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return Key{}, errors.New("it is not PEM: want a block BEGIN PUBLIC KEY")
	}
	if block.Type != "PUBLIC KEY" {
		return Key{}, fmt.Errorf("it is a PEM block %.40q: want PUBLIC KEY, for example the cosign.pub of cosign generate-key-pair", block.Type)
	}
	pub, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("read the public key: %w", err)
	}
	switch k := pub.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSA {
			return Key{}, fmt.Errorf("the RSA key has %d bits, want at least %d", k.N.BitLen(), minRSA)
		}
	default:
		return Key{}, fmt.Errorf("keys of type %T are not supported: use ECDSA, RSA or Ed25519", pub)
	}
	sum := sha256.Sum256(block.Bytes)
	return Key{Name: name, ID: hex.EncodeToString(sum[:8]), key: pub}, nil
}

// signed reports whether the key made one of the signatures of a proof.
func (k Key) signed(p *Proof) bool {
	for _, sig := range p.signatures {
		if p.sum == nil && k.verify(p.message, sig) || p.sum != nil && k.verifySum(crypto.SHA256, p.sum, sig) {
			return true
		}
	}
	return false
}

// verify checks a signature over a message, with the hash that cosign uses for the key: always
// SHA-256, in newer versions that of the curve.
func (k Key) verify(message, sig []byte) bool {
	if pub, ok := k.key.(ed25519.PublicKey); ok {
		return ed25519.Verify(pub, message, sig)
	}
	sum := sha256.Sum256(message)
	if k.verifySum(crypto.SHA256, sum[:], sig) {
		return true
	}
	pub, ok := k.key.(*ecdsa.PublicKey)
	if !ok {
		return false
	}
	switch pub.Curve {
	case elliptic.P384():
		s := sha512.Sum384(message)
		return ecdsa.VerifyASN1(pub, s[:], sig)
	case elliptic.P521():
		s := sha512.Sum512(message)
		return ecdsa.VerifyASN1(pub, s[:], sig)
	}
	return false
}

// verifySum checks a signature over a hash. Ed25519 signs messages, so it never does.
func (k Key) verifySum(h crypto.Hash, sum, sig []byte) bool {
	switch pub := k.key.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(pub, sum, sig)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(pub, h, sum, sig) == nil
	}
	return false
}
