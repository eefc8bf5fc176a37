package notifications

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/refit-dev/refit/internal/outbound"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// got is a request that a receiver got.
type got struct {
	path, signature, authorization string
	body                           []byte
	// answered is the status that the receiver answered with.
	answered int
}

func (g got) notice(t *testing.T) (n notice) {
	t.Helper()
	if err := json.Unmarshal(g.body, &n); err != nil {
		t.Fatalf("%v in %s", err, g.body)
	}
	return n
}

// endpoint is an HTTP server that keeps its requests and answers with a status.
type endpoint struct {
	*httptest.Server
	requests chan got
	status   atomic.Int64
}

func newEndpoint(t *testing.T, start func(http.Handler) *httptest.Server) *endpoint {
	t.Helper()
	e := &endpoint{requests: make(chan got, 1000)}
	e.status.Store(http.StatusNoContent)
	e.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status := int(e.status.Load())
		select {
		case e.requests <- got{r.URL.Path, r.Header.Get(SignatureHeader), r.Header.Get("Authorization"), body, status}:
		default: // a receiver that fails is asked often
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(e.Close)
	return e
}

// next is the next request.
func (e *endpoint) next(t *testing.T) got {
	t.Helper()
	select {
	case g := <-e.requests:
		return g
	case <-time.After(patience):
		t.Fatal("no request came")
	}
	return got{}
}

// accepted is the next request that was accepted.
func (e *endpoint) accepted(t *testing.T) got {
	t.Helper()
	for {
		if g := e.next(t); g.answered < 300 {
			return g
		}
	}
}

func (e *endpoint) receiver(t *testing.T, name, kind string) *receiver {
	t.Helper()
	u, err := url.Parse(e.URL + "/s3cret")
	if err != nil {
		t.Fatal(err)
	}
	return &receiver{name: name, kind: kind, url: u}
}

// local lets the tests' servers be reached.
var local = outbound.New(outbound.ServerFlag, "127.0.0.1")

func testPoster(r *receiver, log logr.Logger) *poster {
	p := newPoster(r, local, log, newMetric())
	p.pause = func(int) time.Duration { return time.Millisecond }
	return p
}

// counted is the metric of a result.
func counted(t *testing.T, p *poster, result string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(p.metric)
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" && l.GetValue() == result {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// What a request has, which answers count, and that errors have no secret.
func TestPost(t *testing.T) {
	t.Parallel()
	target := newEndpoint(t, httptest.NewServer)
	hang := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(hang); slow.Close() })
	redirect := httptest.NewServer(http.RedirectHandler(target.URL+"/s3cret", http.StatusTemporaryRedirect))
	t.Cleanup(redirect.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	secure := newEndpoint(t, httptest.NewTLSServer)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	roots, err := readAuthorities("ca", func(string) ([]byte, error) { return authority, nil })
	if err != nil {
		t.Fatal(err)
	}
	status := func(code int) *endpoint {
		e := newEndpoint(t, httptest.NewServer)
		e.status.Store(int64(code))
		return e
	}
	for name, tc := range map[string]struct {
		url    string
		change func(*poster)
		want   string // the error
	}{
		"accepted":                     {url: target.URL},
		"401":                          {url: status(401).URL, want: "it answered 401: check hmacKeyFile and bearerTokenFile"},
		"500":                          {url: status(500).URL, want: "it answered 500 Internal Server Error"},
		"a redirect":                   {url: redirect.URL, want: "it answered 307, and redirects are refused"},
		"slow":                         {url: slow.URL, change: func(p *poster) { p.timeout = 50 * time.Millisecond }, want: "it did not answer within 50ms"},
		"no server":                    {url: closed.URL, want: "connection refused"},
		"TLS with its authority":       {url: secure.URL, change: func(p *poster) { p.http.Transport.(*http.Transport).TLSClientConfig.RootCAs = roots }},
		"TLS of an unknown authority":  {url: secure.URL, want: "certificate"},
		"an address of this machine":   {url: target.URL, change: func(p *poster) { p.http.Transport = outbound.New(outbound.ServerFlag).Transport() }, want: "-local-server="},
		"a proxy's password in errors": {url: "http://user:s3cret@" + strings.TrimPrefix(closed.URL, "http://"), want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := url.Parse(tc.url + "/s3cret")
			if err != nil {
				t.Fatal(err)
			}
			p := testPoster(&receiver{name: "ops", url: to, key: []byte("k3y"), token: "t0ken"}, logr.Discard())
			if tc.change != nil {
				tc.change(p)
			}
			err = p.post(t.Context(), to, []byte(`{"a":1}`))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "t0ken")):
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
	g := target.next(t)
	// printf '{"a":1}' | openssl dgst -sha256 -hmac k3y
	if want := sign([]byte("k3y"), []byte(`{"a":1}`)); g.signature != want || !strings.HasPrefix(want, "sha256=") || len(want) != 7+64 {
		t.Errorf("signature %q, want %q", g.signature, want)
	}
	if g.authorization != "Bearer t0ken" || string(g.body) != `{"a":1}` {
		t.Errorf("%+v", g)
	}
	if len(target.requests) != 0 {
		t.Error("a refused request came to its target")
	}
}

// The signature is the HMAC that other tools compute (RFC 4231, test case 2).
func TestSignature(t *testing.T) {
	t.Parallel()
	if got := sign([]byte("Jefe"), []byte("what do ya want for nothing?")); got != "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" {
		t.Error(got)
	}
}

// runWebhook runs a webhook until the test ends; arrived gets the IDs of delivered notices.
func runWebhook(t *testing.T, p *poster) (w *webhook, arrived chan string) {
	t.Helper()
	arrived = make(chan string, 1000)
	w = newWebhook(p, time.Now, func(n notice) { arrived <- n.ID })
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w, arrived
}

func receive(t *testing.T, from chan string) string {
	t.Helper()
	select {
	case s := <-from:
		return s
	case <-time.After(patience):
		t.Fatal("nothing was delivered")
	}
	return ""
}

// A webhook that is unreachable for a while gets the same bytes again until it accepts them,
// once; what logs say has no secret.
func TestWebhookRetries(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, httptest.NewServer)
	e.status.Store(http.StatusServiceUnavailable)
	var mu sync.Mutex
	var log bytes.Buffer
	p := testPoster(e.receiver(t, "ops", typeWebhook), funcr.New(func(_, args string) { mu.Lock(); log.WriteString(args + "\n"); mu.Unlock() }, funcr.Options{}))
	w, arrived := runWebhook(t, p)
	w.set([]notice{{ID: "a", Event: eventFailed, Update: "to-136"}})
	first := e.next(t)
	for range 3 {
		if again := e.next(t); !bytes.Equal(first.body, again.body) {
			t.Errorf("%s, then %s", first.body, again.body)
		}
	}
	w.set([]notice{{ID: "a", Event: eventFailed, Update: "to-136", NodesDone: 2}, {ID: "b"}})
	e.status.Store(http.StatusOK)
	ids := []string{receive(t, arrived), receive(t, arrived)}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("delivered %q", ids)
	}
	if sent, failed := counted(t, p, resultSent), counted(t, p, resultFailed); sent != 2 || failed < 4 {
		t.Errorf("sent %v, failed %v", sent, failed)
	}
	mu.Lock()
	defer mu.Unlock()
	if text := log.String(); !strings.Contains(text, "it answered 503") || strings.Contains(text, "s3cret") {
		t.Error(text)
	}
}

