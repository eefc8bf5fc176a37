package queue

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type slow time.Duration

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(s))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func sum(t *testing.T, reg *prometheus.Registry) (seconds float64, count uint64) {
	t.Helper()
	got, err := reg.Gather()
	if err != nil || len(got) != 2 || got[1].GetName() != "refit_decision_seconds" {
		t.Fatalf("%d metrics, %v", len(got), err)
	}
	if n := got[0].GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("processor time of %d looks", n)
	}
	h := got[1].GetMetric()[0].GetHistogram()
	return h.GetSampleSum(), h.GetSampleCount()
}

// A look counts what it does by itself; requests count not at all, also if
// several are under way at once.
func TestRequestsAreNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		ask := func(ctx context.Context, takes time.Duration) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := Transport(slow(takes)).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}
		looks := NewTimes(reg).Of("nodedistribution", reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			time.Sleep(30 * time.Millisecond)
			ask(ctx, time.Second)
			time.Sleep(10 * time.Millisecond)
			done := make(chan bool)
			for _, takes := range []time.Duration{time.Second, 3 * time.Second} {
				go func() { ask(ctx, takes); done <- true }()
			}
			<-done
			<-done
			return reconcile.Result{}, nil
		}))
		began := time.Now()
		if _, err := looks.Reconcile(context.Background(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if all := time.Since(began); all != 4040*time.Millisecond {
			t.Fatalf("the look took %s", all)
		}
		if seconds, n := sum(t, reg); n != 1 || seconds < 0.0399 || seconds > 0.0401 {
			t.Errorf("%d looks decided for %.3f s, want one with 0.040", n, seconds)
		}
		ask(context.Background(), time.Second) // a request outside of a reconcile passes
	})
}

// A look that does not end is seen from outside, and forgotten when it ends.
func TestTheOldestLookIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := NewTimes(prometheus.NewRegistry())
		hang := make(chan struct{})
		r := times.Of("hangs", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			<-hang
			return reconcile.Result{}, nil
		}))
		if age := times.Oldest(); age != 0 {
			t.Errorf("nothing is in progress, and the oldest look is %s old", age)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = r.Reconcile(t.Context(), reconcile.Request{})
		}()
		time.Sleep(7 * time.Minute)
		if age := times.Oldest(); age != 7*time.Minute {
			t.Errorf("the oldest look is %s old", age)
		}
		close(hang)
		<-done
		if age := times.Oldest(); age != 0 {
			t.Errorf("it ended, and the oldest look is %s old", age)
		}
	})
}
