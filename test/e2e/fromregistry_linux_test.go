package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/lab/scenario"
	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// TestFromARegistry updates a cluster from a registry: refit was installed from a stick, which is
// pulled; the release was pushed, and no node has a stick of it. One node fetches it over TLS,
// and the others take it from that node. results/fromregistry.json says who got what from where.
func TestFromARegistry(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("an update of a cluster of its own takes minutes: make e2e")
	}
	s := start(t, "fromregistry", 3)
	ctx := t.Context()
	own, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "refit.tar", Version: "1.0.0", LeaveKubernetes: true})
	must(t, err)
	dev, err := s.Insert(ctx, s.MediumNode, own)
	must(t, err)
	must(t, s.Install(ctx, own, dev))
	must(t, s.Eject(ctx, s.MediumNode, dev))

	registry := registrytest.Start(t)
	at, authority := serveTLS(t, s, registry.Addr)
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(to, "v")})
	must(t, err)
	h := administrator(t, s)
	must(t, os.Symlink(b.Path, filepath.Join(h.dir, "release.bundle")))
	// The nodes reach the registry at another address, with an authority of its own.
	const page, shown = "from-a-registry.md", "registry.example/site/bundles:v1.36.3"
	h.types(t, page, 1, shown, registry.Ref("site/bundles:"+to))
	said := h.types(t, page, 2, shown, at+"/site/bundles:"+to+" --registry-ca "+authority)
	for _, word := range []string{"Start this update? [y/N]", "3 of 3 nodes are at 1.36.3"} {
		if !strings.Contains(said, word) {
			t.Errorf("the commands never printed %q", word)
		}
	}
	h.compareTable(t)
	finished(t, s, b, clusterUpdate(t, s).Status.PlanDigest)

	type source struct {
		Node         string `json:"node"`
		FromRegistry int64  `json:"bytesFromRegistry"`
		FromPeers    int64  `json:"bytesFromPeers"`
		FromMedia    int64  `json:"bytesFromMedia"`
	}
	var nodes []source
	fetched := 0
	for _, n := range s.Lab.Nodes() {
		nu, err := nodeUpdateOf(ctx, s, n)
		must(t, err)
		p := nu.Status.Pins
		nodes = append(nodes, source{n, p.BytesFromRegistry, p.BytesFromPeers, p.BytesFromMedia})
		switch {
		case p.BytesFromMedia > 0:
			t.Errorf("node %s got %d bytes from a medium, and there was none", n, p.BytesFromMedia)
		case p.BytesFromRegistry > 0:
			fetched++
		case p.BytesFromPeers == 0:
			t.Errorf("node %s got nothing from the registry and nothing from peers", n)
		}
	}
	if fetched != 1 {
		t.Errorf("%d nodes fetched from the registry, want one", fetched)
	}
	keepResult(t, "fromregistry.json", func() any {
		return map[string]any{"nodes": nodes, "bundleBytes": b.Size, "outcome": "every node observed at " + to}
	})
}

// serveTLS opens a door to a registry at the address of n1, with a certificate of its own.
// authority is the file with it.
func serveTLS(t *testing.T, s *scenario.Scenario, registry string) (address, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ip := s.Lab.Address("n1")
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	authority = filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	address = net.JoinHostPort(ip, osPort)
	l, err := s.Lab.Listen(t.Context(), "n1", "tcp", address)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	secure := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12})
	go func() {
		for {
			c, err := secure.Accept()
			if err != nil {
				return
			}
			go passOn(c, registry)
		}
	}()
	return address, authority
}
