package controller

import (
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
)

func cluster(t *testing.T) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, v1alpha1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(s).Build()
}

func nodeUpdate(name, uid string) *v1alpha1.NodeUpdate {
	return &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NodesNamespace, Name: name, UID: types.UID(uid)}}
}

func bindings(t *testing.T, c client.Client) map[string]types.UID {
	t.Helper()
	var l rbacv1.RoleBindingList
	if err := c.List(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	out := map[string]types.UID{}
	for _, b := range l.Items {
		out[b.Subjects[0].Name] = b.OwnerReferences[0].UID
	}
	return out
}

func grant(t *testing.T, g *NodeRightsGranter, now time.Time) {
	t.Helper()
	if err := g.Grant(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// A node that was deleted and joined again gets rights that belong to its new
// NodeUpdate as soon as the old ones are gone, and what was deleted by hand is back.
func TestRightsFollowTheNodeUpdate(t *testing.T) {
	c, now := cluster(t), time.Now()
	g := &NodeRightsGranter{Client: c, Live: c}
	create := func(o client.Object) {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	first := nodeUpdate("n1", "first")
	create(first)
	grant(t, g, now)
	if got := bindings(t, c); got["system:node:n1"] != "first" || len(got) != 1 {
		t.Fatalf("%v", got)
	}
	if err := c.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	create(nodeUpdate("n1", "second"))
	grant(t, g, now)
	if got := bindings(t, c); got["system:node:n1"] != "first" {
		t.Fatalf("the garbage collector deletes the old ones: %v", got)
	}
	role, binding := NodeRights(first)
	for _, o := range []client.Object{role, binding} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, g, now)
	if got := bindings(t, c); got["system:node:n1"] != "second" {
		t.Fatalf("%v", got)
	}
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	grant(t, g, now.Add(relistInterval))
	if got := bindings(t, c); got["system:node:n1"] != "second" {
		t.Fatalf("deleted by hand, and not back: %v", got)
	}
}

// Many nodes at once leave room for other writes, and all get their rights.
func TestManyNodesAreGrantedInPasses(t *testing.T) {
	c := cluster(t)
	g := &NodeRightsGranter{Client: c, Live: c}
	for i := range maxGrantsPerPass + 1 {
		if err := c.Create(t.Context(), nodeUpdate(fmt.Sprint("n", i), fmt.Sprint("u", i))); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, g, time.Now())
	if got := len(bindings(t, c)); got != maxGrantsPerPass {
		t.Errorf("%d in one pass", got)
	}
	grant(t, g, time.Now())
	if got := len(bindings(t, c)); got != maxGrantsPerPass+1 {
		t.Errorf("%d after two passes", got)
	}
}
