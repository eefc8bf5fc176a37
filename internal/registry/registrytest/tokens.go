//go:build linux

package registrytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TokenServer gives the tokens that a registry of StartWithTokens asks for: signed, for one
// repository, until a time.
type TokenServer struct {
	t       testing.TB
	server  *httptest.Server
	key     *ecdsa.PrivateKey
	cert    []byte
	readers map[string]reader

	mu      sync.Mutex
	life    time.Duration
	issued  []string
	stopped bool
}

// reader is a login that may pull from the repositories with a prefix.
type reader struct{ password, prefix string }

const (
	tokenService = "registry"
	tokenIssuer  = "refit tests"
	leeway       = time.Minute
)

// StartTokens starts a token server until the test ends. User may do everything.
func StartTokens(t testing.TB) *TokenServer {
	t.Helper()
	s := &TokenServer{t: t, life: 5 * time.Minute, readers: map[string]reader{}}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	if s.cert, err = x509.CreateCertificate(rand.Reader, template, template, &s.key.PublicKey, s.key); err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

// AddReader adds a login that may pull from the repositories with a prefix.
func (s *TokenServer) AddReader(user, password, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers[user] = reader{password, prefix}
}

// SetLife sets how long the next tokens are valid. The registry adds a leeway of a minute, which
// is subtracted from what they say.
func (s *TokenServer) SetLife(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = d
}

// Stop makes the server answer with an error until Resume.
func (s *TokenServer) Stop() { s.setStopped(true) }

// Resume ends Stop.
func (s *TokenServer) Resume() { s.setStopped(false) }

func (s *TokenServer) setStopped(stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = stopped
}

// Issued are the tokens since the last call, as "user scope".
func (s *TokenServer) Issued() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.issued
	s.issued = nil
	return out
}

// config of a registry that trusts the server.
func (s *TokenServer) config(dir string) string {
	bundle := filepath.Join(dir, "tokens.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert}), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("auth:\n  token: {realm: %q, service: %q, issuer: %q, rootcertbundle: %q}\n", s.server.URL+"/token", tokenService, tokenIssuer, bundle)
}

func (s *TokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.readers[user]
	publisher := user == User && password == Password
	switch {
	case s.stopped:
		http.Error(w, "{}", http.StatusServiceUnavailable)
		return
	case !publisher && (!ok || known.password != password):
		http.Error(w, "{}", http.StatusUnauthorized)
		return
	}
	access := []map[string]any{}
	for _, scope := range r.URL.Query()["scope"] {
		s.issued = append(s.issued, user+" "+scope)
		access = append(access, grant(scope, known.prefix, publisher)...)
	}
	now := time.Now()
	token := s.sign(map[string]any{"iss": tokenIssuer, "sub": user, "aud": tokenService, "jti": fmt.Sprint(now.UnixNano()), "access": access,
		"iat": now.Unix(), "nbf": now.Add(-leeway).Unix(), "exp": now.Add(s.life - leeway).Unix()})
	if err := json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": int(s.life.Seconds()), "issued_at": now.UTC().Format(time.RFC3339)}); err != nil {
		s.t.Log(err)
	}
}

// grant is what a login gets of a scope: a publisher all of it, a reader the pull of what its prefix
// covers.
func grant(scope, prefix string, publisher bool) []map[string]any {
	parts := strings.SplitN(scope, ":", 3)
	if len(parts) != 3 || !publisher && !strings.HasPrefix(parts[1], prefix) {
		return nil
	}
	actions := []string{"pull"}
	if publisher {
		actions = strings.Split(parts[2], ",")
	}
	return []map[string]any{{"type": parts[0], "name": parts[1], "actions": actions}}
}

// sign makes a JSON Web Token with ES256.
func (s *TokenServer) sign(claims map[string]any) string {
	part := func(v map[string]any) string {
		text, err := json.Marshal(v)
		if err != nil {
			s.t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(s.cert)}}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	x, y, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		s.t.Error(err)
		return ""
	}
	signature := append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
