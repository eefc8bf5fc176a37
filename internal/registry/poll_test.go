//go:build linux

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/registry/registrytest"
)

// proxy stands before a real registry: it counts, and answers itself where a
// test wants that.
type proxy struct {
	addr string

	mu    sync.Mutex
	asked []string
	// instead answers in place of the registry if it returns true; after changes
	// the registry's answer.
	instead func(w http.ResponseWriter, r *http.Request) bool
	after   func(r *http.Response)
}

// own is a transport of one test. The usual one is shared by all of them, and every
// httptest.Server that ends anywhere closes its idle connections: a request whose
// answer was just arriving would break, or be made twice.
func own(t *testing.T) http.RoundTripper {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func before(t *testing.T, s *registrytest.Server) *proxy {
	t.Helper()
	p := &proxy{}
	target, err := url.Parse("http://" + s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	rp := httputil.NewSingleHostReverseProxy(target)
	rp.Transport = own(t)
	rp.ModifyResponse = func(r *http.Response) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.after != nil {
			p.after(r)
		}
		return nil
	}
	rp.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) {
		panic(http.ErrAbortHandler) // a connection that breaks, as without a proxy
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Method+" "+r.URL.Path)
		instead := p.instead
		p.mu.Unlock()
		if instead != nil && instead(w, r) {
			return
		}
		rp.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	p.addr = strings.TrimPrefix(h.URL, "http://")
	return p
}

// count of requests since the last call.
func (p *proxy) count() int { return len(p.requests()) }

func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.asked
	p.asked = nil
	return out
}

func (p *proxy) set(instead func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instead = instead
}

// clock that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newClock() *clock { return &clock{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)} }

func kindOf(err error) Kind {
	var f *Failure
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

func refuse(status int, header ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		return true
	}
}

// Against a real registry: every move is found, and one that did not happen
// costs one request a tag.
func TestPollOneRequestATag(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	p := before(t, s)
	c := newClock()
	poll := NewPoller(own(t), c.Now)
	at := Place{Repository: p.addr + "/shop/app"}
	want := map[string]string{}
	for i := range 20 {
		tag := fmt.Sprintf("2.6.%d-rev1", i)
		want[tag] = s.Push("shop/app", registrytest.Image{Version: fmt.Sprintf("2.6.%d", i), Platforms: []string{"linux/amd64", "linux/arm64"}}, tag)
	}
	all := func(fresh time.Duration) {
		t.Helper()
		for tag, digest := range want {
			if got, err := poll.Digest(t.Context(), at, tag, fresh); err != nil || got != digest {
				t.Fatalf("%s: %s %v, want %s", tag, got, err, digest)
			}
		}
	}
	all(0)
	if first := p.count(); first > len(want)+1 {
		t.Errorf("the first look: %d requests for %d tags; the registry's /v2/ is asked once", first, len(want))
	}
	for range 3 {
		c.now = c.now.Add(time.Hour)
		all(0)
		if n := p.count(); n != len(want) {
			t.Errorf("nothing changed: %d requests for %d tags", n, len(want))
		}
	}
	s.Requests()
	all(0)
	for _, r := range s.Requests() {
		if r.Method != http.MethodHead || r.Status != "304" {
			t.Errorf("a question costs more than it must: %+v", r)
		}
	}
	p.count()
	all(time.Minute)
	if n := p.count(); n != 0 {
		t.Errorf("what another track asked a moment ago was asked again: %d requests", n)
	}
	want["2.6.7-rev1"] = s.Push("shop/app", registrytest.Image{Version: "2.6.7", Layers: []string{"rebuilt"}}, "2.6.7-rev1")
	all(0)
}

// One listing serves all tracks of a repository, however many pages it has.
func TestPollListing(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	p := before(t, s)
	poll := NewPoller(own(t), newClock().Now)
	at := Place{Repository: p.addr + "/app"}
	s.Push("app", registrytest.Image{Version: "1"}, "1-rev1", "1-rev1-b1", "1", "latest", "b", "a")
	p.set(func(w http.ResponseWriter, r *http.Request) bool { // pages of two
		if !strings.HasSuffix(r.URL.Path, "/tags/list") || r.URL.Query().Has("n") {
			return false
		}
		http.Redirect(w, r, r.URL.Path+"?n=2", http.StatusTemporaryRedirect)
		return true
	})
	for range 5 {
		tags, err := poll.Tags(t.Context(), at, time.Minute)
		if want := []string{"1", "1-rev1", "1-rev1-b1", "a", "b", "latest"}; err != nil || !slices.Equal(tags, want) {
			t.Fatalf("%v %v", tags, err)
		}
	}
	lists := 0
	for _, r := range p.requests() {
		if strings.HasPrefix(r, "GET /v2/app/tags/list") {
			lists++
		}
	}
	if lists == 0 || lists > 5 { // one redirect, pages of two
		t.Errorf("%d requests for one listing", lists)
	}
}

