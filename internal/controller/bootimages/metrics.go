package bootimages

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Metrics are the metrics of boot images; their labels are bounded.
type Metrics struct {
	sources, tooOld, blocked, refused, contradicted, outdatedAuthority *prometheus.GaugeVec
}

// NewMetrics creates and registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		sources:           gauge("boot_image_sources", "Machine sources by the state of their boot image.", "policy", "state"),
		tooOld:            gauge("boot_image_too_old", "Machine sources whose boot image is too old for the running release: new machines may fail to join.", "policy"),
		blocked:           gauge("boot_image_skew_not_enforced", "Machine sources for which refit does not enforce that images are new enough.", "policy"),
		refused:           gauge("boot_image_machines_refused", "Machines that could not join because of their boot image.", "policy"),
		contradicted:      gauge("boot_image_declared_wrong", "Machine sources whose declared image differs from the installed image of nodes that joined later.", "policy"),
		outdatedAuthority: gauge("boot_image_authority_outdated", "Machine sources whose first-boot configuration does not trust the server that it fetches from.", "policy"),
	}
	for _, g := range m.gauges() {
		reg.MustRegister(g)
	}
	return m
}

// Observe sets the metrics from the policies' status.
func (m *Metrics) Observe(policies []v1alpha1.BootImagePolicy, sources map[string]*v1alpha1.MachineSource) {
	for _, g := range m.gauges() {
		g.Reset()
	}
	for i := range policies {
		p := &policies[i]
		st := &p.Status
		for state, n := range map[string]int32{v1alpha1.SourceCurrent: st.Current, v1alpha1.SourceOutdated: st.Outdated, v1alpha1.SourceSkipped: st.Skipped,
			v1alpha1.SourceExcluded: st.Excluded, v1alpha1.SourceUnknown: st.Unknown, v1alpha1.SourceContested: st.Contested} {
			m.sources.WithLabelValues(p.Name, state).Set(float64(n))
		}
		m.tooOld.WithLabelValues(p.Name).Set(float64(st.TooOld))
		none, refused, wrong, untrusting := 0, 0, 0, 0 // none: a person ended the enforcement
		for _, s := range sources {
			if s.Status.Policy != p.Name {
				continue
			}
			refused += len(s.Status.Refused)
			for to, yes := range map[*int]bool{&none: cmp.Or(s.Spec.Skew, p.Spec.Skew.Mode) == "None", &wrong: s.Status.Contradiction != "",
				&untrusting: meta.IsStatusConditionFalse(s.Status.Conditions, v1alpha1.ConditionAuthority)} {
				if yes {
					*to++
				}
			}
		}
		m.blocked.WithLabelValues(p.Name).Set(float64(none))
		m.refused.WithLabelValues(p.Name).Set(float64(refused))
		m.contradicted.WithLabelValues(p.Name).Set(float64(wrong))
		m.outdatedAuthority.WithLabelValues(p.Name).Set(float64(untrusting))
	}
}

func (m *Metrics) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.sources, m.tooOld, m.blocked, m.refused, m.contradicted, m.outdatedAuthority}
}
