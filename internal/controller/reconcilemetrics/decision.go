package reconcilemetrics

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// buckets are fine around 50 ms, the limit for thirty thousand nodes.
var buckets = []float64{.001, .002, .005, .01, .015, .02, .025, .03, .04, .05, .06, .08, .1, .15, .2, .3, .5, 1, 2, 5}

// Times of the controllers' looks, by the clock on the wall and by the processor's.
type Times struct {
	seconds, processor *prometheus.HistogramVec

	mu      sync.Mutex
	running map[*look]bool
}

// Oldest is the age of the oldest look in progress, 0 if there is none. Waiting for
// the API server counts: a look that never ends is stuck, whatever it waits for.
func (t *Times) Oldest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest time.Duration
	for l := range t.running {
		oldest = max(oldest, time.Since(l.began))
	}
	return oldest
}

func (t *Times) start() *look {
	l := &look{began: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[l] = true
	return l
}

func (t *Times) end(l *look) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, l)
}

// NewTimes makes the metric and registers it.
func NewTimes(reg prometheus.Registerer) *Times {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "refit", Name: name, Help: help, Buckets: buckets}, []string{"controller"})
	}
	t := &Times{running: map[*look]bool{}, seconds: histogram("decision_seconds", "Time that a look at all nodes took, without the time in which it waited for the API server."),
		processor: histogram("decision_processor_seconds", "Processor time of a look at all nodes: what remains of it on a machine that is busy with other things.")}
	reg.MustRegister(t.seconds, t.processor)
	return t
}

// Of measures the looks of a controller.
func (t *Times) Of(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	seconds, processor := t.seconds.WithLabelValues(controller), t.processor.WithLabelValues(controller)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		runtime.LockOSThread() // the processor's clock is the thread's
		defer runtime.UnlockOSThread()
		began := threadTime()
		l := t.start()
		defer func() {
			t.end(l)
			seconds.Observe(l.took(time.Now()).Seconds())
			processor.Observe((threadTime() - began).Seconds())
		}()
		return r.Reconcile(context.WithValue(ctx, key{}, l), req)
	})
}

type key struct{}

// look is one look; requests may be under way side by side.
type look struct {
	began time.Time

	mu       sync.Mutex
	requests int
	since    time.Time
	away     time.Duration
}

func (l *look) out(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == 0 {
		l.since = now
	}
	l.requests++
}

func (l *look) back(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests--
	if l.requests == 0 {
		l.away += now.Sub(l.since)
	}
}

// took is the time since the beginning without the time away.
func (l *look) took(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	away := l.away
	if l.requests > 0 {
		away += now.Sub(l.since)
	}
	return now.Sub(l.began) - away
}

// Transport tells the look, in whose name a request is made, of the request.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	l, ok := req.Context().Value(key{}).(*look)
	if !ok {
		return t.next.RoundTrip(req)
	}
	l.out(time.Now())
	defer func() { l.back(time.Now()) }()
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets the client library find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
