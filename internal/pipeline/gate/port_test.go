package gate

import (
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// A node whose port is in use by another process closes the gate, also if all its images
// are pinned.
func TestABusyPortClosesTheGate(t *testing.T) {
	busy := &model.Blocker{Reason: reasonPortInUse, Message: "speaker (process 7) listens there"}
	n := &Node{Name: "n1", AgentKnown: true, PinSetHasBundle: true, Stalled: busy}
	if got := imagesReady(nil, n); got != busy {
		t.Errorf("got %+v", got)
	}
	n.Stalled = nil
	if got := imagesReady(nil, n); got != nil {
		t.Errorf("the port is free, and still %+v", got)
	}
}
