package clusterupdates

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

// Since when a reason stands is kept while it stands; a person's business
// comes first, what is merely busy last.
func TestBlockers(t *testing.T) {
	first := []model.Blocker{
		{Reason: v1alpha1.ReasonDraining, Object: "Node/n1", Waiting: true},
		{Reason: v1alpha1.ReasonDisruptionBudget, Object: "Pod/a", Waiting: true},
		{Reason: v1alpha1.ReasonStepFailed, Object: "Node/n2"},
	}
	a := blockers(first, nil, start)
	if a[0].Reason != v1alpha1.ReasonStepFailed || a[2].Reason != v1alpha1.ReasonDraining {
		t.Errorf("order: %+v", a)
	}
	b := blockers(append(first, model.Blocker{Reason: v1alpha1.ReasonPaused}), a, start.Add(time.Minute))
	for _, x := range b {
		want := start
		if x.Reason == v1alpha1.ReasonPaused {
			want = start.Add(time.Minute)
		}
		if !x.Since.Time.Equal(want) {
			t.Errorf("%s since %s, want %s", x.Reason, x.Since, want)
		}
	}
	var many []model.Blocker
	for range 30 {
		many = append(many, model.Blocker{Reason: "X", Message: strings.Repeat("\u00e4", 2000)})
	}
	many[0].Message += "cause"
	c := blockers(many, nil, start)
	if len(c) != maxBlockers || len(c[0].Message) > maxMessage {
		t.Errorf("%d blockers, message of %d bytes", len(c), len(c[0].Message))
	}
	if !strings.HasSuffix(c[0].Message, "cause") {
		t.Errorf("the cause was cut off: %.40s", c[0].Message)
	}
}

// An event with a longer note is refused by the API server and lost.
func TestEventsFitTheAPI(t *testing.T) {
	recorder := events.NewFakeRecorder(3)
	r := &Reconciler{Events: recorder}
	u, n := &v1alpha1.ClusterUpdate{}, &corev1.Node{}
	r.event(u, nil, corev1.EventTypeWarning, v1alpha1.ReasonStepFailed, "Halted", strings.Repeat("\u00e4", 2000)+" cause")
	r.event(u, n, corev1.EventTypeWarning, v1alpha1.ReasonStepFailed, "Halted", strings.Repeat("x", 2000)+" cause")
	for range 3 {
		e := <-recorder.Events
		note := strings.TrimPrefix(e, corev1.EventTypeWarning+" "+v1alpha1.ReasonStepFailed+" ")
		if note == e || len(note) > 1024 || !strings.HasSuffix(note, " cause") {
			t.Errorf("note of %d bytes: %s", len(note), e)
		}
	}
}
