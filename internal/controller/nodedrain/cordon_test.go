package nodedrain

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
)

// A node gets the label, the cordon and the mark in one write, and loses with the mark what refit
// gave it. What a person set stays.
func TestMarkAndRelease(t *testing.T) {
	t.Parallel()
	const label = corev1.LabelNodeExcludeBalancers
	for name, tc := range map[string]struct {
		before         map[string]string
		cordoned       bool
		asks           Empty
		labelled, keep bool
	}{
		"leaves load balancers":             {asks: Empty{true, true}, labelled: true},
		"stays in them":                     {asks: Empty{true, false}},
		"a person excluded and cordoned it": {before: map[string]string{label: "mine"}, cordoned: true, asks: Empty{true, true}, labelled: true, keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			api := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: tc.before}, Spec: corev1.NodeSpec{Unschedulable: tc.cordoned}}).Build()
			c := &Cordoner{Client: api, Live: api}
			read := func() *corev1.Node {
				n := &corev1.Node{}
				if err := api.Get(ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			for try := range 2 { // the second attempt at a node marks it again
				if first, err := c.Mark(ctx, read(), rolloutfacts.Mark{UID: "u", At: time.Unix(1, 0)}, "update", tc.asks); err != nil || first != (try == 0) {
					t.Fatalf("first %t, %v", first, err)
				}
				if n := read(); !n.Spec.Unschedulable || has(n, label) != tc.labelled {
					t.Errorf("marked: %+v %+v", n.Labels, n.Spec)
				}
			}
			if err := c.Release(ctx, read(), nil); err != nil {
				t.Fatal(err)
			}
			n := read()
			if n.Spec.Unschedulable != tc.cordoned || has(n, label) != tc.keep || n.Labels[label] != tc.before[label] || len(n.Annotations) != 0 {
				t.Errorf("released: %+v %+v %+v", n.Labels, n.Annotations, n.Spec)
			}
		})
	}
}

func has(n *corev1.Node, label string) bool { _, ok := n.Labels[label]; return ok }
