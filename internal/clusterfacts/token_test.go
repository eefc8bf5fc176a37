package clusterfacts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// A pod's annotation names the address, and a node may create such a pod. So the
// controller sends its token only to a server with an API server's certificate. A
// certificate for the address alone, as a kubelet has, is not enough.
func TestTokenOnlyForAPIServers(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serve := func(names ...string) (s *httptest.Server, ca []byte, token *string) {
		one := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		raw, err := x509.CreateCertificate(rand.Reader, one, one, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		token = new(string)
		s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			*token = r.Header.Get("Authorization")
			_, _ = io.WriteString(w, metricsText)
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
		s.Config.ErrorLog = nil
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), token
	}
	for name, tc := range map[string]struct {
		names []string
		gets  string
	}{
		"an API server's certificate": {[]string{"kubernetes", "kubernetes.default.svc"}, "Bearer secret"},
		"a kubelet's certificate":     {[]string{"n1"}, ""},
	} {
		s, ca, token := serve(tc.names...)
		cfg := &rest.Config{Host: "https://10.96.0.1", BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
		_, err := DeprecatedAPIs(t.Context(), MetricsAt(cfg)(strings.TrimPrefix(s.URL, "https://")))
		if *token != tc.gets || (err == nil) != (tc.gets != "") {
			t.Errorf("%s: it was given %q: %v", name, *token, err)
		}
	}
}
