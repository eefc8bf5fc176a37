package clusterupdates

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Metrics of the updates; labels are bounded.
type Metrics struct {
	info, progress, nodes, blocked, eta, away *prometheus.GaugeVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		info:     gauge("update_info", "1 for every ClusterUpdate, with its target and phase.", "update", "version", "phase"),
		progress: gauge("update_progress_ratio", "Nodes observed at the target, of those in the plan.", "update"),
		nodes:    gauge("nodes", "Nodes by what their agent is busy with.", "phase"),
		blocked:  gauge("update_blocked", "Reasons why an update does not go on.", "update", "reason"),
	}
	m.eta = gauge("update_eta_seconds", "Time until the update is expected to be done, the latest; absent while it is not known.", "update")
	m.away = gauge("update_api_away_seconds", "How long the API server did not answer while nodes moved.", "update")
	reg.MustRegister(m.info, m.progress, m.nodes, m.blocked, m.eta, m.away)
	return m
}

func (m *Metrics) observe(w *rolloutSnapshot) {
	for _, g := range []*prometheus.GaugeVec{m.info, m.progress, m.nodes, m.blocked, m.eta, m.away} {
		g.Reset()
	}
	for i := range w.moves {
		m.update(&w.moves[i], w.now)
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

func (m *Metrics) update(u *v1alpha1.ClusterUpdate, now time.Time) {
	m.info.WithLabelValues(u.Name, u.Status.Version, u.Status.Phase).Set(1)
	if e := u.Status.Estimate; e != nil {
		m.eta.WithLabelValues(u.Name).Set(max(0, e.Latest.Sub(now).Seconds()))
	}
	if a := u.Status.APIUnavailable; a != nil {
		m.away.WithLabelValues(u.Name).Set(float64(a.Seconds))
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
