package updates

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func beating(at time.Time) *v1alpha1.NodeUpdate {
	t := metav1.NewTime(at)
	return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{Heartbeat: &t}}}
}

// A node's clock may be wrong: what counts is when its heartbeat was seen to change.
func TestHeard(t *testing.T) {
	var r Reconciler
	hourAgo := start.Add(-time.Hour)
	if !r.silent(nil, start) || !r.silent(&v1alpha1.NodeUpdate{}, start) {
		t.Error("an agent that never spoke is silent")
	}
	if !r.silent(beating(hourAgo), start) {
		t.Error("an old heartbeat that was there before is an old heartbeat")
	}
	if r.silent(beating(hourAgo.Add(time.Minute)), start.Add(time.Minute)) {
		t.Error("one that changes lives, although its clock is an hour behind")
	}
	if !r.silent(beating(hourAgo.Add(time.Minute)), start.Add(10*time.Minute)) {
		t.Error("one that stops changing is silent")
	}
	var fresh Reconciler
	if fresh.silent(beating(start.Add(time.Hour)), start) {
		t.Error("a clock that is ahead is no silence")
	}
	if !fresh.silent(beating(start.Add(time.Hour)), start.Add(5*time.Minute)) {
		t.Error("nor is it life for an hour")
	}
}

// Since when a reason stands is kept while it stands; a person's business
// comes first, what is merely busy last.
func TestBlockers(t *testing.T) {
	first := []model.Verdict{
		{Reason: v1alpha1.ReasonDraining, Object: "Node/n1", Waiting: true},
		{Reason: v1alpha1.ReasonDisruptionBudget, Object: "Pod/a", Waiting: true},
		{Reason: v1alpha1.ReasonStepFailed, Object: "Node/n2"},
	}
	a := blockers(first, nil, start)
	if a[0].Reason != v1alpha1.ReasonStepFailed || a[2].Reason != v1alpha1.ReasonDraining {
		t.Errorf("order: %+v", a)
	}
	b := blockers(append(first, model.Verdict{Reason: v1alpha1.ReasonPaused}), a, start.Add(time.Minute))
	for _, x := range b {
		want := start
		if x.Reason == v1alpha1.ReasonPaused {
			want = start.Add(time.Minute)
		}
		if !x.Since.Time.Equal(want) {
			t.Errorf("%s since %s, want %s", x.Reason, x.Since, want)
		}
	}
	var many []model.Verdict
	for range 30 {
		many = append(many, model.Verdict{Reason: "X", Message: strings.Repeat("\u00e4", 2000)})
	}
	c := blockers(many, nil, start)
	if len(c) != maxBlockers || len(c[0].Message) > maxMessage {
		t.Errorf("%d blockers, message of %d bytes", len(c), len(c[0].Message))
	}
}

func TestMark(t *testing.T) {
	n := &corev1.Node{}
	if markOf(n) != nil {
		t.Error("a node without mark has none")
	}
	m := mark{"uid-1", 2, start}
	n.Annotations = map[string]string{v1alpha1.AnnotationUpdating: m.String()}
	if got := markOf(n); got == nil || *got != m {
		t.Errorf("%+v", got)
	}
	n.Annotations[v1alpha1.AnnotationUpdating] = "uid-1"
	if got := markOf(n); got == nil || got.uid != "uid-1" || got.attempt != 0 {
		t.Errorf("a mark that lost its end is still a mark: %+v", got)
	}
}

func TestBudgetOf(t *testing.T) {
	two, third := intstr.FromInt32(2), intstr.FromString("33%")
	for name, tc := range map[string]struct {
		v    *intstr.IntOrString
		size int
		want int
	}{
		"none is one":                   {nil, 10, 1},
		"a number":                      {&two, 10, 2},
		"a percentage, rounded down":    {&third, 10, 3},
		"a percentage, at least a node": {&third, 1, 1},
	} {
		if got := budgetOf(tc.v, tc.size); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
