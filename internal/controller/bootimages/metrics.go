package bootimages

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Metrics of the boot images; labels are bounded.
type Metrics struct {
	sources, tooOld, blocked, refused, contradicted, untrusting *prometheus.GaugeVec
}

// New makes the metrics and registers them.
func New(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "refit", Name: name, Help: help}, labels)
	}
	m := &Metrics{
		sources:      gauge("boot_image_sources", "Sources of machines by what their boot image is.", "policy", "state"),
		tooOld:       gauge("boot_image_too_old", "Sources whose boot image is too old for the release that runs: new machines may not join.", "policy"),
		blocked:      gauge("boot_image_skew_not_enforced", "Sources for which nobody promises that images are new enough.", "policy"),
		refused:      gauge("boot_image_machines_refused", "Machines that could not join because of their boot image.", "policy"),
		contradicted: gauge("boot_image_declared_wrong", "Sources whose declared image is not the one that nodes which joined since were born from.", "policy"),
		untrusting:   gauge("boot_image_authority_outdated", "Sources whose first-boot configuration does not trust the server that it fetches from.", "policy"),
	}
	for _, g := range m.all() {
		reg.MustRegister(g)
	}
	return m
}

// Observe sets them from what the policies' status says.
func (m *Metrics) Observe(policies []v1alpha1.BootImagePolicy, sources map[string]*v1alpha1.MachineSource) {
	for _, g := range m.all() {
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
		none, refused, wrong, untrusting := 0, 0, 0, 0
		for _, s := range sources {
			if s.Status.Policy != p.Name {
				continue
			}
			refused += len(s.Status.Refused)
			for to, yes := range map[*int]bool{&none: s.Status.SkewMode == "None", &wrong: s.Status.Contradiction != "",
				&untrusting: meta.IsStatusConditionFalse(s.Status.Conditions, v1alpha1.ConditionAuthority)} {
				if yes {
					*to++
				}
			}
		}
		m.blocked.WithLabelValues(p.Name).Set(float64(none))
		m.refused.WithLabelValues(p.Name).Set(float64(refused))
		m.contradicted.WithLabelValues(p.Name).Set(float64(wrong))
		m.untrusting.WithLabelValues(p.Name).Set(float64(untrusting))
	}
}

func (m *Metrics) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.sources, m.tooOld, m.blocked, m.refused, m.contradicted, m.untrusting}
}
