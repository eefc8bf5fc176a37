package rolloutfacts

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

var start = time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)

func node(name string, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

func TestMark(t *testing.T) {
	t.Parallel()
	m := Mark{"uid-1", rollout.Attempt{Number: 5, Retry: 2, Try: 3}, start}
	for name, tc := range map[string]struct {
		text string
		want *Mark
	}{
		"no mark":                                {"", nil},
		"what was written is read":               {m.String(), &m},
		"a mark that lost its end is a mark":     {"uid-1", &Mark{UID: "uid-1"}},
		"one attempt for each retry, as once":    {"uid-1 2 2026-11-20T11:00:00Z", &Mark{"uid-1", rollout.Attempt{Number: 2, Retry: 1, Try: 1}, start}},
		"an attempt that cannot be read":         {"uid-1 x 2026-11-20T11:00:00Z", &Mark{"uid-1", rollout.Attempt{}, start}},
		"retry and try that cannot be read":      {"uid-1 2 2026-11-20T11:00:00Z x y", &Mark{"uid-1", rollout.Attempt{Number: 2, Retry: 1, Try: 1}, start}},
		"a time that cannot be read is long ago": {"uid-1 2 soon 1 1", &Mark{"uid-1", rollout.Attempt{Number: 2, Retry: 1, Try: 1}, time.Time{}}},
	} {
		got := MarkOf(node("n", map[string]string{v1alpha1.AnnotationUpdating: tc.text}))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A record is learned from; one of another update says nothing about this one;
// one that makes no sense is none.
func TestRecord(t *testing.T) {
	t.Parallel()
	r := Record{"uid-1", start, start.Add(90 * time.Second)}
	n := node("w1", map[string]string{v1alpha1.AnnotationUpdated: r.String()})
	if got := RecordOf(n); got == nil || *got != r {
		t.Fatalf("%+v", got)
	}
	if got := Node(n, "uid-1").FinishedAt; !got.Equal(r.End) {
		t.Errorf("finished at %s", got)
	}
	if got := Node(n, "uid-2").FinishedAt; !got.IsZero() {
		t.Errorf("another update finished at %s", got)
	}
	cp := node("c1", map[string]string{v1alpha1.AnnotationUpdated: Record{"uid-0", start, start.Add(5 * time.Minute)}.String()})
	cp.Labels = map[string]string{labelControlPlane: ""}
	bad := node("w2", map[string]string{v1alpha1.AnnotationUpdated: "uid-1 2026-11-20T11:00:00Z 2026-11-20T10:00:00Z"})
	l := Learned([]*corev1.Node{n, cp, bad, node("w3", nil)})
	want := rollout.Learned{ControlPlane: rollout.Range{Low: 5 * time.Minute, High: 5 * time.Minute, Samples: 1}, Worker: rollout.Range{Low: 90 * time.Second, High: 90 * time.Second, Samples: 1}}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	end := metav1.NewTime(start)
	beat := metav1.NewTime(start.Add(3 * time.Minute))
	nu := &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: &v1alpha1.NodeRun{UID: "u", PlanDigest: "p", Attempt: 4, Retry: 1, Try: 2, Undo: true, Cause: "it broke"}},
		Status: v1alpha1.NodeUpdateStatus{Agent: &v1alpha1.AgentInfo{Heartbeat: &beat},
			Run: &v1alpha1.NodeRunStatus{UID: "u", PlanDigest: "p", Attempt: 4, State: v1alpha1.RunUndone, FinishedAt: &end}}}
	want := &rollout.Run{Attempt: rollout.Attempt{Number: 4, Retry: 1, Try: 2}, Undo: true, UndoReason: "it broke", State: rollout.RunUndone, EndedAgo: 3 * time.Minute}
	if diff := cmp.Diff(want, Run(nu, "u", "p")); diff != "" {
		t.Error(diff)
	}
	if Run(nu, "other", "p") != nil || Run(nu, "u", "other") != nil {
		t.Error("the run of another update or plan is taken for this one's")
	}
	nu.Status.Run.Attempt = 3
	if got := Run(nu, "u", "p"); got.State != "" || got.EndedAgo != 0 {
		t.Errorf("what came of an attempt before is taken for this one's: %+v", got)
	}
	// The heartbeat is older than the end: it ended just now.
	nu.Status.Run.Attempt, beat = 4, metav1.NewTime(start.Add(-time.Minute))
	nu.Status.Agent.Heartbeat = &beat
	if got := Run(nu, "u", "p").EndedAgo; got != time.Second {
		t.Errorf("ended %s ago", got)
	}
}

// A Node object that was deleted in the middle of an update takes mark and permission
// with it; the node's journal goes on counting. The update must not wait for an attempt
// that the node has long behind it.
func TestANodeThatWasMadeAgainIsNotWaitedForInVain(t *testing.T) {
	t.Parallel()
	for state, want := range map[v1alpha1.RunState]struct {
		stage string
		undo  bool
	}{
		v1alpha1.RunRunning:   {rollout.StageUpdating, false},
		v1alpha1.RunSucceeded: {rollout.StageSettling, false},
		v1alpha1.RunFailed:    {rollout.StageFailed, false},
		v1alpha1.RunUndone:    {rollout.StageUndone, true},
	} {
		nu := &v1alpha1.NodeUpdate{Spec: v1alpha1.NodeUpdateSpec{Run: &v1alpha1.NodeRun{UID: "u", PlanDigest: "p", Attempt: 1, Try: 1}},
			Status: v1alpha1.NodeUpdateStatus{Run: &v1alpha1.NodeRunStatus{UID: "u", PlanDigest: "p", Attempt: 3, State: state}}}
		run := Run(nu, "u", "p")
		if run.Attempt != (rollout.Attempt{Number: 3, Try: 1}) || run.State != string(state) || run.Undo != want.undo {
			t.Errorf("%s: %+v", state, run)
		}
		in := rollout.Input{Plan: model.Plan{Nodes: []model.NodePlan{{Node: "w1", Pool: "edge", Role: model.RoleWorker}}}, Pools: map[string]rollout.Pool{"edge": {Name: "edge", Budget: 1}}, Now: start,
			Nodes: map[string]rollout.Node{"w1": {Name: "w1", Started: true, Unschedulable: true, Ready: true, Attempt: rollout.Attempt{Number: 1, Try: 1}, Run: run}}}
		if got := rollout.Next(in).Stages.ByNode("w1"); got != want.stage {
			t.Errorf("%s: it is %s, want %s", state, got, want.stage)
		}
	}
}

func TestEveryStateOfARunIsKnown(t *testing.T) {
	t.Parallel()
	for api, want := range map[v1alpha1.RunState]string{v1alpha1.RunRunning: rollout.RunRunning, v1alpha1.RunSucceeded: rollout.RunSucceeded,
		v1alpha1.RunFailed: rollout.RunFailed, v1alpha1.RunUndone: rollout.RunUndone} {
		if string(api) != want {
			t.Errorf("%s is %s", api, want)
		}
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	half := intstr.FromString("50%")
	pool := v1alpha1.UpdatePool{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: v1alpha1.UpdatePoolSpec{MaxUnavailable: &half, SoakSeconds: 60, MaxFailures: 2,
		Canary: &v1alpha1.Canary{Nodes: intstr.FromInt32(2), SoakSeconds: 300}, Attempts: 3, OnFailure: v1alpha1.FailureUndo, Zones: true,
		Windows: []v1alpha1.Window{{Days: []v1alpha1.Weekday{"Sat"}, Start: "22:30", DurationMinutes: 90, TimeZone: "Europe/Berlin"}}}}
	cordoned, marked, away := node("w2", nil), node("w3", map[string]string{v1alpha1.AnnotationUpdating: "u"}), node("w4", nil)
	cordoned.Spec.Unschedulable = true
	away.Status.Conditions[0].Status = corev1.ConditionUnknown
	nodes := []*corev1.Node{node("w1", nil), cordoned, marked, away, node("other", nil)}
	in := func(n *corev1.Node) []string {
		if n.Name == "other" {
			return nil
		}
		return []string{"edge"}
	}
	got := Pools([]v1alpha1.UpdatePool{pool}, nodes, in, "default")["edge"]
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Windows) != 1 || got.Windows[0].Zone.String() != berlin.String() {
		t.Fatalf("%+v", got.Windows)
	}
	got.Windows[0].Zone = nil
	want := rollout.Pool{Name: "edge", Budget: 2, Unavailable: []string{"w2", "w3", "w4"}, Cordoned: []string{"w2"}, Soak: time.Minute, MaxFailures: 2, Canary: rollout.Amount{Value: 2},
		CanarySoak: 5 * time.Minute, Attempts: 3, Undo: true, Zones: true, Windows: []rollout.Window{{Days: []time.Weekday{time.Saturday}, Start: 22*60 + 30, Duration: 90 * time.Minute}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d := Pools(nil, nodes, in, "default"); len(d) != 1 || d["default"].Budget != 1 || len(d["default"].Unavailable) != 3 {
		t.Errorf("without pools: %+v", d)
	}
}

// What cannot be read starts nothing: it is never taken for no limit.
func TestAWindowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]v1alpha1.Window{
		"Mars/Olympus": {Start: "22:00", DurationMinutes: 60, TimeZone: "Mars/Olympus"},
		"Local":        {Start: "22:00", DurationMinutes: 60, TimeZone: "Local"},
		"25:00":        {Start: "25:00", DurationMinutes: 60},
		"noon":         {Start: "noon", DurationMinutes: 60},
		"Someday":      {Start: "22:00", DurationMinutes: 60, Days: []v1alpha1.Weekday{"Someday"}},
	} {
		p := Pool(&v1alpha1.UpdatePool{Spec: v1alpha1.UpdatePoolSpec{Windows: []v1alpha1.Window{w}}}, 1)
		if !strings.Contains(p.Invalid, name) {
			t.Errorf("%s: %q", name, p.Invalid)
		}
	}
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	member := func(on string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"component": "etcd"}}, Spec: corev1.PodSpec{NodeName: on},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	cp := func(name string) *corev1.Node {
		n := node(name, nil)
		n.Labels = map[string]string{labelControlPlane: ""}
		return n
	}
	nodes := []*corev1.Node{cp("c1"), cp("c2"), cp("c3"), node("w1", nil)}
	got := Etcd([]corev1.Pod{member("c1", corev1.ConditionTrue), member("c2", corev1.ConditionFalse)}, nodes)
	if diff := cmp.Diff(map[string]bool{"c1": true, "c2": false, "c3": false}, got); diff != "" {
		t.Errorf("a member without a pod must be unavailable:\n%s", diff)
	}
	if got := Etcd(nil, nodes); len(got) != 0 {
		t.Errorf("an etcd elsewhere has members here: %v", got)
	}
}

