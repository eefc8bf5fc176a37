package gate

import (
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

// A node whose port another process holds closes the gate, whatever it holds itself.
func TestABusyPortClosesTheGate(t *testing.T) {
	busy := &model.Verdict{Reason: reasonPortInUse, Message: "speaker (process 7) listens there"}
	n := &Node{Name: "n1", AgentKnown: true, HoldsBundle: true, Stalled: busy}
	if got := imagesReady(nil, n); got != busy {
		t.Errorf("got %+v", got)
	}
	n.Stalled = nil
	if got := imagesReady(nil, n); got != nil {
		t.Errorf("the port is free, and still %+v", got)
	}
}
