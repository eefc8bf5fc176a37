package controller

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		oldest          time.Duration
		waiting         string
		healthy, ready  int
		healthz, readyz string
	}{
		"at the start it lives and is not ready": {0, "waiting for the API server: connection refused", 200, 503, "ok", "connection refused"},
		"at work it is both":                     {time.Second, "", 200, 200, "ok", "ok"},
		"a reconcile that does not end is stuck": {6 * time.Minute, "", 503, 200, "6m0s", "ok"},
		"a long reconcile is not stuck":          {5 * time.Minute, "", 200, 200, "ok", "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newProbeServer(func() time.Duration { return tc.oldest }, 5*time.Minute)
			if code, text := ask(s, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "starts") {
				t.Errorf("a new one: %d %q", code, text)
			}
			s.Waiting(tc.waiting)
			if code, text := ask(s, "/healthz"); code != tc.healthy || !strings.Contains(text, tc.healthz) {
				t.Errorf("/healthz: %d %q", code, text)
			}
			if code, text := ask(s, "/readyz"); code != tc.ready || !strings.Contains(text, tc.readyz) {
				t.Errorf("/readyz: %d %q", code, text)
			}
		})
	}
}

func ask(s *probeServer, path string) (int, string) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestAnAddressInUseIsNamed(t *testing.T) {
	if err := newProbeServer(nil, 0).Listen(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	address := strings.TrimPrefix(other.URL, "http://")
	if err := newProbeServer(nil, 0).Listen(t.Context(), address); err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "-health-address") {
		t.Errorf("%v", err)
	}
}
