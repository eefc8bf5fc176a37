package rollout

import (
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// isLost reports whether a node that runs its steps has been silent for longer than its step
// may take. It counts as failed: it may have restarted into something that does not start. It
// is lost no longer when its agent reports again.
func isLost(np *model.NodePlan, n *Node) bool {
	if n.Run == nil || n.Run.finished() || !n.AgentHeartbeatLost {
		return false
	}
	limit := silenceLimit(np, n)
	return limit > 0 && n.SilentFor > limit
}

// silenceLimit is how long a node may be silent in its step, 0 for ever. Before the first report
// about a step it is that of the longest one.
func silenceLimit(np *model.NodePlan, n *Node) (limit time.Duration) {
	for i := range np.Steps {
		s := &np.Steps[i]
		if s.By != model.ByAgent || n.Run.Step != "" && s.ID != n.Run.Step {
			continue
		}
		if s.DeadlineSeconds == 0 {
			return 0
		}
		limit = max(limit, time.Duration(s.DeadlineSeconds)*time.Second)
	}
	return limit
}

// lostBlocker is the blocker on a lost node.
func lostBlocker(np *model.NodePlan, n *Node) model.Blocker {
	v := nodeBlocker(n.Name, reasonNodeLost, " has been silent for "+FormatDuration(n.SilentFor))
	if n.Run.Step != "" {
		v.Message += " in step " + n.Run.Step
	}
	v.Message += fmt.Sprintf(", which may take %s: it counts as failed until its agent reports again", FormatDuration(silenceLimit(np, n)))
	v.Fix = "see to the machine, by its console or its power switch; the update goes on by itself when the agent reports"
	v.Waiting = false
	return v
}