// What is not due any more is dropped, and the queue is bounded: the oldest go first.
func TestWebhookQueue(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, httptest.NewServer)
	p := testPoster(e.receiver(t, "ops", typeWebhook), logr.Discard())
	w := newWebhook(p, time.Now, func(notice) {})
	dropped := func() float64 { return counted(t, p, resultDropped) }
	w.set([]notice{{ID: "a"}, {ID: "b"}})
	w.set([]notice{{ID: "b"}})
	if len(w.pending) != 1 || w.pending[0].ID != "b" || dropped() != 1 {
		t.Errorf("%d wait, %v dropped", len(w.pending), dropped())
	}
	many := make([]notice, maxQueue+7)
	for i := range many {
		many[i].ID = strings.Repeat("x", i+1)
	}
	w.set(many)
	if len(w.pending) != maxQueue || w.pending[0].ID != strings.Repeat("x", 8) {
		t.Errorf("%d wait", len(w.pending))
	}
}

// Pauses grow, are bounded, and differ.
func TestPause(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for failures := range 50 {
		d := pause(failures)
		if d < firstPause/2 || d > maxPause || failures >= 7 && d < maxPause/2 {
			t.Errorf("after %d failures %s", failures, d)
		}
		seen[d] = true
	}
	if len(seen) < 25 {
		t.Errorf("%d different pauses", len(seen))
	}
}