// An unreachable registry, one that limits, one that denies and a deleted tag are
// distinguished, and the first two are not asked for a while.
func TestPollFailures(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	p := before(t, s)
	old := s.Push("app", registrytest.Image{Version: "1"}, "1-rev1")
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		tag    string
		kind   Kind
		// rests for at least so long, and no longer than longest.
		rests, longest time.Duration
	}{
		"429 with the seconds to wait": {refuse(429, "Retry-After", "120"), "1-rev1", RateLimited, 2 * time.Minute, 3 * time.Minute},
		"429 with the time":            {refuse(429, "Retry-After", "Fri, 20 Nov 2026 12:10:00 GMT"), "1-rev1", RateLimited, 10 * time.Minute, 11 * time.Minute},
		"429 without a word":           {refuse(429), "1-rev1", RateLimited, 10 * time.Second, time.Minute},
		"a fault":                      {refuse(503), "1-rev1", Unreachable, 10 * time.Second, time.Minute},
		"a connection that breaks":     {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, "1-rev1", Unreachable, 10 * time.Second, time.Minute},
		"not allowed":                  {refuse(403), "1-rev1", Unauthorized, 0, 0},
		"a tag that is not there":      {nil, "2-rev1", TagDeleted, 0, 0},
		"an answer of no registry":     {refuse(418), "1-rev1", InvalidAnswer, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ck := newClock()
			poll := NewPoller(own(t), ck.Now)
			at := Place{Repository: p.addr + "/app"}
			p.set(nil)
			if _, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil {
				t.Fatal(err)
			}
			p.set(c.answer)
			_, err := poll.Digest(t.Context(), at, c.tag, 0)
			if kindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), p.addr+"/app") {
				t.Fatalf("want %s, got %v", c.kind, err)
			}
			p.set(nil)
			p.count()
			if c.rests > 0 {
				ck.now = ck.now.Add(c.rests - time.Second)
				if _, err := poll.Digest(t.Context(), at, c.tag, 0); kindOf(err) != c.kind || p.count() != 0 {
					t.Fatalf("it was not left alone: %v", err)
				}
				ck.now = ck.now.Add(c.longest)
			}
			if got, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil || got != old {
				t.Fatalf("it is not asked again: %s %v", got, err)
			}
		})
	}
	t.Run("a repository that is not there", func(t *testing.T) {
		p.set(nil)
		if _, err := NewPoller(own(t), newClock().Now).Tags(t.Context(), Place{Repository: p.addr + "/none"}, 0); kindOf(err) != RepositoryMissing {
			t.Fatal(err)
		}
	})
	t.Run("the last question that is allowed is the last", func(t *testing.T) {
		ck := newClock()
		poll := NewPoller(own(t), ck.Now)
		at := Place{Repository: p.addr + "/app"}
		p.mu.Lock()
		p.after = func(r *http.Response) { r.Header.Set("RateLimit-Remaining", "0;w=3600") }
		p.mu.Unlock()
		if _, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.after = nil
		p.mu.Unlock()
		p.count()
		if _, err := poll.Digest(t.Context(), at, "1-rev1", 0); kindOf(err) != RateLimited || p.count() != 0 {
			t.Fatalf("%v", err)
		}
		ck.now = ck.now.Add(6 * time.Minute)
		if _, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("each time it waits longer, at most an hour or so", func(t *testing.T) {
		last := time.Duration(0)
		for n := 1; n < 12; n++ {
			w := backoffTime("r.example", n)
			if w < last && w < maxBackoff*9/10 || w > maxBackoff*12/10 {
				t.Errorf("fault %d: %s after %s", n, w, last)
			}
			last = w
		}
	})
}

// A registry that goes and comes back on its own: nothing is forgotten.
func TestPollOverAnOutage(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	ck := newClock()
	poll := NewPoller(own(t), ck.Now)
	at := Place{Repository: s.Addr + "/app"}
	first := s.Push("app", registrytest.Image{Version: "1"}, "1-rev1")
	if got, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil || got != first {
		t.Fatal(got, err)
	}
	s.Stop()
	for range 3 {
		if _, err := poll.Digest(t.Context(), at, "1-rev1", 0); kindOf(err) != Unreachable {
			t.Fatal(err)
		}
		ck.now = ck.now.Add(time.Hour)
	}
	s.Resume()
	if got, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil || got != first {
		t.Fatal(got, err)
	}
	second := s.Push("app", registrytest.Image{Version: "1", Layers: []string{"x"}}, "1-rev1")
	if got, err := poll.Digest(t.Context(), at, "1-rev1", 0); err != nil || got != second {
		t.Fatal(got, err)
	}
}

// What an image says of itself, and all the digests it goes
// by.
func TestDescribe(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	poll := NewPoller(own(t), time.Now)
	at := Place{Repository: s.Addr + "/app"}
	index := s.Push("app", registrytest.Image{Version: "2.6.2", Platforms: []string{"linux/amd64", "linux/arm64"}, Labels: map[string]string{"a": "b"}}, "1")
	one := s.Push("app", registrytest.Image{Version: "2.6.2", Labels: map[string]string{"a": "b"}}, "2")
	d, err := poll.Describe(t.Context(), at, index)
	if err != nil || d.AppVersion != "2.6.2" || d.Labels["a"] != "b" || len(d.Same) != 4 || !slices.Contains(d.Same, one) {
		t.Errorf("%+v %v; the manifest for amd64 is %s", d, err, one)
	}
	if d, err := poll.Describe(t.Context(), at, one); err != nil || len(d.Same) != 1 || d.AppVersion != "2.6.2" {
		t.Errorf("%+v %v", d, err)
	}
	if _, err := poll.Describe(t.Context(), at, "sha256:"+strings.Repeat("0", 64)); kindOf(err) != TagDeleted {
		t.Error(err)
	}
}

// A registry that answers with other bytes than their digest says is not
// believed, and one without a digest in its answer is read.
func TestPollChecks(t *testing.T) {
	t.Parallel()
	s := registrytest.Start(t)
	p := before(t, s)
	poll := NewPoller(own(t), time.Now)
	at := Place{Repository: p.addr + "/app"}
	d := s.Push("app", registrytest.Image{Version: "1"}, "1")
	p.after = func(r *http.Response) { r.Header.Del("Docker-Content-Digest") }
	if got, err := poll.Digest(t.Context(), at, "1", 0); err != nil || got != d {
		t.Errorf("%s %v", got, err)
	}
	p.set(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write([]byte("{}"))
		return true
	})
	if _, err := poll.Describe(t.Context(), at, d); kindOf(err) != InvalidAnswer {
		t.Error(err)
	}
}

