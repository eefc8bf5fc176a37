package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// cert makes a certificate that ends at a time, as PEM.
func cert(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func put(t *testing.T, root, path string, data []byte) {
	t.Helper()
	file := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertificatesOfANode(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	base := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return base.AddDate(0, 0, n) }
	if got := Certificates(Paths{Root: root}); len(got) != 0 {
		t.Errorf("a node without files has %v", got)
	}
	put(t, root, "/etc/kubernetes/pki/apiserver.crt", append(cert(t, day(3)), cert(t, day(0))...)) // the leaf counts, not its issuer
	put(t, root, "/etc/kubernetes/pki/ca.crt", cert(t, day(3650)))
	put(t, root, "/etc/kubernetes/pki/etcd/server.crt", cert(t, day(2)))
	put(t, root, "/etc/kubernetes/pki/broken.crt", []byte("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n"))
	put(t, root, "/etc/kubernetes/pki/sa.pub", []byte("no certificate"))
	put(t, root, "/var/lib/kubelet/pki/kubelet-client-current.pem", cert(t, day(1)))
	put(t, root, "/etc/kubernetes/admin.conf", []byte("clusters: [{cluster: {server: https://x}}]\nusers: [{user: {client-certificate-data: "+base64.StdEncoding.EncodeToString(cert(t, day(4)))+"}}]\n"))
	want := []Certificate{{"kubelet-client-current.pem", day(1)}, {"etcd/server.crt", day(2)}, {"apiserver.crt", day(3)}, {"admin.conf", day(4)}, {"ca.crt", day(3650)}}
	if diff := cmp.Diff(want, Certificates(Paths{Root: root})); diff != "" {
		t.Error(diff)
	}
}

func TestPullVerification(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if got := PullVerification(Paths{Root: root}); got != "" {
		t.Errorf("%q", got)
	}
	put(t, root, "/var/lib/kubelet/config.yaml", []byte("kind: KubeletConfiguration\nimagePullCredentialsVerificationPolicy: AlwaysVerify\n"))
	if got := PullVerification(Paths{Root: root}); got != "AlwaysVerify" {
		t.Errorf("%q", got)
	}
}
