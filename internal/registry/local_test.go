package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/refit-dev/refit/internal/outbound"
)

// A registry cannot make refit connect to services of this machine: not by its own name, not
// by a redirect, not by the realm of its tokens.
func TestNothingLocalIsAsked(t *testing.T) {
	var asked atomic.Int64
	victim := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer victim.Close()
	inside := strings.TrimPrefix(victim.URL, "http://")
	byName := "localhost:" + inside[strings.LastIndex(inside, ":")+1:]
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				http.Redirect(w, r, victim.URL+"/secret", http.StatusTemporaryRedirect)
			}
		},
		"a redirect to a name": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				http.Redirect(w, r, "http://"+byName+"/secret", http.StatusTemporaryRedirect)
			}
		},
		"a realm of tokens": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, victim.URL))
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			reg := httptest.NewServer(answer)
			defer reg.Close()
			asked.Store(0)
			host := strings.TrimPrefix(reg.URL, "http://")
			over := outbound.New(outbound.RegistryFlag, host).Transport()
			defer over.CloseIdleConnections()
			_, err := NewPoller(over, newClock().Now).Digest(t.Context(), Place{Repository: host + "/app", Insecure: true}, "1", 0)
			if !errors.Is(err, outbound.ErrLocal) {
				t.Errorf("got %v", err)
			}
			if asked.Load() != 0 {
				t.Error("a service on this machine was asked")
			}
		})
	}
	t.Run("the registry itself", func(t *testing.T) {
		for _, host := range []string{inside, byName} {
			asked.Store(0)
			over := outbound.New(outbound.RegistryFlag).Transport()
			defer over.CloseIdleConnections()
			_, err := NewPoller(over, newClock().Now).Tags(t.Context(), Place{Repository: host + "/app", Insecure: true}, 0)
			if !errors.Is(err, outbound.ErrLocal) || asked.Load() != 0 {
				t.Errorf("%s: asked %d times: %v", host, asked.Load(), err)
			}
			_, err = NewPoller(outbound.New(outbound.RegistryFlag, host).Transport(), newClock().Now).Tags(t.Context(), Place{Repository: host + "/app", Insecure: true}, 0)
			if errors.Is(err, outbound.ErrLocal) || asked.Load() == 0 {
				t.Errorf("%s was allowed and not asked: %v", host, err)
			}
		}
	})
	t.Run("through a proxy", func(t *testing.T) {
		over := outbound.New(outbound.RegistryFlag).Transport()
		req, err := http.NewRequest(http.MethodGet, "http://169.254.169.254/latest", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := over.Proxy(req); !errors.Is(err, outbound.ErrLocal) {
			t.Errorf("got %v", err)
		}
	})
}
