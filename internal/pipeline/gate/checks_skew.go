package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

const reasonAgentOutdated = "AgentOutdated"

// Needs are what the plan asks of a node's agent: the updaters of its steps, and the
// formats of the Contents it reads.
type Needs struct {
	Updaters, Formats []string
	// Refit is a version whose agents have all of it: the controller's own.
	Refit string
}

// misfits are what the bundle's maker asks of a node. A person may know better, and accepts the check;
// of a node without steps it says nothing.
func misfits(_ *moment, n *Node) (no, warn blockers) {
	if n.Planned {
		no = n.Misfits
	}
	return no, nil
}

// agentVersions compares an agent with the plan before its node is drained: an updater
// that it does not have would be missed only afterwards.
func agentVersions(_ *moment, n *Node) *model.Blocker {
	if !n.AgentKnown || n.Needs == nil {
		return nil // said by agents; or the plan asks nothing of it
	}
	var missing []string
	for _, u := range n.Needs.Updaters {
		if !slices.Contains(n.Agent.Updaters, u) {
			missing = append(missing, "updater "+u)
		}
	}
	for _, f := range n.Needs.Formats {
		if !slices.Contains(n.Agent.Formats, f) {
			missing = append(missing, "format "+f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	v := &model.Blocker{Reason: reasonAgentOutdated,
		Message: fmt.Sprintf("node %s runs agent %s, and the plan needs what agents of refit %s have: %s", n.Name, n.Agent.Version, n.Needs.Refit, strings.Join(missing, ", ")),
		Fix:     fmt.Sprintf("refit install --from BUNDLE --ssh %s, with a bundle that has refit %s; or on the node: refit-agent install --from FILE|DEVICE", n.Name, n.Needs.Refit)}
	if len(n.Agent.Updaters) == 0 {
		v.Message = fmt.Sprintf("node %s runs agent %s, which does not report its updaters and formats; the plan needs an agent of refit %s", n.Name, n.Agent.Version, n.Needs.Refit)
	}
	return v
}
