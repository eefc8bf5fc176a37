package statusreport

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/text"
)

// mediumLines answer whether the medium may be pulled.
var mediumLines = map[string]string{
	MediumYes:     "The USB stick may be pulled: yes",
	MediumNo:      "The USB stick may be pulled: no",
	MediumNone:    "No USB stick is in this machine",
	MediumUnknown: "The USB stick may be pulled: not known, leave it in the machine",
}

// WriteText writes a node's status for people. A terminal gets it through a writer that escapes
// what would control it.
func WriteText(w io.Writer, n NodeStatus) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", n.Colour, n.Sentence)
	if n.Progress != "" {
		fmt.Fprintf(&b, "%s: %d%%\n", n.Progress, n.Percent)
	}
	fmt.Fprintf(&b, "%s\n\n", n.mediumLine())
	fmt.Fprintf(&b, "Node:        %s\n", text.CleanLine(orUnknown(n.Node)))
	fmt.Fprintf(&b, "Agent:       %s\n", n.agentLine())
	if n.Step != "" {
		fmt.Fprintf(&b, "Step:        %s\n", text.CleanLine(n.stepLine()))
	}
	fmt.Fprintf(&b, "API server:  %s\n", n.apiLine())
	writeBlockers(&b, "Waits for", n.Waiting)
	writeBlockers(&b, "Problems", n.Problems)
	_, err := io.WriteString(w, b.String())
	return err
}

func (n *NodeStatus) mediumLine() string {
	line := mediumLines[n.MayPullMedium]
	if n.MayPullMedium == MediumNo && n.Phase == "Ready" {
		line += ", other machines may still need it"
	}
	return line
}

func orUnknown(s string) string {
	if s == "" {
		return "not known"
	}
	return s
}

// agentLine describes the agent, and how to repair it.
func (n *NodeStatus) agentLine() string {
	const fix = ". Fix: run systemctl restart refit-agent, then journalctl -u refit-agent"
	switch {
	case n.Agent == AgentRunning && n.WrittenAt.IsZero():
		return "running; it has not written its status yet"
	case n.Agent == AgentRunning:
		return "running"
	case n.Agent == AgentStarting:
		return "has not started yet; the machine started a moment ago"
	case n.Agent == AgentHung:
		return "does not respond since " + stamp(n.WrittenAt) + fix
	case n.WrittenAt.IsZero():
		return "does not run" + fix
	}
	return "does not run; the rest is its status of " + stamp(n.WrittenAt) + fix
}

func (n *NodeStatus) stepLine() string {
	out := n.Step
	if n.StepsTotal > 0 {
		out = fmt.Sprintf("%s, %d of %d done", out, n.StepsDone, n.StepsTotal)
	}
	if n.Update != "" {
		out += ", update " + n.Update
	}
	return out
}

// apiLine reports the last answer of the API server. A machine continues without it.
func (n *NodeStatus) apiLine() string {
	switch {
	case n.Agent != AgentRunning && n.APIReachedAt.IsZero():
		return "not known without the agent"
	case n.Agent != AgentRunning:
		return "the agent reached it last at " + stamp(n.APIReachedAt)
	case n.APIReachedAt.IsZero():
		return "not reached since the agent started; the machine continues without it" + n.apiCause()
	case n.APIReached:
		return "reached, last at " + stamp(n.APIReachedAt)
	}
	return fmt.Sprintf("last reached at %s, %s ago; the machine continues without it%s", stamp(n.APIReachedAt), age(n.ReadAt.Sub(n.APIReachedAt)), n.apiCause())
}

func (n *NodeStatus) apiCause() string {
	if n.APIError == "" {
		return ""
	}
	return "\n             " + text.CleanLine(n.APIError)
}

func writeBlockers(b *strings.Builder, title string, all []explain.Blocker) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, x := range all {
		fmt.Fprintf(b, "  %s: %s\n", text.CleanLine(x.Reason), strings.ReplaceAll(x.Message, "\n", "\n    "))
		if x.Fix != "" {
			fmt.Fprintf(b, "    fix: %s\n", strings.ReplaceAll(x.Fix, "\n", "\n    "))
		}
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// age is a duration for people. A clock that was set back gives no negative one.
func age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d/time.Minute))
	}
	return fmt.Sprintf("%dh%02dm", int(d/time.Hour), int(d/time.Minute)%60)
}
