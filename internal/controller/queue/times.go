package queue

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

// Times measures reconciles, in wall clock time and in processor time.
type Times struct {
	seconds, processor *prometheus.HistogramVec

	mu      sync.Mutex
	running map[*reconcileTimer]bool
}

// Oldest is the age of the oldest running reconcile, 0 if there is none. Waiting for the
// API server counts: a reconcile that never ends is stuck in any case.
func (t *Times) Oldest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest time.Duration
	for l := range t.running {
		oldest = max(oldest, time.Since(l.startedAt))
	}
	return oldest
}

func (t *Times) start() *reconcileTimer {
	l := &reconcileTimer{startedAt: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[l] = true
	return l
}

func (t *Times) end(l *reconcileTimer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, l)
}

// NewTimes makes the metric and registers it.
func NewTimes(reg prometheus.Registerer) *Times {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "refit", Name: name, Help: help, Buckets: buckets}, []string{"controller"})
	}
	t := &Times{running: map[*reconcileTimer]bool{}, seconds: histogram("decision_seconds", "Duration of a reconcile of all nodes, without the time in which it waited for the API server."),
		processor: histogram("decision_processor_seconds", "Processor time of a reconcile of all nodes, which other load on the machine does not change.")}
	reg.MustRegister(t.seconds, t.processor)
	return t
}

// Of measures the reconciles of a controller.
func (t *Times) Of(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	seconds, processor := t.seconds.WithLabelValues(controller), t.processor.WithLabelValues(controller)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		runtime.LockOSThread() // the processor's clock is the thread's
		defer runtime.UnlockOSThread()
		began := threadTime()
		l := t.start()
		defer func() {
			t.end(l)
			seconds.Observe(l.ownTime(time.Now()).Seconds())
			processor.Observe((threadTime() - began).Seconds())
		}()
		return r.Reconcile(context.WithValue(ctx, key{}, l), req)
	})
}

type key struct{}

// reconcileTimer measures one reconcile; several requests may run in parallel.
type reconcileTimer struct {
	startedAt time.Time

	mu       sync.Mutex
	requests int
	since    time.Time
	waited   time.Duration
}

func (l *reconcileTimer) requestStarted(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == 0 {
		l.since = now
	}
	l.requests++
}

func (l *reconcileTimer) requestFinished(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests--
	if l.requests == 0 {
		l.waited += now.Sub(l.since)
	}
}

// ownTime is the time since the start without the time that waited for requests.
func (l *reconcileTimer) ownTime(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	away := l.waited
	if l.requests > 0 {
		away += now.Sub(l.since)
	}
	return now.Sub(l.startedAt) - away
}

// Transport reports each request to the timer of the reconcile that makes it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	l, ok := req.Context().Value(key{}).(*reconcileTimer)
	if !ok {
		return t.next.RoundTrip(req)
	}
	l.requestStarted(time.Now())
	defer func() { l.requestFinished(time.Now()) }()
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets the client library find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
