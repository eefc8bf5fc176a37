package clusterapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the hooks.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refit_cluster_api_requests_total", Help: "Requests of Cluster API by hook and outcome."}, []string{"hook", "outcome"}),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "refit_cluster_api_request_duration_seconds", Help: "How long answers to Cluster API took."}, []string{"hook"}),
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