func alerts(t *testing.T, g got) []alert {
	t.Helper()
	var out []alert
	if err := json.Unmarshal(g.body, &out); err != nil || g.path != "/s3cret/api/v2/alerts" {
		t.Fatalf("%s: %v in %s", g.path, err, g.body)
	}
	return out
}

// An Alertmanager gets each alert with an end in the future, again after a failure, and once
// more with an end that has passed when it is over.
func TestAlertmanager(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, httptest.NewServer)
	e.status.Store(http.StatusInternalServerError)
	p := testPoster(e.receiver(t, "am", typeAlertmanager), logr.Discard())
	s := newAlertmanager(p, time.Now)
	n := notice{Event: eventFailed, Update: "to-136", Cluster: "site-7", Phase: "Halted", Reason: "StepFailed", Message: "m", Fix: "f", At: time.Now().Add(-time.Hour), NodesDone: 1, NodesTotal: 3}
	s.set([]notice{n})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	_ = e.next(t)
	e.status.Store(http.StatusOK)
	all := alerts(t, e.next(t))
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	a := all[0]
	for name, want := range map[string]string{"alertname": "RefitUpdateFailed", "severity": "critical", "update": "to-136", "cluster": "site-7"} {
		if a.Labels[name] != want {
			t.Errorf("label %s: %q", name, a.Labels[name])
		}
	}
	if a.Annotations["fix"] != "f" || a.Annotations["nodes"] != "1/3" || !a.StartsAt.Equal(n.At) || !a.EndsAt.After(time.Now()) {
		t.Errorf("%+v", a)
	}
	s.set(nil)
	for {
		if all = alerts(t, e.next(t)); len(all) == 1 && !all[0].EndsAt.After(time.Now()) {
			break
		}
	}
	if all[0].Labels["alertname"] != "RefitUpdateFailed" {
		t.Errorf("%+v", all)
	}
}

// Alerts of a start and an end do not stay for ever, and labels do not change with progress.
func TestAlertFor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n    notice
		want bool
	}{
		"an update that runs":    {notice{Event: eventStarted, Phase: "Updating", At: noon}, true},
		"the start of one done":  {notice{Event: eventStarted, Phase: "Done", At: noon}, false},
		"one that is just done":  {notice{Event: eventDone, Phase: "Done", At: noon}, true},
		"one that was done once": {notice{Event: eventDone, Phase: "Done", At: noon.Add(-2 * doneTime)}, false},
		"a wait":                 {notice{Event: eventNeedsPerson, Reason: "NodeOnHold", At: noon.Add(-100 * time.Hour)}, true},
	} {
		a, active := alertFor(&tc.n, noon.Add(time.Minute))
		if active != tc.want || a.Labels["severity"] == "" || a.Annotations["summary"] == "" {
			t.Errorf("%s: %v %+v", name, active, a)
		}
		moved := tc.n
		moved.NodesDone, moved.Message = 7, "other"
		if b, _ := alertFor(&moved, noon.Add(time.Minute)); a.key() != b.key() {
			t.Errorf("%s: %s, then %s", name, a.key(), b.key())
		}
	}
}
