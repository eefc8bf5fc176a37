package clusterupdates

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func hopPlan(bundle string, nodes ...string) model.Plan {
	p := model.Plan{Target: model.Target{Bundle: bundle}, Nodes: []model.NodePlan{}}
	for _, n := range nodes {
		name, to, _ := strings.Cut(n, "=")
		p.Nodes = append(p.Nodes, model.NodePlan{Node: name, To: to})
	}
	return p
}

// The nodes that have other steps than the approved ones are named, whichever hop it is.
func TestChangedNodes(t *testing.T) {
	t.Parallel()
	plan := func(first model.Plan, then ...model.Plan) model.Plan {
		first.Then = then
		return first
	}
	approved := plan(hopPlan("a", "n1=1", "n2=1"), hopPlan("b", "n1=2", "n2=2"), hopPlan("c", "n1=3", "n2=3"))
	for name, tc := range map[string]struct {
		now  model.Plan
		want []string
	}{
		"all that is left is as approved": {plan(hopPlan("b", "n1=2", "n2=2"), hopPlan("c", "n1=3", "n2=3")), nil},
		"the last hop alone":              {hopPlan("c", "n1=3", "n2=3"), nil},
		"a node joined":                   {plan(hopPlan("b", "n1=2", "n2=2", "n3=2"), hopPlan("c", "n1=3", "n2=3")), []string{"n3"}},
		"a node left":                     {hopPlan("c", "n2=3"), []string{"n1"}},
		"a node changes otherwise":        {plan(hopPlan("b", "n1=2", "n2=2"), hopPlan("c", "n1=3", "n2=9")), []string{"n2"}},
		"other nodes in two hops":         {plan(hopPlan("b", "n1=9", "n2=2"), hopPlan("c", "n1=3", "n2=9")), []string{"n1", "n2"}},
		"more hops than were approved":    {plan(hopPlan("x", "n7=1"), hopPlan("a", "n1=1", "n2=1"), hopPlan("b", "n1=2", "n2=2"), hopPlan("c", "n1=3", "n2=3")), []string{"n1", "n2", "n7"}},
	} {
		if got := changedNodes(approved, tc.now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// For a minute after a hop a difference may be one of reports; then it stops the update.
func TestTheRestSettlesFirst(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	done := metav1.NewTime(end)
	u := &v1alpha1.ClusterUpdate{Spec: v1alpha1.ClusterUpdateSpec{Bundle: "b", Hops: []string{"a"}}, Status: v1alpha1.ClusterUpdateStatus{Hops: []v1alpha1.HopStatus{{Bundle: "a", StartedAt: &done, FinishedAt: &done}, {Bundle: "b"}}}}
	for after, want := range map[time.Duration]string{0: v1alpha1.ReasonSettling, settleHop - 1: v1alpha1.ReasonSettling, settleHop: v1alpha1.ReasonPlanChanged, time.Hour: v1alpha1.ReasonPlanChanged} {
		s := &status{u: u, now: end.Add(after)}
		s.checkRest(nil)
		if len(s.verdicts) != 0 {
			t.Errorf("nothing has changed: %+v", s.verdicts)
		}
		s.checkRest([]string{"n7"})
		if len(s.verdicts) != 1 || s.verdicts[0].Reason != want || s.verdicts[0].Waiting != (want == v1alpha1.ReasonSettling) || !strings.Contains(s.verdicts[0].Message, "hop 2 of 2") || !strings.Contains(s.verdicts[0].Message, "n7") {
			t.Errorf("%s after the hop: %+v", after, s.verdicts)
		}
	}
}

// Bundles that cannot be hops are named: resources of one that is not the last, and a name that
// two bundles give to different images.
func TestUnfitHops(t *testing.T) {
	t.Parallel()
	header := func(digest string, resources bool, images ...string) *bundle.Header {
		m := &bundle.Metadata{Name: "demo", Version: digest}
		for _, i := range images {
			name, d, _ := strings.Cut(i, "=")
			m.Images = append(m.Images, bundle.Image{Name: name, Digest: d})
		}
		if resources {
			m.Payloads = append(m.Payloads, bundle.Payload{Name: bundle.PayloadResources})
		}
		return &bundle.Header{Digest: digest, Metadata: m}
	}
	for name, tc := range map[string]struct {
		headers []*bundle.Header
		want    []string
	}{
		"no hops":                   {[]*bundle.Header{header("a", true, "x:1=1")}, nil},
		"resources of the last":     {[]*bundle.Header{header("a", false, "x:1=1"), header("b", true, "x:2=2", "x:1=1")}, nil},
		"resources of a hop":        {[]*bundle.Header{header("a", true), header("b", true)}, []string{"Bundle/a"}},
		"a tag that moves":          {[]*bundle.Header{header("a", false, "x:1=1"), header("b", false, "x:1=2", "y:1=1")}, []string{"Bundle/b"}},
		"two tags that move, later": {[]*bundle.Header{header("a", false, "x:1=1", "y:1=1"), header("b", false), header("c", false, "x:1=2", "y:1=2")}, []string{"Bundle/c"}},
	} {
		var got []string
		for _, v := range unfitHops(tc.headers) {
			if v.Reason != v1alpha1.ReasonHopUnfit || v.Waiting || v.Fix == "" {
				t.Errorf("%s: %+v", name, v)
			}
			got = append(got, v.Object)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
