package clusterupdates

import (
	"runtime"
	"testing"
	"weak"
)

// An update that is no longer prepared leaves nothing that holds the objects of nodes: the
// cache has replaced them, and they would be a second copy of all.
func TestReplacedNodesAreNotHeld(t *testing.T) {
	t.Parallel()
	r, w, u := preparing(t, 6)
	decided(t, r, w, u)
	r.dropUnusedGates()
	r.dropUnusedPlans(false)
	if len(r.gatesBefore) == 0 {
		t.Error("what an update that is being prepared needs is dropped")
	}
	node, report := weak.Make(w.nodes[1]), weak.Make(w.reports[1])
	w.nodes[1], w.reports[1] = w.nodes[1].DeepCopy(), w.reports[1].DeepCopy()
	r.poolIndex.refresh(w)
	r.dropUnusedGates() // of a reconcile that prepared nothing
	r.dropUnusedPlans(false)
	runtime.GC()
	if node.Value() != nil || report.Value() != nil {
		t.Error("the node's old objects are still held")
	}
	runtime.KeepAlive(r)
}
