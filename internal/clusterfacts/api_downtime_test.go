package clusterfacts

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

// What counts is the time between the first question without an answer and the
// first answer after it, only while nodes move, and for one update only.
func TestMeter(t *testing.T) {
	t.Parallel()
	now, up, asked := start, true, 0
	m := &DowntimeMeter{Now: func() time.Time { return now }, IsReady: func(context.Context) bool { asked++; return up }}
	pass := func(seconds int, answers bool) {
		up = answers
		for range seconds {
			m.probe(context.Background())
			now = now.Add(time.Second)
		}
	}
	pass(10, false)
	if asked > 0 || m.Measured() != (Downtime{}) {
		t.Errorf("nothing moves, and it asked %d times: %+v", asked, m.Measured())
	}
	m.Track("u", true)
	pass(5, true)
	pass(3, false)
	pass(1, true)
	pass(7, false)
	if got := m.Measured(); got != (Downtime{3 * time.Second, 3 * time.Second}) {
		t.Errorf("what has not ended is not read yet: %+v", got)
	}
	m.Track("u", false) // nothing moves any more, but it is still away
	pass(2, false)
	pass(1, true)
	if got := m.Measured(); got != (Downtime{12 * time.Second, 9 * time.Second}) {
		t.Errorf("%+v", got)
	}
	before := asked
	pass(5, true)
	if asked != before {
		t.Error("it goes on asking although nothing moves")
	}
	m.Track("v", true)
	if got := m.Measured(); got != (Downtime{}) {
		t.Errorf("another update begins at nothing: %+v", got)
	}
}

// Every question is asked on a connection of its own; an answer without a right
// to one is an answer, an error of the server is none.
func TestAsk(t *testing.T) {
	t.Parallel()
	code, connections := http.StatusOK, map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		connections[r.RemoteAddr] = true
		w.WriteHeader(code)
	}))
	m, err := NewDowntimeMeter(&rest.Config{Host: srv.URL}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[int]bool{http.StatusOK: true, http.StatusUnauthorized: true, http.StatusInternalServerError: false} {
		if code = c; m.IsReady(context.Background()) != want {
			t.Errorf("%d: want %t", c, want)
		}
	}
	if len(connections) != 3 {
		t.Errorf("%d connections for three questions", len(connections))
	}
	srv.Close()
	if m.IsReady(context.Background()) {
		t.Error("a closed port counts as an answer")
	}
}
