package clusterapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the hooks.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refit_cluster_api_requests_total", Help: "Requests from Cluster API by hook and outcome."}, []string{"hook", "outcome"}),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "refit_cluster_api_request_duration_seconds", Help: "Time to answer Cluster API."}, []string{"hook"}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.seconds)
	}
	return m
}

func (m *metrics) observe(hook, outcome string, took time.Duration) {
	m.requests.WithLabelValues(hook, outcome).Inc()
	m.seconds.WithLabelValues(hook).Observe(took.Seconds())
}
