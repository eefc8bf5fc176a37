package nodedrain

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/drain"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func pods(n int, change ...func(*drain.Pod)) []drain.Pod {
	var out []drain.Pod
	for i := range n {
		p := drain.Pod{Namespace: "shop", Name: fmt.Sprintf("app-%02d", i), Node: "n2", OwnerKind: "ReplicaSet", OwnerName: "app", Ready: true}
		for _, c := range change {
			c(&p)
		}
		out = append(out, p)
	}
	return out
}

// Since when a pod is refused is kept from look to look; a pod whose fate
// changed begins anew; the total never shrinks.
func TestTableKeepsSinceWhen(t *testing.T) {
	t.Parallel()
	d := drain.Decide(pods(3))
	no := drain.EvictionBlocked("n2", d.Evict[0], []drain.Budget{{Namespace: "shop", Name: "app", Wanted: 1, Healthy: 1, Expected: 2}})
	first := Table(DrainFacts{Now: noon, Since: func(string) time.Time { return noon }, Decisions: map[string]drain.Decision{"n2": d}, Verdicts: []model.Blocker{no}}, nil)
	if len(first) != 1 || first[0].Total != 3 || first[0].Left != 3 || first[0].Pods[0].Fate != v1alpha1.PodRefused {
		t.Fatalf("%+v", first)
	}
	left := drain.Decide(pods(2, func(p *drain.Pod) { p.Deleting = p.Name == "app-01"; p.Since = noon.Add(time.Second) }))
	second := Table(DrainFacts{Now: noon.Add(time.Minute), Since: func(string) time.Time { return noon }, Decisions: map[string]drain.Decision{"n2": left}, Verdicts: []model.Blocker{no}}, first)
	if second[0].Total != 3 || second[0].Left != 2 {
		t.Errorf("%+v", second[0])
	}
	got := map[string]string{}
	for _, p := range second[0].Pods {
		got[p.Pod] = p.Fate + " " + p.Since.UTC().Format(time.TimeOnly)
	}
	want := map[string]string{"shop/app-00": "Refused 12:00:00", "shop/app-01": "Leaving 12:00:01"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The table is bounded in every cluster: refused pods come first.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	ds := map[string]drain.Decision{"empty": {}}
	for i := range 40 {
		ds[fmt.Sprintf("n%02d", i)] = drain.Decide(append(pods(40), drain.Pod{Namespace: "a", Name: "alone"}))
	}
	got := Table(DrainFacts{Now: noon, Since: func(string) time.Time { return time.Time{} }, Decisions: ds}, nil)
	if len(got) != maxDrains || len(got[0].Pods) != maxDrainPods || got[0].Left != 41 || got[0].Pods[0].Pod != "a/alone" {
		t.Errorf("%d nodes, %+v", len(got), got[0])
	}
}

func TestTimeoutOfOneUpdate(t *testing.T) {
	t.Parallel()
	pools := func() map[string]rollout.Pool {
		return map[string]rollout.Pool{"a": {DrainTimeout: time.Minute}, "b": {}}
	}
	u := &v1alpha1.ClusterUpdate{}
	if diff := cmp.Diff(pools(), Timeouts(pools(), u)); diff != "" {
		t.Errorf("nothing was set:\n%s", diff)
	}
	seconds := int32(5)
	u.Spec.Drain = &v1alpha1.DrainOptions{TimeoutSeconds: &seconds}
	for name, p := range Timeouts(pools(), u) {
		if p.DrainTimeout != 5*time.Second {
			t.Errorf("%s: %s", name, p.DrainTimeout)
		}
	}
}
