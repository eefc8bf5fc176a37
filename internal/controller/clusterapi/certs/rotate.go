package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"
)

// Lifetimes of certificates.
const (
	caLife   = 2 * 365 * 24 * time.Hour
	leafLife = 30 * 24 * time.Hour
	// Overlap is how long a new CA is published before anything is signed with it.
	Overlap = 7 * 24 * time.Hour
	// backdate tolerates callers whose clocks are slow.
	backdate = 5 * time.Minute
	// maxTrusted is how many CAs are published: the signer, the next, and earlier ones.
	maxTrusted = 4
)

// Keys of the Secret. ca.crt, tls.crt and tls.key are the usual names, which Cluster
// API expects.
const (
	KeyBundle  = "ca.crt"
	KeyCert    = "tls.crt"
	KeyKey     = "tls.key"
	signerCert = "signer.crt"
	signerKey  = "signer.key"
	nextCert   = "next-signer.crt"
	nextKey    = "next-signer.key"
)

// Next returns what the Secret must contain now, and whether that differs from its data.
// Invalid data is replaced.
func Next(data map[string][]byte, names []string, now time.Time) (next map[string][]byte, changed bool, err error) {
	out := map[string][]byte{}
	signer, coming, err := signers(data, now)
	if err != nil {
		return nil, false, err
	}
	out[signerCert], out[signerKey] = signer.pem()
	trusted := []*x509.Certificate{signer.cert}
	if coming != nil {
		out[nextCert], out[nextKey] = coming.pem()
		trusted = append(trusted, coming.cert)
	}
	out[KeyBundle] = bundle(trusted, data[KeyBundle], now)
	leaf := parsePair(data[KeyCert], data[KeyKey])
	if leaf == nil || !leaf.serves(names, signer, now) {
		if leaf, err = newLeaf(signer, names, now); err != nil {
			return nil, false, err
		}
	}
	out[KeyCert], out[KeyKey] = leaf.pem()
	return out, !maps.EqualFunc(out, data, bytes.Equal), nil
}

// signers returns the CA that signs now, and the one that is published to sign later, nil if
// none is due.
func signers(data map[string][]byte, now time.Time) (signer, coming *pair, err error) {
	signer = parsePair(data[signerCert], data[signerKey])
	if signer == nil || now.After(signer.cert.NotAfter) || now.Before(signer.cert.NotBefore) {
		if signer, err = newCA(now); err != nil {
			return nil, nil, err
		}
	}
	coming = parsePair(data[nextCert], data[nextKey])
	if coming != nil && now.Sub(coming.cert.NotBefore) >= Overlap+backdate {
		signer, coming = coming, nil
	}
	if coming == nil && signer.cert.NotAfter.Sub(now) < caLife/2 {
		coming, err = newCA(now)
	}
	return signer, coming, err
}

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// parsePair returns nil for a missing, invalid or mismatched pair.
func parsePair(cert, key []byte) *pair {
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil
	}
	k, ok := p.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil
	}
	c, err := x509.ParseCertificate(p.Certificate[0])
	if err != nil {
		return nil
	}
	return &pair{c, k}
}

func (p *pair) pem() (cert, key []byte) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		panic(err) // cannot happen for an ECDSA key
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// serves reports whether a server certificate can stay: for these names, of this signer, and
// with a third of its lifetime left.
func (p *pair) serves(names []string, signer *pair, now time.Time) bool {
	enough := min(leafLife/3, signer.cert.NotAfter.Sub(now)/2) // it never outlives its signer
	if now.Before(p.cert.NotBefore) || p.cert.NotAfter.Sub(now) < enough || p.cert.CheckSignatureFrom(signer.cert) != nil {
		return false
	}
	have := slices.Clone(p.cert.DNSNames)
	for _, ip := range p.cert.IPAddresses {
		have = append(have, ip.String())
	}
	want := slices.Clone(names)
	slices.Sort(have)
	slices.Sort(want)
	return slices.Equal(have, want)
}

// bundle returns the CAs in use, and earlier ones until they expire.
func bundle(trusted []*x509.Certificate, before []byte, now time.Time) []byte {
	for rest := before; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !c.IsCA || now.After(c.NotAfter) || slices.ContainsFunc(trusted, c.Equal) || len(trusted) >= maxTrusted {
			continue
		}
		trusted = append(trusted, c)
	}
	var out []byte
	for _, c := range trusted {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

func newCA(now time.Time) (*pair, error) {
	return issue(nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "refit in-place updates CA"}, NotBefore: now.Add(-backdate), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature})
}

func newLeaf(signer *pair, names []string, now time.Time) (*pair, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("certificate of the extension server: no DNS name or address is configured")
	}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	return issue(signer, c)
}

// issue creates a key and signs its certificate; without a signer the certificate is
// self-signed.
func issue(signer *pair, c *x509.Certificate) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	parent, with := c, key
	if signer != nil {
		parent, with = signer.cert, signer.key
		if c.NotAfter.After(parent.NotAfter) {
			c.NotAfter = parent.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), with)
	if err != nil {
		return nil, err
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return &pair{c, key}, nil
}
