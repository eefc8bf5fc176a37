package nodedistribution

import (
	"fmt"
	"slices"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// A stick in a worker: the control-plane node, which is not among its peers by chance, becomes
// one, because the worker stores no images of a control plane.
func TestTheNodeWithTheMediumHasPeersOfEachRole(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	f := newFake(names...)
	for _, n := range names {
		f.updates[n].Status.Agent = &v1alpha1.AgentInfo{Address: n + ":1", PublicKey: n}
	}
	f.nodes[0].Labels["node-role.kubernetes.io/control-plane"] = ""
	var p peerIndex
	peers := func(i int) (out []string) {
		f.edition++
		w := f.see()
		p.refresh(w, "key")
		for _, x := range p.peersOf(w, i) {
			out = append(out, x.Node)
		}
		return out
	}
	far := slices.IndexFunc(names, func(n string) bool {
		return n != "n00" && !slices.Contains(peers(0), n)
	})
	changed := f.updates[names[far]].DeepCopy()
	changed.Status.Media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: dig("a")}}
	f.updates[names[far]] = changed
	if got := peers(far); !slices.Contains(got, "n00") {
		t.Errorf("peers of the node with the stick: %v", got)
	}
	if got := peers(0); !slices.Contains(got, names[far]) {
		t.Errorf("peers of the control-plane node: %v", got)
	}
	plain := changed.DeepCopy()
	plain.Status.Media = nil
	f.updates[names[far]] = plain
	if got := peers(0); slices.Contains(got, names[far]) {
		t.Errorf("the link stays without a stick: %v", got)
	}
}
