package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

// A registry leads nobody to what is on this machine: not by its own name, not by a
// redirect, not by the realm of its tokens.
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
			over := Transport(host)
			defer over.CloseIdleConnections()
			_, err := NewPoller(over, newClock().Now).Digest(t.Context(), Place{Repository: host + "/app", Insecure: true}, "1", 0)
			if !errors.Is(err, ErrLocal) {
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
			over := Transport()
			defer over.CloseIdleConnections()
			_, err := NewPoller(over, newClock().Now).Tags(t.Context(), Place{Repository: host + "/app", Insecure: true}, 0)
			if !errors.Is(err, ErrLocal) || asked.Load() != 0 {
				t.Errorf("%s: asked %d times: %v", host, asked.Load(), err)
			}
			_, err = NewPoller(Transport(host), newClock().Now).Tags(t.Context(), Place{Repository: host + "/app", Insecure: true}, 0)
			if errors.Is(err, ErrLocal) || asked.Load() == 0 {
				t.Errorf("%s was allowed and not asked: %v", host, err)
			}
		}
	})
	t.Run("through a proxy", func(t *testing.T) {
		over := Transport()
		req, err := http.NewRequest(http.MethodGet, "http://169.254.169.254/latest", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := over.Proxy(req); !errors.Is(err, ErrLocal) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLocal(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.1": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true, "169.254.169.254": true, "fe80::1": true,
		"fe80::1%eth0": true, "::ffff:127.0.0.1": true, "64:ff9b::7f00:1": true, "64:ff9b::a9fe:a9fe": true, "224.0.0.1": true, "ff02::1": true,
		"255.255.255.255": true, "100.100.100.200": true, "fd00:ec2::254": true, "168.63.129.16": true,
		"10.0.0.1": false, "192.168.1.1": false, "172.16.0.1": false, "1.1.1.1": false, "2001:db8::1": false, "fd00::1": false, "64:ff9b::101:101": false,
	} {
		if got := local(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A listing ends at a total, whatever each page has.
func TestAListingHasATotal(t *testing.T) {
	for name, page := range map[string]string{
		"long tags": `{"tags":["` + strings.Repeat("a", 4<<20) + `"]}`,
		"many tags": `{"tags":["a"` + strings.Repeat(`,""`, 1<<20) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var pages atomic.Int64
			reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				w.Header().Set("Link", fmt.Sprintf(`</v2/app/tags/list?last=%d>; rel="next"`, pages.Add(1)))
				_, _ = w.Write([]byte(page))
			}))
			defer reg.Close()
			over := &http.Transport{}
			defer over.CloseIdleConnections()
			_, err := NewPoller(over, newClock().Now).Tags(t.Context(), Place{Repository: strings.TrimPrefix(reg.URL, "http://") + "/app", Insecure: true}, 0)
			if kindOf(err) != Odd || !strings.Contains(err.Error(), "list of tags") {
				t.Errorf("got %v", err)
			}
			if pages.Load() > 5 {
				t.Errorf("%d pages were read", pages.Load())
			}
		})
	}
}
