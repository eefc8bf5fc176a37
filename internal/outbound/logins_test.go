package outbound

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// hops answers requests as servers of several names do, and records them.
type hops struct {
	answers map[string]string // URL to where it redirects; "401" asks for a login
	seen    []string
}

func (h *hops) RoundTrip(req *http.Request) (*http.Response, error) {
	login := req.Header.Get("Authorization") + req.Header.Get("Cookie") + req.URL.User.String()
	h.seen = append(h.seen, strings.TrimSpace(req.URL.Scheme+"://"+req.URL.Host+req.URL.Path+" "+login))
	w := httptest.NewRecorder()
	switch to := h.answers[req.URL.Scheme+"://"+req.URL.Host+req.URL.Path]; to {
	case "":
	case "401":
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://evil.example/token"`)
		w.WriteHeader(http.StatusUnauthorized)
	default:
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// loginEverywhere is a client that sends its login to every server: the worst one.
type loginEverywhere struct{ over http.RoundTripper }

func (l loginEverywhere) RoundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "secret")
	req.Header.Set("Cookie", "s=1")
	return l.over.RoundTrip(req)
}

func TestLoginsStayWithTheirServer(t *testing.T) {
	t.Parallel()
	const with = " secrets=1"
	for name, c := range map[string]struct {
		answers map[string]string
		seen    []string
	}{
		"no redirect":   {nil, []string{"https://r.example/b" + with}},
		"the same host": {map[string]string{"https://r.example/b": "/c"}, []string{"https://r.example/b" + with, "https://r.example/c" + with}},
		"the same port in words": {map[string]string{"https://r.example/b": "https://r.example:443/c"},
			[]string{"https://r.example/b" + with, "https://r.example:443/c" + with}},
		"another host": {map[string]string{"https://r.example/b": "https://s.example/c"}, []string{"https://r.example/b" + with, "https://s.example/c"}},
		"a name below": {map[string]string{"https://r.example/b": "https://blobs.r.example/c"}, []string{"https://r.example/b" + with, "https://blobs.r.example/c"}},
		"another port": {map[string]string{"https://r.example/b": "https://r.example:8443/c"}, []string{"https://r.example/b" + with, "https://r.example:8443/c"}},
		"without TLS":  {map[string]string{"https://r.example/b": "http://r.example/c"}, []string{"https://r.example/b" + with, "http://r.example/c"}},
		"there and back": {map[string]string{"https://r.example/b": "https://s.example/c", "https://s.example/c": "https://r.example/d"},
			[]string{"https://r.example/b" + with, "https://s.example/c", "https://r.example/d" + with}},
		"two others": {map[string]string{"https://r.example/b": "https://s.example/c", "https://s.example/c": "https://s.example/d"},
			[]string{"https://r.example/b" + with, "https://s.example/c", "https://s.example/d"}},
		"a login in the URL": {map[string]string{"https://r.example/b": "https://u:p@s.example/c"}, []string{"https://r.example/b" + with, "https://s.example/c"}},
	} {
		h := &hops{answers: c.answers}
		resp, err := (&http.Client{Transport: loginEverywhere{KeepLogins(h)}}).Get("https://r.example/b")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		resp.Body.Close()
		if !slices.Equal(h.seen, c.seen) {
			t.Errorf("%s: requests %q, want %q", name, h.seen, c.seen)
		}
	}
}

// Only the first server asks for its login.
func TestOthersAskForNoLogin(t *testing.T) {
	t.Parallel()
	for first, asks := range map[string]bool{"https://r.example/b": true, "https://r.example/a": false} {
		h := &hops{answers: map[string]string{"https://r.example/a": "https://s.example/c", "https://s.example/c": "401", "https://r.example/b": "401"}}
		resp, err := (&http.Client{Transport: KeepLogins(h)}).Get(first)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" == asks {
			t.Errorf("%s: %d, %v", first, resp.StatusCode, resp.Header)
		}
	}
}

// A form with a token is sent once; content that is pushed follows redirects.
func TestATokenIsNotPostedElsewhere(t *testing.T) {
	t.Parallel()
	h := &hops{answers: map[string]string{"https://r.example/token": "https://s.example/token", "https://r.example/upload": "https://s.example/upload"}}
	c := &http.Client{Transport: KeepLogins(h)}
	_, err := c.PostForm("https://r.example/token", url.Values{"refresh_token": {"secret"}})
	if !errors.Is(err, ErrLoginRedirected) || len(h.seen) != 1 {
		t.Errorf("%v, %q", err, h.seen)
	}
	resp, err := c.Post("https://r.example/upload", "application/octet-stream", strings.NewReader("content"))
	if err != nil || len(h.seen) != 3 {
		t.Fatalf("%v, %q", err, h.seen)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Body.Close() != nil {
		t.Error(fmt.Sprint(err))
	}
}
