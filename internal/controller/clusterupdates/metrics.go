package clusterupdates

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Metrics are the metrics of ClusterUpdates; their labels are bounded.
type Metrics struct {
	info, progress, nodes, blocked, eta, downtime *prometheus.GaugeVec
}

// NewMetrics creates and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		info:     gauge("update_info", "1 for every ClusterUpdate, with its target and phase.", "update", "version", "phase"),
		progress: gauge("update_progress_ratio", "Share of the plan's nodes that were observed at the target.", "update"),
		nodes:    gauge("nodes", "Nodes by the phase that their agent reports.", "phase"),
		blocked:  gauge("update_blocked", "Reasons that block an update.", "update", "reason"),
	}
	m.eta = gauge("update_eta_seconds", "Latest expected time until the update is done; absent while unknown.", "update")
	m.downtime = gauge("update_api_away_seconds", "Time without an answer from the API server while nodes moved.", "update")
	reg.MustRegister(m.info, m.progress, m.nodes, m.blocked, m.eta, m.downtime)
	return m
}

func (m *Metrics) observe(w *rolloutSnapshot) {
	for _, g := range []*prometheus.GaugeVec{m.info, m.progress, m.nodes, m.blocked, m.eta, m.downtime} {
		g.Reset()
	}
	for i := range w.moves {
		m.observeUpdate(&w.moves[i], w.now)
	}
	phases := map[string]int{}
	for _, nu := range w.reports {
		phase := "NoAgent"
		if nu != nil && nu.Status.Phase != "" {
			phase = nu.Status.Phase
		}
		phases[phase]++
	}
	for phase, n := range phases {
		m.nodes.WithLabelValues(phase).Set(float64(n))
	}
}

func (m *Metrics) observeUpdate(u *v1alpha1.ClusterUpdate, now time.Time) {
	m.info.WithLabelValues(u.Name, u.Status.Version, u.Status.Phase).Set(1)
	if e := u.Status.Estimate; e != nil {
		m.eta.WithLabelValues(u.Name).Set(max(0, e.Latest.Sub(now).Seconds()))
	}
	if a := u.Status.APIUnavailable; a != nil {
		m.downtime.WithLabelValues(u.Name).Set(float64(a.Seconds))
	}
	ratio := 0.0
	switch {
	case u.Status.Phase == v1alpha1.PhaseDone:
		ratio = 1
	case u.Status.NodesTotal > 0:
		ratio = float64(u.Status.NodesDone) / float64(u.Status.NodesTotal)
	}
	m.progress.WithLabelValues(u.Name).Set(ratio)
	for _, b := range u.Status.Blockers {
		m.blocked.WithLabelValues(u.Name, b.Reason).Inc()
	}
}
