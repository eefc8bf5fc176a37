package peerapi

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// Identity is the key by which peers know a node, or the controller.
type Identity struct {
	public string
	cert   tls.Certificate
}

// NewIdentity makes the identity of a key. The certificate is new each time;
// only the key in it counts.
func NewIdentity(key ed25519.PrivateKey) (*Identity, error) {
	pub, err := EncodePublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "refit"},
		// No side checks dates; a node without a clock must work.
		NotBefore:   time.Unix(0, 0),
		NotAfter:    time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the node's key: %w", err)
	}
	return &Identity{public: pub, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// PublicKey is how others know it: base64 of PKIX DER.
func (id *Identity) PublicKey() string { return id.public }

// EncodePublicKey is base64 of PKIX DER.
func EncodePublicKey(pub crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(der), nil
}

// LoadIdentity reads the key at path, and creates one if it is missing or damaged. The
// agent publishes the public key in the API, and nothing else depends on it. The file is
// PEM (PKCS #8), readable by root only.
func LoadIdentity(path string, note statefile.Note) (*Identity, error) {
	var key ed25519.PrivateKey
	if !statefile.Read(path, "a new key was made, and its public half is in the node's status", func(text []byte) (err error) {
		key, err = ParseKey(text)
		return err
	}, note) {
		return createIdentity(path, note)
	}
	return NewIdentity(key)
}

// ParseKey reads an ed25519 key in PEM (PKCS #8).
func ParseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM block PRIVATE KEY")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is %T, not ed25519", k)
	}
	return key, nil
}

// NewKey makes a key and its PEM text.
func NewKey() (ed25519.PrivateKey, []byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("new key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("new key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// createIdentity makes a key. A key that cannot be saved is used until the program ends.
func createIdentity(path string, note statefile.Note) (*Identity, error) {
	key, text, err := NewKey()
	if err != nil {
		return nil, err
	}
	if err := fsutil.WriteFile(path, text, 0o600); err != nil {
		note(statefile.NotWritable(path, err))
	}
	return NewIdentity(key)
}

// tlsConfig returns a configuration that accepts the keys for which accepts is true.
func (id *Identity) tlsConfig(accepts func(publicKey string) bool) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{id.cert},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // names and authorities mean nothing here; the key is checked below
		SessionTicketsDisabled: true, // a peer that was removed must not resume
		// Chunks are long: the first bytes of one need not come in small records.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errors.New("the peer showed no key")
			}
			pub, err := EncodePublicKey(cs.PeerCertificates[0].PublicKey)
			if err != nil {
				return err
			}
			if !accepts(pub) {
				return fmt.Errorf("the key %s is not that of a peer", pub)
			}
			return nil
		},
	}
}

// ServerTLS is for listening; it calls accepts at every connection.
func (id *Identity) ServerTLS(accepts func(publicKey string) bool) *tls.Config {
	return id.tlsConfig(accepts)
}
