package controller_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// The controller's wall clock jumps forward and backward by hours while a node drains and
// while nodes soak. No drain exceeds its limit because of the jump, no soak ends early, and
// neither takes longer.
func TestClockOfTheControllerIsSet(t *testing.T) {
	s := newSite(t, from)
	raw := release(t, to)
	s.plugIn("n1", raw)
	s.approve("expected", digest(t, raw))
	s.create(owned(pod("default", "web-1", "n2", "web"), map[string]string{"app": "web"}))
	s.budget(0)
	s.pools(func(p *v1alpha1.UpdatePoolSpec) {
		one := intstr.FromInt32(1)
		p.MaxUnavailable, p.SoakSeconds, p.DrainTimeoutSeconds = &one, 600, 300
	})
	setClock := func(what string, holds func(*v1alpha1.ClusterUpdate) bool) {
		for _, by := range []time.Duration{6 * time.Hour, -6 * time.Hour, -20 * 365 * 24 * time.Hour, 0} {
			s.set.Store(int64(by / time.Second))
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				s.waitUpdate("u", what+", its clock set by "+by.String(), holds)
			}
		}
	}
	s.update("u", digest(t, raw), nil)
	drains := func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseUpdating && u.Status.NodesDone == 1 && u.Status.NodesFailed == 0
	}
	s.waitUpdate("u", "n2 is drained", func(u *v1alpha1.ClusterUpdate) bool { return drains(u) && blocked(v1alpha1.ReasonDisruptionBudget)(u) })
	setClock("n2 is drained", drains)
	s.allow(1)
	watched := func(u *v1alpha1.ClusterUpdate) bool {
		return u.Status.Phase == v1alpha1.PhaseUpdating && u.Status.NodesDone == 2 && u.Status.NodesFailed == 0
	}
	s.waitUpdate("u", "n2 is watched", func(u *v1alpha1.ClusterUpdate) bool { return watched(u) && blocked(v1alpha1.ReasonSoaking)(u) })
	setClock("n2 is watched", watched)
	s.untouched("n3", from)
	s.ahead.Add(int64(11 * time.Minute)) // time passes
	s.waitUpdate("u", "n3 goes", func(u *v1alpha1.ClusterUpdate) bool { return u.Status.NodesDone == 3 })
}
