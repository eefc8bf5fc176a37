package plans

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(s).Build()
	return &Store{Client: c, Live: c}
}

// plan of n nodes, each with steps of its own: nothing is shared.
func plan(n int) model.Plan {
	p := model.Plan{Version: model.PlanVersion, Target: model.Target{Bundle: "sha256:1"}, Nodes: []model.NodePlan{}}
	for i := range n {
		p.Nodes = append(p.Nodes, model.NodePlan{Node: fmt.Sprintf("n%05d", i), Steps: []model.Step{{ID: "a", Params: map[string]string{"p": strings.Repeat(fmt.Sprint(i), 200)}}}})
	}
	return p
}

func update1(name, digest string) *v1alpha1.ClusterUpdate {
	return &v1alpha1.ClusterUpdate{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Status: v1alpha1.ClusterUpdateStatus{Plan: name, PlanDigest: digest}}
}

func contents(t *testing.T, s *Store) []v1alpha1.Content {
	t.Helper()
	var l v1alpha1.ContentList
	if err := s.Client.List(context.Background(), &l); err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func TestAPlanOfAnySizeIsKept(t *testing.T) {
	t.Parallel()
	for nodes, objects := range map[int]int{0: 1, 3: 1, 3000: 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			ctx, s, p := context.Background(), newStore(t), plan(nodes)
			var name string
			for range 2 { // the second time nothing is to be written
				var err error
				if name, err = s.Write(ctx, p, p.Digest()); err != nil {
					t.Fatal(err)
				}
			}
			all := contents(t, s)
			if len(all) != objects {
				t.Errorf("%d objects, want %d", len(all), objects)
			}
			for _, c := range all {
				if len(c.Data) > 1_000_000 {
					t.Errorf("an object of %d bytes", len(c.Data))
				}
			}
			k, err := (&Store{Client: s.Client, Live: s.Live}).Read(ctx, update1(name, p.Digest())) // after a restart
			if err != nil {
				t.Fatal(err)
			}
			if k.Digest() != p.Digest() {
				t.Error("another plan was read")
			}
			if _, ok := k.ForNode("n00002"); ok != (nodes > 2) {
				t.Errorf("node 2 is in the plan: %v", ok)
			}
		})
	}
}

func TestAPartThatWasDeletedIsWrittenAgain(t *testing.T) {
	t.Parallel()
	ctx, s, p := context.Background(), newStore(t), plan(3000)
	name, err := s.Write(ctx, p, p.Digest())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range contents(t, s) {
		if c.Name != name {
			if err := s.Client.Delete(ctx, &c); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if _, err := s.Read(ctx, update1(name, p.Digest())); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a plan with a hole is read: %v", err)
	}
	if _, err := s.Write(ctx, p, p.Digest()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(ctx, update1(name, p.Digest())); err != nil {
		t.Error(err)
	}
}

// The plan that runs is the plan that was approved, or none.
func TestAnotherPlanIsRefused(t *testing.T) {
	t.Parallel()
	ctx, s, p := context.Background(), newStore(t), plan(3)
	name, err := s.Write(ctx, p, p.Digest())
	if err != nil {
		t.Fatal(err)
	}
	other := plan(4).Digest()
	if _, err := s.Read(ctx, update1(name, other)); err == nil || !strings.Contains(err.Error(), other) {
		t.Errorf("a plan with another digest than the approved: %v", err)
	}
	if _, err := s.Read(ctx, update1(name, p.Digest())); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(ctx, update1(name, other)); err == nil {
		t.Error("the digest is compared only the first time")
	}
	forged := &v1alpha1.Content{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: "plan-0123"}, Type: v1alpha1.ContentPlan, Data: string(p.JSON())}
	if err := s.Client.Create(ctx, forged); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(ctx, s.Client, "plan-0123"); err == nil {
		t.Error("data that is not what the name says is taken")
	}
	if _, err := s.Read(ctx, update1("plan-not-there", p.Digest())); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a plan that is not there: %v", err)
	}
}

func TestAPlanIsMadeAnewOnlyWhenSomethingChanged(t *testing.T) {
	t.Parallel()
	var m Maker
	in := updateplan.Input{Target: model.Target{Bundle: "sha256:1", Version: "1.36.3", Kubernetes: "v1.36.3"}, KubeadmVersion: "v1.36.3",
		Payloads: []updateplan.Payload{{Name: "kubeadm"}, {Name: "kubelet"}}}
	node := func(kubelet string) updateplan.Node {
		return updateplan.Node{Name: "n1", Kubelet: kubelet, Platform: "linux/amd64", Current: updateplan.Fields{"a": "b"}}
	}
	n := Reuse(nil, node("v1.35.4"))
	first := m.Make("u", in, []*updateplan.Node{n})
	if !first.Planned["n1"] || first.Digest != first.Plan.Digest() {
		t.Fatalf("not planned: %+v", first)
	}
	n = Reuse(n, node("v1.35.4"))
	if m.Make("u", in, []*updateplan.Node{n}) != first {
		t.Error("nothing changed, and it is planned again")
	}
	if m.Make("other", in, []*updateplan.Node{n}) == first {
		t.Error("two updates share a plan")
	}
	at := Reuse(n, node("v1.36.3"))
	if got := m.Make("u", in, []*updateplan.Node{at}); got.Planned["n1"] {
		t.Error("a node changed, and the old plan is given")
	}
	in.Target.Version = "1.36.4"
	if got := m.Make("u", in, []*updateplan.Node{n}); got.Plan.Target.Version != "1.36.4" {
		t.Error("the target changed, and the old plan is given")
	}
}