func TestAmount(t *testing.T) {
	t.Parallel()
	two, third, odd := intstr.FromInt32(2), intstr.FromString("33%"), intstr.FromString("many")
	for name, tc := range map[string]struct {
		v    intstr.IntOrString
		size int
		want int
	}{
		"a number":                      {two, 10, 2},
		"a percentage, rounded down":    {third, 10, 3},
		"a percentage, at least a node": {third, 1, 1},
		"what cannot be read is one":    {odd, 10, 1},
	} {
		if got := Amount(tc.v).CountOf(tc.size); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// A control-plane node is not well if it is not Ready, or one of its static pods
// is not; etcd is counted apart.
func TestHealth(t *testing.T) {
	t.Parallel()
	static := func(component, on string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: component + "-" + on, Labels: map[string]string{"component": component}}, Spec: corev1.PodSpec{NodeName: on},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	cp := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		n := node(name, nil)
		n.Labels = map[string]string{labelControlPlane: ""}
		n.Status.Conditions[0].Status = ready
		return n
	}
	got := Health([]corev1.Pod{static("etcd", "c1", corev1.ConditionFalse), static("kube-apiserver", "c1", corev1.ConditionTrue), static("kube-apiserver", "c2", corev1.ConditionFalse), static("etcd", "c2", corev1.ConditionTrue),
		static("etcd", "c3", corev1.ConditionTrue), static("kube-scheduler", "c3", corev1.ConditionFalse)},
		[]*corev1.Node{cp("c1", corev1.ConditionTrue), cp("c2", corev1.ConditionTrue), cp("c3", corev1.ConditionFalse), node("w1", nil)})
	want := rollout.ControlPlane{Unhealthy: map[string]string{"c2": "has kube-apiserver-c2 not Ready", "c3": "is not Ready"}, Etcd: map[string]bool{"c1": false, "c2": true, "c3": true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
