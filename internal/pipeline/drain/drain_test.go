package drain

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func app(name string) Pod {
	return Pod{Namespace: "default", Name: name, UID: name, OwnerKind: "ReplicaSet", OwnerName: "web"}
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		pod  func(*Pod)
		want string
	}{
		"a pod of a ReplicaSet is evicted":            {func(*Pod) {}, "evict"},
		"a pod of a StatefulSet is evicted":           {func(p *Pod) { p.OwnerKind = "StatefulSet" }, "evict"},
		"a pod of a Job is evicted":                   {func(p *Pod) { p.OwnerKind = "Job" }, "evict"},
		"a pod with emptyDir is evicted":              {func(p *Pod) { p.EmptyDir = true }, "evict"},
		"a pod of a DaemonSet stays":                  {func(p *Pod) { p.OwnerKind = "DaemonSet" }, "DaemonSet"},
		"a mirror pod stays":                          {func(p *Pod) { p.OwnerKind, p.Mirror = "", true }, "static pod"},
		"a pod of the node itself stays":              {func(p *Pod) { p.OwnerKind = "Node" }, "static pod"},
		"a finished pod stays":                        {func(p *Pod) { p.Finished = true }, "finished"},
		"a finished pod without owner stays":          {func(p *Pod) { p.Finished, p.OwnerKind = true, "" }, "finished"},
		"refit's own pod stays":                       {func(p *Pod) { p.Refit = true }, "refit's own"},
		"a pod that ends is waited for":               {func(p *Pod) { p.Deleting = true }, "leaving"},
		"a pod without owner that ends is waited for": {func(p *Pod) { p.Deleting, p.OwnerKind = true, "" }, "leaving"},
		"a pod without owner is refused":              {func(p *Pod) { p.OwnerKind = "" }, "refused"},
		"a pod without owner that may be lost goes":   {func(p *Pod) { p.OwnerKind, p.EvictAnyway = "", true }, "evict"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := app("web-1")
			tc.pod(&p)
			d := Decide([]Pod{p})
			got := fate(d)
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			stays := tc.want != "evict" && tc.want != "leaving" && tc.want != "refused"
			if d.Empty() != stays {
				t.Errorf("empty: %v", d.Empty())
			}
			if (len(d.DataLoss()) > 0) != (p.EmptyDir && got == "evict") {
				t.Errorf("lost data is named: %v", d.DataLoss())
			}
		})
	}
}

func fate(d Decision) string {
	switch {
	case len(d.Evict) > 0:
		return "evict"
	case len(d.Leaving) > 0:
		return "leaving"
	case len(d.Refused) > 0:
		return "refused"
	case len(d.Skipped) > 0:
		return d.Skipped[0].Reason
	}
	return "lost"
}

// Every pod has exactly one fate, in any order of the pods.
func TestEveryPodHasOneFate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []Pod
		for i := range rapid.IntRange(0, 20).Draw(t, "pods") {
			p := app(fmt.Sprint(i))
			p.OwnerKind = rapid.SampledFrom([]string{"", "ReplicaSet", "DaemonSet", "Node"}).Draw(t, "owner")
			p.Mirror, p.Finished = rapid.Bool().Draw(t, "mirror"), rapid.Bool().Draw(t, "finished")
			p.Deleting, p.Refit = rapid.Bool().Draw(t, "deleting"), rapid.Bool().Draw(t, "refit")
			pods = append(pods, p)
		}
		d := Decide(pods)
		if len(d.Evict)+len(d.Leaving)+len(d.Refused)+len(d.Skipped) != len(pods) {
			t.Fatalf("%d pods: %+v", len(pods), d)
		}
		if fmt.Sprint(Decide(rapid.Permutation(pods).Draw(t, "order"))) != fmt.Sprint(d) {
			t.Fatal("another order, another decision")
		}
		for _, p := range d.Evict {
			if p.OwnerKind == "DaemonSet" || p.Mirror || p.Refit || p.Deleting {
				t.Fatalf("%+v is evicted", p)
			}
		}
	})
}

func TestBlocked(t *testing.T) {
	p := app("web-1")
	tight := Budget{Namespace: "default", Name: "web", Allowed: 0, Healthy: 1, Wanted: 1, Expected: 2}
	never := Budget{Namespace: "default", Name: "all", Healthy: 2, Wanted: 2, Expected: 2}
	cases := map[string]struct {
		budgets []Budget
		want    []string
		waiting bool
	}{
		"pod, owner, budget and numbers are named": {[]Budget{tight}, []string{"node n2", "default/web-1", "ReplicaSet web", "default/web", "allows 0 disruptions", "1 of 2 pods are healthy, 1 are wanted"}, true},
		"one that can never be met needs a person": {[]Budget{never}, []string{"default/all", "can never be met"}, false},
		"two budgets for one pod need a person":    {[]Budget{tight, never}, []string{"evicts no pod that has two budgets"}, false},
		"no budget found":                          {nil, []string{"default/web-1", "holds back the eviction"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := EvictionBlocked("n2", p, tc.budgets)
			for _, w := range tc.want {
				if !strings.Contains(v.Message+" "+v.Fix, w) {
					t.Errorf("%q does not contain %q", v.Message+" | "+v.Fix, w)
				}
			}
			if v.Waiting != tc.waiting || v.Object != "Pod/default/web-1" || v.Reason != "DisruptionBudget" {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A budget allows fewer evictions than there are pods on the node, and no pod fits another
// node. The drain would wait for ever, so the preflight reports it.
func TestPodsWithNowhereToGo(t *testing.T) {
	t.Parallel()
	pods := func(n int, nowhere bool, allowed int32) (out []Pod) {
		for i := range n {
			out = append(out, Pod{Namespace: "shop", Name: fmt.Sprint("app-", i), Node: "n2", OwnerKind: "ReplicaSet", OwnerName: "app", Ready: true, Nowhere: nowhere,
				Budgets: []Budget{{Namespace: "shop", Name: "app", Allowed: allowed, Healthy: 3, Wanted: 2, Expected: 3}}})
		}
		return out
	}
	for name, c := range map[string]struct {
		pods []Pod
		says string
	}{
		"three pods, one may go, and no other node takes it": {pods(3, true, 1), "lets 1 of its 3 pods on node n2 go, and no other schedulable node takes them"},
		"another node takes them":                            {pods(3, false, 1), ""},
		"the only pod may go":                                {pods(1, true, 1), ""},
	} {
		var kept []Pod
		for _, p := range c.pods {
			if Hinders(p, Options{}) {
				kept = append(kept, p)
			}
		}
		got := Preflight(kept, Options{})
		if len(got) != min(1, len(c.says)) || len(got) == 1 && !strings.Contains(got[0].Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
