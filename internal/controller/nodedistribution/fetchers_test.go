package nodedistribution

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// inRegistry is an approved bundle that comes from a registry.
func inRegistry(digest string, generation int64) v1alpha1.Bundle {
	return v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "b-" + digest[7:9], Generation: generation},
		Spec: v1alpha1.BundleSpec{Digest: digest, Registry: &v1alpha1.BundleRegistry{Reference: "r.example/site/bundles:v1"}}}
}

// distribute takes the decision of one reconcile, writes it into the specs, and returns the
// nodes that fetch the bundle.
func (f *fake) distribute(digest string, silent ...string) (fetching []string) {
	media := f.see().foundBundles()
	approvals := map[string]approval{digest: f.approvalOf(digest, f.peopleApproved(), f.trust(), media[digest])}
	var order []string
	if approvals[digest].ok {
		order = []string{digest}
	}
	f.fetchers = f.pickFetchers(order, approvals, func(nu *v1alpha1.NodeUpdate) bool { return contains(silent, nu.Name) })
	f.letFetchersRead(approvals)
	want := &desiredState{w: f.fleetSnapshot, order: order, approvals: approvals, names: f.bundleNames(), holds: f.newPinSetBuilder(order), peers: (&peerIndex{}).refresh(f.fleetSnapshot, "key")}
	for i, n := range f.nodes {
		f.reports[i].Spec = want.specOf(i)
		if fetches(f.reports[i], digest) {
			fetching = append(fetching, n.Name)
		}
	}
	return fetching
}

func fetchingFleet(names ...string) *fake {
	f := newFake(names...)
	for _, nu := range f.updates {
		nu.Status.Agent = &v1alpha1.AgentInfo{Address: "10.0.0.1:18740", PublicKey: "key-" + nu.Name}
	}
	return f
}

// One node fetches; another takes over if it fails or is silent, and the Bundle says why nothing
// comes.
func TestOneNodeFetches(t *testing.T) {
	d := dig("a")
	f := fetchingFleet("n1", "n2", "n3")
	f.bundles = []v1alpha1.Bundle{inRegistry(d, 4)}
	first := f.distribute(d)
	if len(first) != 1 || f.updates[first[0]].Spec.Bundles[0].Fetch != 4 {
		t.Fatalf("%v fetch", first)
	}
	if again := f.distribute(d); len(again) != 1 || again[0] != first[0] {
		t.Errorf("%v, then %v", first, again)
	}
	if _, group := f.reachedAt(f.nodes[0], f.updates[first[0]]); !group.source {
		t.Error("it is linked to nodes of its own kind only")
	}
	for _, reason := range []string{v1alpha1.ReasonRegistryRateLimited, v1alpha1.ReasonRegistryContentMissing} {
		f.updates[first[0]].Status.FailedFetches = []v1alpha1.FailedFetch{{Bundle: d, Reason: reason}}
		if got := f.distribute(d); len(got) != 1 || got[0] != first[0] {
			t.Errorf("%s: another node would fail too, and %v fetch", reason, got)
		}
	}
	f.updates[first[0]].Status.FailedFetches = []v1alpha1.FailedFetch{{Bundle: d, Reason: v1alpha1.ReasonRegistryUnauthorized, Message: "registry of r.example/site/bundles: unauthorized"}}
	second := f.distribute(d)
	if len(second) != 1 || second[0] == first[0] {
		t.Fatalf("%v after %v failed", second, first)
	}
	third := f.distribute(d, second[0])
	if len(third) != 1 || third[0] == first[0] || third[0] == second[0] {
		t.Fatalf("%v, although %v failed and %v is silent", third, first, second)
	}
	ready := func() *metav1.Condition {
		st := f.bundleStatus(&f.bundles[0], map[string]approval{d: {ok: true}}, nil)
		for i := range st.Conditions {
			if st.Conditions[i].Type == v1alpha1.ConditionReady && st.FetchedBy == f.fetchers[d].node {
				return &st.Conditions[i]
			}
		}
		return &metav1.Condition{}
	}
	if c := ready(); c.Reason != v1alpha1.ReasonCopying || !strings.Contains(c.Message, third[0]+" fetches it from r.example/site/bundles:v1") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	for _, nu := range f.updates {
		nu.Status.FailedFetches = []v1alpha1.FailedFetch{{Bundle: d, Reason: v1alpha1.ReasonRegistryUnreachable, Message: "connection refused"}}
	}
	if all := f.distribute(d); len(all) != 1 || all[0] != third[0] {
		t.Errorf("all failed, and the task moves from %v to %v", third, all)
	}
	if c := ready(); c.Reason != v1alpha1.ReasonRegistryUnreachable || !strings.Contains(c.Message, "connection refused") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

func TestWhoMayFetch(t *testing.T) {
	d := dig("a")
	selects := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
	}
	for what, tc := range map[string]struct {
		change func(f *fake)
		want   string
	}{
		"the selected node":           {func(f *fake) { f.bundles[0].Spec.Registry.NodeSelector = selects("n2") }, "n2"},
		"no node is selected":         {func(f *fake) { f.bundles[0].Spec.Registry.NodeSelector = selects("n9") }, ""},
		"the only node with an agent": {func(f *fake) { f.updates["n1"].Status.Agent, f.updates["n2"].Status.Agent = nil, nil }, "n3"},
		"the bundle is not approved": {func(f *fake) {
			f.policies = []v1alpha1.TrustPolicy{{Spec: v1alpha1.TrustPolicySpec{RevokedDigests: []string{d}}}}
		}, ""},
		"the Bundle is being deleted": {func(f *fake) { now := at(0); f.bundles[0].DeletionTimestamp = &now }, ""},
		"it comes from no registry":   {func(f *fake) { f.bundles[0].Spec.Registry = nil }, ""},
		// The signatures are in the header, which a node must fetch first.
		"signatures are required": {func(f *fake) {
			f.policies = []v1alpha1.TrustPolicy{{Spec: v1alpha1.TrustPolicySpec{Require: v1alpha1.RequireSignatures}}}
			f.bundles[0].Spec.Registry.NodeSelector = selects("n1")
		}, "n1"},
	} {
		t.Run(what, func(t *testing.T) {
			f := fetchingFleet("n1", "n2", "n3")
			f.bundles = []v1alpha1.Bundle{inRegistry(d, 1)}
			tc.change(f)
			if got := strings.Join(f.distribute(d), " "); got != tc.want {
				t.Errorf("%q fetches, want %q", got, tc.want)
			}
		})
	}
}
