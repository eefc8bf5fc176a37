package etcd

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const metrics = `# TYPE etcd_mvcc_db_total_size_in_bytes gauge
etcd_mvcc_db_total_size_in_bytes 2.5e+07
etcd_mvcc_db_total_size_in_use_in_bytes 1.048576e+06
etcd_server_quota_backend_bytes 2.147483648e+09
etcd_server_has_leader 1
`

func pages(t *testing.T, status int, health, metrics string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = w.Write([]byte(metrics))
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(health))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestAsk(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status          int
		health, metrics string
		want            Health
	}{
		"a healthy member":                 {200, `{"health":"true","reason":""}`, metrics, Health{Healthy: true, Size: 25000000, InUse: 1 << 20, Quota: 2 << 30}},
		"one with an alarm says which":     {503, `{"health":"false","reason":"ALARM NOSPACE"}`, metrics, Health{Message: "ALARM NOSPACE", Size: 25000000, InUse: 1 << 20, Quota: 2 << 30}},
		"one that says no more than false": {503, `{"health":"false"}`, "", Health{Message: "URL/health answers 503: it has no leader, or an alarm"}},
		"something else on that port":      {200, `<html>`, "", Health{Message: "URL/health answers 200 and no JSON"}},
		"no quota said is etcd's own":      {200, `{"health":"true"}`, "etcd_mvcc_db_total_size_in_bytes 5\n", Health{Healthy: true, Size: 5, Quota: 2 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := pages(t, tc.status, tc.health, tc.metrics)
			got := QueryHealth(t.Context(), base)
			got.Message = strings.ReplaceAll(got.Message, base, "URL")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if h := QueryHealth(t.Context(), "http://127.0.0.1:1"); h.Healthy || !strings.Contains(h.Message, "does not answer") {
		t.Errorf("%+v", h)
	}
}

func TestMetricsURL(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"http://127.0.0.1:2381":                        "http://127.0.0.1:2381",
		"https://10.0.0.1:2379,http://localhost:2381/": "http://localhost:2381",
		"http://10.0.0.1:2381":                         "", // not ours to ask: it leaves the node
		"https://127.0.0.1:2379":                       "", // needs a certificate
		"":                                             "",
	} {
		if got := MetricsURL(flag); got != want {
			t.Errorf("%q: %q, want %q", flag, got, want)
		}
	}
}
