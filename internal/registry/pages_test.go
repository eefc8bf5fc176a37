package registry_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/registry"
)

// tokenRegistry is a registry whose tokens are good for a number of requests, for one
// repository, and for one login. It lists a repository in pages of two tags.
type tokenRegistry struct {
	*httptest.Server
	pages, uses int
	login       string

	mu     sync.Mutex
	left   map[string]int
	issued int
}

func newTokenRegistry(t *testing.T, pages, uses int, login string) *tokenRegistry {
	r := &tokenRegistry{pages: pages, uses: uses, login: login, left: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (s *tokenRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/token" {
		user, password, _ := r.BasicAuth()
		if user+":"+password != s.login || r.URL.Query().Get("scope") != "repository:shop/app:pull" {
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		s.issued++
		token := fmt.Sprintf("token-%d", s.issued)
		s.left[token] = s.uses
		_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 60})
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.left[token] == 0 {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="test",scope="repository:shop/app:pull"`, s.URL))
		http.Error(w, "{}", http.StatusUnauthorized)
		return
	}
	s.left[token]--
	page := 0
	_, _ = fmt.Sscanf(r.URL.Query().Get("last"), "%d", &page)
	if s.pages == 0 || page+1 < s.pages {
		w.Header().Set("Link", fmt.Sprintf(`</v2/shop/app/tags/list?last=%d>; rel="next"`, page+1))
	}
	_, _ = fmt.Fprintf(w, `{"tags":["%d-a","%d-b"]}`, page, page)
}

func (s *tokenRegistry) place(t *testing.T, login string) registry.Place {
	t.Helper()
	host := strings.TrimPrefix(s.URL, "http://")
	config, err := json.Marshal(map[string]any{"auths": map[string]any{
		// The login of the longest path counts, as in containers-auth.json(5).
		host: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("registry:wide"))}, host + "/shop/app": map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(login))},
		host + "/shop/apple": map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte("another:path"))}}})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := registry.ParseKeys(config)
	if err != nil {
		t.Fatal(err)
	}
	return registry.Place{Repository: host + "/shop/app", Keys: keys, Insecure: true}
}

// A listing is read to its end, over tokens that expire in the middle of it.
func TestManyPagesOverExpiringTokens(t *testing.T) {
	t.Parallel()
	s := newTokenRegistry(t, 150, 40, "user:secret")
	tags, err := registry.NewPoller(http.DefaultTransport, time.Now).Tags(t.Context(), s.place(t, "user:secret"), 0)
	if err != nil || len(tags) != 300 {
		t.Fatalf("%d tags, %v", len(tags), err)
	}
	if s.issued < 4 {
		t.Errorf("%d tokens for 150 pages: none expired", s.issued)
	}
}

func TestALoginThatTheTokenServerRefuses(t *testing.T) {
	t.Parallel()
	s := newTokenRegistry(t, 1, 40, "user:secret")
	_, err := registry.NewPoller(http.DefaultTransport, time.Now).Tags(t.Context(), s.place(t, "user:wrong"), 0)
	var f *registry.Failure
	if !errors.As(err, &f) || f.Kind != registry.Unauthorized || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v", err)
	}
}

// A part of a listing is not taken for all of it.
func TestAListingWithoutAnEndIsAFailure(t *testing.T) {
	t.Parallel()
	s := newTokenRegistry(t, 0, 1<<20, "user:secret")
	tags, err := registry.NewPoller(http.DefaultTransport, time.Now).Tags(t.Context(), s.place(t, "user:secret"), 0)
	var f *registry.Failure
	if !errors.As(err, &f) || f.Kind != registry.InvalidAnswer || !strings.Contains(err.Error(), "pages") {
		t.Errorf("%d tags, %v", len(tags), err)
	}
}
