package osbuild

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// The nodes that have the image of their pool, and the time in the queue and of the push. A pool that
// is no more is not counted any longer.
func TestQueueAndPushMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	r := NewEventRecorder(events.NewFakeRecorder(9), reg)
	image := func(prepulled ...string) []v1alpha1.OSImage {
		o := v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "os"}}
		for i, p := range prepulled {
			o.Status.Pools = append(o.Status.Pools, v1alpha1.OSImagePool{Name: string(rune('a' + i)), Prepulled: p})
		}
		return []v1alpha1.OSImage{o}
	}
	read := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				out[name] = m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
		return out
	}
	r.Count(nil, image("2/5", "", "3/3"))
	want := map[string]float64{"refit_os_image_nodes os a Ready": 2, "refit_os_image_nodes os a Missing": 3, "refit_os_image_nodes os c Ready": 3, "refit_os_image_nodes os c Missing": 0}
	if d := cmp.Diff(want, read()); d != "" {
		t.Error(d)
	}
	created, start := metav1.Unix(1000, 0), metav1.Unix(1090, 0)
	b := &v1alpha1.OSBuild{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}, Spec: v1alpha1.OSBuildSpec{OSImage: "os", Builder: "Append"}}
	r.Count(nil, nil)
	r.Changed(b, &v1alpha1.OSBuildStatus{Phase: v1alpha1.BuildBuilding, StartedAt: &start})
	r.Pushed(b, 7*time.Second)
	if d := cmp.Diff(map[string]float64{"refit_os_build_wait_seconds Append": 90, "refit_os_build_push_seconds Append": 7}, read()); d != "" {
		t.Error(d)
	}
}
