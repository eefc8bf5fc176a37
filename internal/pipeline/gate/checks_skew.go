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
}

// agentVersions compares an agent with the plan before its node is drained: an updater
// that it does not have would be missed only afterwards.
func agentVersions(_ *moment, n *Node) *model.Verdict {
	if !n.AgentKnown || n.Needs == nil {
		return nil // said by agents; or the plan asks nothing of it
	}
	var lacks []string
	for _, u := range n.Needs.Updaters {
		if !slices.Contains(n.Agent.Updaters, u) {
			lacks = append(lacks, "updater "+u)
		}
	}
	for _, f := range n.Needs.Formats {
		if !slices.Contains(n.Agent.Formats, f) {
			lacks = append(lacks, "format "+f)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	message := fmt.Sprintf("the agent of node %s (refit %s) does not have what the plan needs: %s", n.Name, n.Agent.Version, strings.Join(lacks, ", "))
	if len(n.Agent.Updaters) == 0 {
		message = fmt.Sprintf("the agent of node %s (refit %s) is older than this controller and does not report which updaters it has", n.Name, n.Agent.Version)
	}
	return &model.Verdict{Reason: reasonAgentOutdated, Message: message,
		Fix: "update refit on the node: refit install --ssh, or there refit-agent install --from FILE|DEVICE"}
}
