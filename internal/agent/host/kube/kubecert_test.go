package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func issue(t *testing.T, by *authority, begins time.Time) (certPEM, keyPEM []byte, a *authority) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "x"}, NotBefore: begins, NotAfter: begins.AddDate(1, 0, 0), IsCA: by == nil, BasicConstraintsValid: true}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), &authority{c, key}
}

func putAt(t *testing.T, root, path string, data []byte, at time.Time) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func kubeconfigWith(cert, key []byte) []byte {
	b := base64.StdEncoding.EncodeToString
	return []byte(fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    client-certificate-data: %s\n    client-key-data: %s\n", b(cert), b(key)))
}

func TestLook(t *testing.T) {
	root := t.TempDir()
	d := CertificateDir{Root: root}
	ca0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	written := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	caPEM, _, ca := issue(t, nil, ca0)
	putAt(t, root, "/etc/kubernetes/pki/ca.crt", caPEM, ca0)

	if _, found, err := d.ReadFiles("apiserver"); found || err != nil {
		t.Fatal("a node without certificates", found, err)
	}
	// kubeadm gives it the CA's first day: when it was made is when it was written.
	cert, key, _ := issue(t, ca, ca0)
	putAt(t, root, "/etc/kubernetes/pki/apiserver.crt", cert, written)
	putAt(t, root, "/etc/kubernetes/pki/apiserver.key", key, written)
	c, found, err := d.ReadFiles("apiserver")
	if err != nil || !found || !c.Made.Equal(written) || !c.NotAfter.Equal(ca0.AddDate(1, 0, 0)) || !c.Written.Equal(written) {
		t.Fatalf("%+v %v %v", c, found, err)
	}
	// One that says itself when it was made.
	own := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	cert, key, _ = issue(t, ca, own)
	putAt(t, root, "/etc/kubernetes/scheduler.conf", kubeconfigWith(cert, key), written)
	if c, found, err = d.ReadFiles("scheduler.conf"); err != nil || !found || !c.Made.Equal(own) {
		t.Fatalf("%+v %v %v", c, found, err)
	}
	putAt(t, root, "/var/lib/kubelet/pki/kubelet-client-current.pem", append(cert, key...), written)
	if c, found, err = d.ReadFiles(KubeletClient); err != nil || !found || !c.Made.Equal(own) {
		t.Fatalf("%+v %v %v", c, found, err)
	}
	if _, found, err := d.ReadFiles("nobody"); found || err != nil {
		t.Fatal("an unknown name")
	}
}

// An unusable certificate is reported as broken; errors contain nothing of a key.
func TestBroken(t *testing.T) {
	_, _, ca := issue(t, nil, time.Now())
	cert, key, _ := issue(t, ca, time.Now())
	_, other, _ := issue(t, ca, time.Now())
	for name, files := range map[string][2][]byte{
		"a key of another certificate": {cert, other},
		"a key that is cut off":        {cert, key[:40]},
		"no key":                       {cert, nil},
		"a certificate that is empty":  {nil, key},
		"no PEM":                       {[]byte("x"), []byte("y")},
	} {
		root := t.TempDir()
		putAt(t, root, "/etc/kubernetes/pki/apiserver.crt", files[0], time.Now())
		putAt(t, root, "/etc/kubernetes/pki/apiserver.key", files[1], time.Now())
		putAt(t, root, "/etc/kubernetes/admin.conf", kubeconfigWith(files[0], files[1]), time.Now())
		for _, n := range []string{"apiserver", "admin.conf"} {
			_, found, err := CertificateDir{Root: root}.ReadFiles(n)
			if !found || !errors.Is(err, ErrBrokenCertificate) {
				t.Errorf("%s, %s: %v %v", name, n, found, err)
			}
			if len(files[1]) > 20 && strings.Contains(fmt.Sprint(err), string(files[1][30:40])) {
				t.Error("an error contains a key")
			}
		}
	}
}

func TestUsersAreStaticPods(t *testing.T) {
	for _, n := range append(CertificateNames(), KubeletClient) {
		if len((CertificateDir{}).Files(n)) == 0 {
			t.Errorf("%s has no file", n)
		}
	}
	if len(CertificateUsers("apiserver")) != 1 || len(CertificateUsers("nobody")) != 0 {
		t.Error("users")
	}
}
