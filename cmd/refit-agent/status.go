package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
	"github.com/refit-dev/refit/internal/explain"
)

// answerError is an answer whose colour is in the exit code; the answer itself was printed.
type answerError struct{ code int }

func (e answerError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// colourCodes are the exit codes of the colours, those of refit status.
var colourCodes = map[string]int{explain.Blue: exitInProgress, explain.Yellow: exitBlocked, explain.Red: exitFailed}

func statusCommand(load func() agentconfig.Config) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "status [-o text|json]", Short: "Print what this node does and what it waits for, without the API server", Args: cobra.NoArgs,
		Long: `Print what this node does and what it waits for, with the fix. The command reads the
files of the agent on this node. It needs neither the API server nor a running agent,
changes nothing, and needs root.

The first line is for a technician: one colour and one sentence, as on the page of
the controller and on that of the node.

Exit codes: 0 nothing to do (green), 3 a person must act (yellow), 4 in progress
(blue), 5 failed, or the agent does not work (red).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("-o %s is not known: use text or json", output)}
			}
			if os.Geteuid() != 0 {
				return errors.New("reading the state of the agent needs root: run this with sudo")
			}
			n := observeNode(load(), time.Now())
			if err := writeStatus(cmd.OutOrStdout(), output, n); err != nil {
				return err
			}
			if code := colourCodes[n.Colour]; code != 0 {
				return answerError{code}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text or json")
	return c
}

func writeStatus(w io.Writer, output string, n statusreport.NodeStatus) error {
	if output == "text" {
		return statusreport.WriteText(w, n)
	}
	b, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// observeNode reads the local status of a node, or what the agent's state directory has where
// there is none.
func observeNode(conf agentconfig.Config, now time.Time) statusreport.NodeStatus {
	conf = conf.WithDefaultPaths()
	var found []explain.Blocker
	for _, p := range conf.Problems {
		found = append(found, explain.Blocker{Reason: p.Reason, Message: p.Message, Fix: p.Fix, Object: p.Object})
	}
	l, err := statusreport.ReadLocal(conf.RunPath())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			found = append(found, damaged(err, "Nothing to do: a running agent writes it again within a minute."))
		}
		var more []explain.Blocker
		l, more = fromState(conf)
		found = append(found, more...)
	}
	n := statusreport.MakeNodeStatus(l, agentProcess(conf.RunPath("agent.lock"), sinceBoot()), now)
	n.Problems = append(found, n.Problems...)
	return n
}

func damaged(err error, fix string) explain.Blocker {
	return explain.Blocker{Reason: v1alpha1.ReasonStateFileDamaged, Message: err.Error(), Fix: fix}
}

// fromState makes a local status of the state directory: which run the node is permitted, and
// where its journal ends.
func fromState(conf agentconfig.Config) (*statusreport.Local, []explain.Blocker) {
	var found []explain.Blocker
	if full, err := conf.Complete(); err == nil {
		conf = full // only with the kubelet's certificate is the name known
	}
	l := &statusreport.Local{Node: conf.Node, Status: &v1alpha1.NodeUpdateStatus{}}
	w, err := desired.Peek(conf.Path("want.json"))
	switch {
	case err == nil:
		l.Permitted = statusreport.PermittedRun(w.Spec.Run)
	case !errors.Is(err, fs.ErrNotExist):
		found = append(found, damaged(err, "Nothing to do: the API server sends it again."))
	}
	run, state, err := engine.LastRun(conf.StateDir)
	if err != nil {
		return l, append(found, damaged(err, "Check the disk of this node (dmesg, smartctl)."))
	}
	if run == nil {
		return l, found
	}
	l.Permitted, l.Status.Run = statusreport.PermittedRun(run), state
	switch state.State {
	case v1alpha1.RunRunning:
		l.Status.Phase = "Updating"
	case v1alpha1.RunFailed:
		l.Status.Phase = "Failed"
	}
	return l, found
}

// bootTime is how long an agent may take to start after the machine: it waits for the network.
const bootTime = 5 * time.Minute

// agentProcess classifies the agent's process by its lock. An agent that starts at this very moment
// may find the lock taken; systemd starts it again.
func agentProcess(lock string, sinceBoot time.Duration) string {
	f, err := os.Open(lock)
	if errors.Is(err, fs.ErrNotExist) && sinceBoot < bootTime {
		return statusreport.AgentStarting
	}
	if err != nil {
		return statusreport.AgentStopped
	}
	defer f.Close()
	if errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return statusreport.AgentRunning
	}
	return statusreport.AgentStopped
}

// sinceBoot is how long this machine runs.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return bootTime
	}
	return time.Duration(t.Nano())
}
