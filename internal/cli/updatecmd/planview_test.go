package updatecmd

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout/forecast"
)

// What refit plan says of the rollout is made of the pools, the nodes' labels and
// their records, as the controller would read them.
func TestOutline(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	two := intstr.FromInt32(2)
	pool := v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &two, Canary: &v1alpha1.Canary{Nodes: intstr.FromInt32(1), SoakSeconds: 600},
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "edge"}}, Windows: []v1alpha1.Window{{Start: "22:00", DurationMinutes: 60}}}}
	var nodes []corev1.Node
	plan := model.Plan{}
	for _, name := range []string{"w1", "w2", "w3"} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "edge"},
			Annotations: map[string]string{v1alpha1.AnnotationUpdated: rolloutfacts.Record{UID: "earlier", Start: now.Add(-time.Hour), End: now.Add(-50 * time.Minute)}.String()}}}
		nodes = append(nodes, n)
		plan.Nodes = append(plan.Nodes, model.NodePlan{Node: name, Pool: "edge", Role: model.RoleWorker})
	}
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{UID: types.UID("now")}}
	got := strings.Join(forecast.Outline(rolloutInput(plan, u, nodes, []v1alpha1.UpdatePool{pool}, nil, now)), "\n")
	for _, want := range []string{"3 workers, at most 2 unavailable at once", "first the canary w1, then 10m of watching", "every day 22:00 for 1h UTC", "opens Fri 2026-11-20 22:00", "learned from 3 nodes"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not said:\n%s", want, got)
		}
	}
}
