//go:build linux

package imagetracks

import (
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// The status names a scheme that reads none of the tags, and the scheme that they look like.
func TestASchemeThatDoesNotFit(t *testing.T) {
	w := newTestCluster(t)
	a := w.reg.Push("shop/app", build("one"), "2.6.2-rev1-b5.1", "2.6.2-rev1", "latest")
	w.create(deployment("app", w.reg.Ref("shop/app:2.6.2-rev1"), 1))
	w.runDigests("app", a)
	w.newTrack(func(s *v1alpha1.ImageTrackSpec) {
		s.Scheme, s.Follow = "date", v1alpha1.TrackFollow{Tier: v1alpha1.TierIntermediate}
	})
	o := w.reconcile("app")
	if e := o.Status.PollError; e == nil || e.Reason != v1alpha1.ReasonSchemeUnfit {
		t.Fatalf("%+v", e)
	}
	checkCondition(t, o, v1alpha1.ConditionReady, v1alpha1.ReasonSchemeUnfit, "scheme date reads none of its 3 tags", "they look like scheme rev")
	w.editSpec("app", func(s *v1alpha1.ImageTrackSpec) { s.Scheme = "rev" })
	w.nextPoll()
	if o = w.reconcile("app"); o.Status.PollError != nil {
		t.Fatalf("%+v", o.Status.PollError)
	}
}