// Credentials are those of the secret, sent to their registry alone, and in no error.
func TestKeys(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, ok := r.BasicAuth()
		if !ok || password != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		got = append(got, r.URL.Path)
		w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("a", 64))
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	keys, err := ParseKeys([]byte(fmt.Sprintf(`{"auths":{"https://%s/v1/":{"username":"u","password":%q}}}`, host, secret)))
	if err != nil {
		t.Fatal(err)
	}
	poll := NewPoller(own(t), time.Now)
	if _, err := poll.Digest(t.Context(), Place{Repository: host + "/app"}, "1", 0); kindOf(err) != Unauthorized {
		t.Errorf("as nobody: %v", err)
	}
	if d, err := poll.Digest(t.Context(), Place{Repository: host + "/app", Keys: keys}, "1", 0); err != nil || d == "" || len(got) != 1 {
		t.Errorf("with the keys: %v %v", err, got)
	}
	other, err := ParseKeys([]byte(`{"auths":{"other.example":{"auth":"dTpodW50ZXIyaHVudGVyMg=="}}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = poll.Digest(t.Context(), Place{Repository: host + "/app", Keys: other}, "1", 0)
	if kindOf(err) != Unauthorized || strings.Contains(err.Error(), secret) {
		t.Errorf("with those of another registry: %v", err)
	}
	_, bad := ParseKeys([]byte(`{"auths":{"x":{"auth":"!hunter2hunter2"}}}`))
	for _, said := range []string{fmt.Sprint(keys), fmt.Sprintf("%+v %#v", keys, keys), fmt.Sprint(bad)} {
		if strings.Contains(said, secret) {
			t.Errorf("the secret is in an error: %s", said)
		}
	}
	if bad == nil {
		t.Error("a broken entry is read")
	}
}
