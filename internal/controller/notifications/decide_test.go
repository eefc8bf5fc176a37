package notifications

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func at(minutes int) *metav1.Time {
	t := metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
	return &t
}

// update is one of three nodes in a phase since noon, with reasons.
func update(phase string, change func(*v1alpha1.ClusterUpdateStatus), blockers ...v1alpha1.Blocker) *v1alpha1.ClusterUpdate {
	u := &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "to-136", UID: "u1"},
		Status: v1alpha1.ClusterUpdateStatus{Phase: phase, Version: "1.36.3", NodesTotal: 3, Blockers: blockers, Phases: []v1alpha1.PhaseTime{{Phase: phase, StartedAt: *at(0)}}}}
	if change != nil {
		change(&u.Status)
	}
	return u
}

func started(s *v1alpha1.ClusterUpdateStatus) { s.StartedAt = at(-60) }

func blocker(reason string, waiting bool, since int) v1alpha1.Blocker {
	return v1alpha1.Blocker{Reason: reason, Message: "message of " + reason, Fix: "fix of " + reason, Waiting: waiting, Since: at(since)}
}

// Which notifications are due, for one webhook that has been running for an hour.
func TestDueNotices(t *testing.T) {
	t.Parallel()
	person, waits := blocker("NodeOnHold", false, -5), blocker("Copying", true, -50)
	recorded := func(r v1alpha1.NotificationRecord, names ...string) func(*v1alpha1.ClusterUpdateStatus) {
		r.Receivers = names
		return func(s *v1alpha1.ClusterUpdateStatus) {
			s.StartedAt = at(-60)
			s.Notifications = append(s.Notifications, r)
		}
	}
	startedID := idOf(t, update(v1alpha1.PhaseUpdating, started), eventStarted)
	for name, tc := range map[string]struct {
		update *v1alpha1.ClusterUpdate
		events []string
		since  time.Time // when this process saw it first
		want   []string
	}{
		"an update that prepares": {update: update(v1alpha1.PhasePreparing, nil, waits)},
		"one that started":        {update: update(v1alpha1.PhaseUpdating, started, waits), want: []string{"Started"}},
		"one that needs a person": {update: update(v1alpha1.PhaseBlocked, nil, waits, person), want: []string{"NeedsPerson NodeOnHold"}},
		"one that is ready to start": {update: update(v1alpha1.PhaseReady, nil, blocker("AwaitingStart", false, -1)),
			want: []string{"NeedsPerson AwaitingStart"}},
		"a reason that is new":               {update: update(v1alpha1.PhaseBlocked, nil, person), since: noon.Add(-settleTime + time.Second)},
		"a reason without a time":            {update: update(v1alpha1.PhaseBlocked, nil, v1alpha1.Blocker{Reason: "NodeOnHold"})},
		"two reasons while nodes move":       {update: update(v1alpha1.PhaseUpdating, started, person, blocker("DrainBlocked", false, -9)), want: []string{"Started", "NeedsPerson DrainBlocked", "NeedsPerson NodeOnHold"}},
		"one reason for several nodes":       {update: update(v1alpha1.PhaseBlocked, nil, person, person, person), want: []string{"NeedsPerson NodeOnHold"}},
		"one that failed":                    {update: update(v1alpha1.PhaseHalted, started, blocker("StepFailed", false, -1)), want: []string{"Started", "Failed StepFailed"}},
		"one that is done":                   {update: update(v1alpha1.PhaseDone, func(s *v1alpha1.ClusterUpdateStatus) { s.StartedAt, s.FinishedAt = at(-60), at(-1) }), want: []string{"Started", "Done"}},
		"one that was done days ago":         {update: update(v1alpha1.PhaseDone, func(s *v1alpha1.ClusterUpdateStatus) { s.StartedAt, s.FinishedAt = at(-3000), at(-2900) })},
		"one that failed days ago and waits": {update: update(v1alpha1.PhaseHalted, func(s *v1alpha1.ClusterUpdateStatus) { s.StartedAt, s.Phases[0].StartedAt = at(-3000), *at(-2900) }), want: []string{"Failed Halted"}},
		"a start that the webhook got":       {update: update(v1alpha1.PhaseUpdating, recorded(v1alpha1.NotificationRecord{Event: eventStarted, ID: startedID}, "ops"))},
		"a start that another webhook got":   {update: update(v1alpha1.PhaseUpdating, recorded(v1alpha1.NotificationRecord{Event: eventStarted, ID: startedID}, "other")), want: []string{"Started"}},
		"a wait that was sent for another node": {update: update(v1alpha1.PhaseBlocked, func(s *v1alpha1.ClusterUpdateStatus) {
			s.Notifications = []v1alpha1.NotificationRecord{{Event: eventNeedsPerson, Reason: "NodeOnHold", ID: "x", Receivers: []string{"ops"}}}
		}, person)},
		"a webhook that wants failures alone": {update: update(v1alpha1.PhaseHalted, started), events: []string{eventFailed}, want: []string{"Failed Halted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, current := newHistory(), currentNotices(tc.update)
			if tc.since.IsZero() {
				tc.since = noon.Add(-time.Hour)
			}
			h.observe(current, tc.update.Status.Notifications, tc.since)
			h.observe(current, tc.update.Status.Notifications, noon)
			var got []string
			for _, n := range dueNotices(&receiver{name: "ops", events: tc.events}, h.settled(current, noon), tc.update.Status.Notifications, h, noon) {
				got = append(got, strings.TrimSpace(n.Event+" "+n.Reason))
				if n.Message == "" || n.Update != "to-136" || n.ID == "" || (n.Event == eventFailed || n.Event == eventNeedsPerson) && n.Fix == "" {
					t.Errorf("incomplete: %+v", n)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func idOf(t *testing.T, u *v1alpha1.ClusterUpdate, event string) string {
	t.Helper()
	for _, n := range currentNotices(u) {
		if n.Event == event {
			return n.ID
		}
	}
	t.Fatalf("%s is not current", event)
	return ""
}

// A message keeps its ID while progress and reasons change. Another halt, another update and
// another time have another one.
func TestIDsAreStable(t *testing.T) {
	t.Parallel()
	first := idOf(t, update(v1alpha1.PhaseHalted, started, blocker("StepFailed", false, -1)), eventFailed)
	if again := idOf(t, update(v1alpha1.PhaseHalted, func(s *v1alpha1.ClusterUpdateStatus) { s.StartedAt, s.NodesDone = at(-60), 2 }, blocker("NodeNotReady", false, 0)), eventFailed); again != first {
		t.Error("another ID after a change of numbers and reasons")
	}
	later := update(v1alpha1.PhaseHalted, func(s *v1alpha1.ClusterUpdateStatus) { s.StartedAt, s.Phases[0].StartedAt = at(-60), *at(5) })
	other := update(v1alpha1.PhaseHalted, started)
	other.UID = "u2"
	for _, u := range []*v1alpha1.ClusterUpdate{later, other} {
		if idOf(t, u, eventFailed) == first {
			t.Errorf("%s has the ID of another halt", u.UID)
		}
	}
}

// What is recorded: each receiver once, a wait until it has ended for some time.
func TestRecords(t *testing.T) {
	t.Parallel()
	u := update(v1alpha1.PhaseBlocked, nil, blocker("NodeOnHold", false, -5))
	h, current := newHistory(), currentNotices(u)
	h.observe(current, nil, noon)
	if r := nextRecords(current, nil, h, noon); r != nil {
		t.Fatalf("nothing was delivered: %+v", r)
	}
	h.delivered[current[0].ID] = []string{"b", "a", "b"}
	first := nextRecords(current, nil, h, noon)
	want := []v1alpha1.NotificationRecord{{Event: eventNeedsPerson, Reason: "NodeOnHold", ID: current[0].ID, Receivers: []string{"a", "b"}}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Fatal(diff)
	}
	h.observe(current, first, noon)
	h.delivered[current[0].ID] = []string{"c"}
	second := nextRecords(current, first, h, noon)
	if diff := cmp.Diff([]string{"a", "b", "c"}, second[0].Receivers); diff != "" {
		t.Error(diff)
	}
	h.observe(nil, second, noon)
	if left := nextRecords(nil, second, h, noon.Add(forgetTime-time.Second)); len(left) != 1 {
		t.Error("a wait that may come again is forgotten")
	}
	if left := nextRecords(nil, second, h, noon.Add(forgetTime)); len(left) != 0 {
		t.Errorf("a wait that ended stays: %+v", left)
	}
	var many []v1alpha1.NotificationRecord
	for i := range maxRecords + 5 {
		many = append(many, v1alpha1.NotificationRecord{ID: fmt.Sprint(i)})
	}
	if left := nextRecords(nil, many, newHistory(), noon); len(left) != maxRecords || left[0].ID != "5" {
		t.Errorf("%d records", len(left))
	}
}
