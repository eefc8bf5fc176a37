package clusterapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/certs"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
)

// listening starts a server as Setup does, and returns its address and the CAs
// that its Secret publishes.
func listening(t *testing.T, w *testClusters, clientCA string) (address string, cas []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	_ = l.Close()
	s := w.s
	s.options.Address, s.options.ClientCA = address, clientCA
	s.certs.Names, s.certs.Now = []string{"127.0.0.1"}, time.Now
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	if err := s.certs.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := w.mgmt.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: SecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			return address, secret.Data[certs.KeyBundle]
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func caller(t *testing.T, cas []byte, own ...tls.Certificate) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cas) {
		t.Fatal("no CA")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: own, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func discover(c *http.Client, scheme, address string) (int, string, error) {
	// No Content-Type, as Cluster API sends it.
	req, err := http.NewRequest(http.MethodPost, scheme+"://"+address+hooks.DiscoveryPath+"?timeout=10s", strings.NewReader(`{`+apiVersion+`,"kind":"DiscoveryRequest"}`))
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// Over TLS with the CA that the Secret publishes; a rotation breaks no connection.
func TestItListensWithTheCertificateOfItsSecret(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	own := clientCertificate(t)
	address, cas := listening(t, w, caFile(t, own))
	c := caller(t, cas, own)
	code, text, err := discover(c, "https", address)
	if err != nil || code != 200 || !strings.Contains(text, `"failurePolicy":"Fail"`) {
		t.Fatalf("%d %s %v", code, text, err)
	}
	if code, _, err := discover(c, "http", address); err == nil && code == 200 {
		t.Error("plain HTTP is answered")
	}
	if resp, err := c.Get("https://" + address + hooks.DiscoveryPath); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a GET is not the protocol: %v %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	before, _ := w.s.certs.Certificate(nil)
	w.s.certs.Now = func() time.Time { return time.Now().Add(25 * 24 * time.Hour) }
	if err := w.s.certs.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, _ := w.s.certs.Certificate(nil); string(after.Certificate[0]) == string(before.Certificate[0]) {
		t.Fatal("nothing was rotated")
	}
	// The new one is dated ahead of this machine's clock; only its signer matters here.
	fresh, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own}}) //nolint:gosec // looked at below
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cas)
	if _, err := fresh.ConnectionState().PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: "127.0.0.1", CurrentTime: w.s.certs.Now()}); err != nil {
		t.Errorf("who has the bundle of before trusts the new certificate: %v", err)
	}
}

func TestCallersMustShowACertificate(t *testing.T) {
	t.Parallel()
	data, _, err := certs.Next(nil, []string{"cluster-api"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(data[certs.KeyCert], data[certs.KeyKey])
	if err != nil {
		t.Fatal(err)
	}
	client := clientCertificate(t)
	file := caFile(t, client, data[certs.KeyBundle]...)
	w := newTestClusters(t)
	address, cas := listening(t, w, file)
	if code, _, err := discover(caller(t, cas), "https", address); err == nil {
		t.Errorf("a stranger is answered: %d", code)
	}
	if code, _, err := discover(caller(t, cas, client), "https", address); err != nil || code != 200 {
		t.Errorf("who shows one is answered: %d %v", code, err)
	}
	// A certificate for servers is none for clients: Cluster API's own is for both.
	if _, _, err := discover(caller(t, cas, own), "https", address); err == nil {
		t.Error("any certificate of the CA is taken")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, err := discover(caller(t, cas, client), "https", address); err == nil {
		t.Errorf("the file holds no CA any more, and a caller is answered: %d", code)
	}
	if _, err := clientCAs(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "CA of Cluster API's client certificates") {
		t.Errorf("%v", err)
	}
}

// Without a client CA nothing listens, and the error says what to set.
func TestServerWithoutAClientCARefusesToStart(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	w.s.options.Address = "127.0.0.1:0"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.s.Start(ctx); err == nil || !strings.Contains(err.Error(), "-cluster-api-client-ca is required") {
		t.Errorf("%v", err)
	}
	if err := Setup(nil, nil, Options{Address: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "-cluster-api-client-ca is required") {
		t.Errorf("%v", err)
	}
}

// caFile holds the CA of a client's certificate, and others.
func caFile(t *testing.T, c tls.Certificate, others ...byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, append(others, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// clientCertificate signs itself, and is good for clients.
func clientCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// What was asked and how it was answered is counted.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	r := prometheus.NewRegistry()
	w.s.metrics = newMetrics(r)
	w.ask(hooks.CanUpdateMachineSet, claim("", same, version136))
	w.ask(hooks.CanUpdateMachineSet, claim("", same, bothChanged))
	w.post(w.s, hooks.UpdateMachine, "x")
	w.update("m1", newVersion)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "refit_cluster_api_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			got = append(got, fmt.Sprintf("%s %s %v", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetCounter().GetValue()))
		}
	}
	want := "CanUpdateMachineSet failure 1, CanUpdateMachineSet patches 1, UpdateMachine invalid 1, UpdateMachine progress 1"
	if strings.Join(got, ", ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]time.Duration{"": 9 * time.Second, "?timeout=10s": 9 * time.Second, "?timeout=30s": 29 * time.Second, "?timeout=5h": 29 * time.Second,
		"?timeout=1s": 500 * time.Millisecond, "?timeout=-1s": 9 * time.Second, "?timeout=x": 9 * time.Second} {
		r, err := http.NewRequest(http.MethodPost, "https://x/"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := requestTimeout(r); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}
