package registrytest

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Cloud is a registry in this process, as clouds have them: it asks for a login, and redirects requests
// for blobs to a storage server with another address and a signed URL.
type Cloud struct {
	// Addr of the registry is on 127.0.0.1, Storage on 127.0.0.2. Both speak plain HTTP.
	Addr, Storage string
	// Answer, if set, is what the storage answers with in place of a blob.
	Answer http.HandlerFunc

	content http.Handler
	tokens  bool

	mu      sync.Mutex
	leaks   []string
	blobs   int
	granted []string
}

const (
	cloudToken = "token-of-the-registry"
	// Signature is in each URL of the storage: it is as good as a login, and appears in no error.
	Signature = "signature-of-a-request"
)

// StartCloud starts both servers until the test ends. tokens: a login is exchanged for a token first.
func StartCloud(t testing.TB, tokens bool) *Cloud {
	t.Helper()
	c := &Cloud{content: registry.New(registry.Logger(log.New(io.Discard, "", 0))), tokens: tokens}
	c.Addr, c.Storage = serveAt(t, "127.0.0.1", c.registry), serveAt(t, "127.0.0.2", c.storage)
	return c
}

func serveAt(t testing.TB, ip string, handle http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Skipf("this system has no loopback address %s: %v", ip, err)
	}
	s := httptest.NewUnstartedServer(handle)
	_ = s.Listener.Close() // replaced
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().String()
}

// Keys are the text of a pull secret for the registry.
func (c *Cloud) Keys() []byte {
	return fmt.Appendf(nil, `{"auths": {%q: {"username": %q, "password": %q}}}`, c.Addr, User, Password)
}

// Leaks are requests to the storage that had a login.
func (c *Cloud) Leaks() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaks
}

// Blobs is how many requests the storage served, Granted for which scopes a token was granted.
func (c *Cloud) Blobs() (n int, granted []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blobs, c.granted
}

func (c *Cloud) registry(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	login := user == User && password == Password
	if r.URL.Path == "/token" && login {
		c.mu.Lock()
		c.granted = append(c.granted, r.URL.Query()["scope"]...)
		c.mu.Unlock()
		fmt.Fprintf(w, `{"token": %q}`, cloudToken)
		return
	}
	if c.tokens {
		login = r.Header.Get("Authorization") == "Bearer "+cloudToken
	}
	switch {
	case !login && c.tokens:
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, c.Addr))
		w.WriteHeader(http.StatusUnauthorized)
	case !login:
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:"):
		http.SetCookie(w, &http.Cookie{Name: "session", Value: cloudToken})
		http.Redirect(w, r, "http://"+c.Storage+r.URL.Path+"?X-Signature="+Signature, http.StatusTemporaryRedirect)
	default:
		c.content.ServeHTTP(w, r)
	}
}

func (c *Cloud) storage(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	all := fmt.Sprint(r.Method, r.RequestURI, r.Header, string(body), err)
	c.mu.Lock()
	c.blobs++
	if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || strings.Contains(all, Password) || strings.Contains(all, cloudToken) {
		c.leaks = append(c.leaks, all)
	}
	c.mu.Unlock()
	switch {
	case c.Answer != nil:
		c.Answer(w, r)
	case r.URL.Query().Get("X-Signature") != Signature:
		w.WriteHeader(http.StatusForbidden)
	default:
		clean := r.Clone(r.Context())
		clean.URL = &url.URL{Path: r.URL.Path}
		c.content.ServeHTTP(w, clean)
	}
}
