package agent

import (
	"reflect"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// A database that grows and a clock that drifts are no reason to write; a
// member that is not healthy any more is.
func TestHealthIsQuietUntilItMatters(t *testing.T) {
	t.Parallel()
	report := func(skew int32, size int64, healthy bool) *v1alpha1.NodeUpdateStatus {
		return &v1alpha1.NodeUpdateStatus{Health: &v1alpha1.NodeHealth{ClockSkewSeconds: &skew, Etcd: &v1alpha1.EtcdHealth{Healthy: healthy, SizeBytes: size, InUseBytes: size / 2}}}
	}
	a := report(0, 10, true)
	if !reflect.DeepEqual(quiet(a), quiet(report(1, 20, true))) {
		t.Error("numbers that change at every look are written at every look")
	}
	if reflect.DeepEqual(plain(a), plain(report(0, 10, false))) {
		t.Error("a member that fell ill is no change")
	}
	if a.Health.Etcd.SizeBytes != 10 || a.Health.ClockSkewSeconds == nil {
		t.Error("the comparison changed the report")
	}
}
