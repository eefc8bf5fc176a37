package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// Reboot asks the node's systemd to reboot, and returns when it has started again.
func (l *Lab) Reboot(ctx context.Context, node string) error {
	return l.again(ctx, node, func() error {
		err := l.Exec(ctx, node, nil, nil, nil, "systemctl", "reboot")
		// The command may be killed by the reboot it asked for.
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && supervisor.ExitStatus(exit) >= 128 {
			return nil
		}
		return err
	})
}

// Crash kills pid 1 of the node, as a power cut does; power returns at once.
// Crash returns when the node has started again.
func (l *Lab) Crash(ctx context.Context, node string) error {
	return l.again(ctx, node, func() error {
		_, err := supervisor.Call(ctx, l.Dir, supervisor.Request{Op: supervisor.OpCrash, Node: node})
		return err
	})
}

// PowerOn switches a node on that was shut down, and waits until it has started.
func (l *Lab) PowerOn(ctx context.Context, node string) error {
	if _, err := supervisor.Call(ctx, l.Dir, supervisor.Request{Op: supervisor.OpOn, Node: node}); err != nil {
		return err
	}
	return l.WaitRunning(ctx, node)
}

// again does what ends the node, and waits for its next boot.
func (l *Lab) again(ctx context.Context, node string, end func() error) error {
	before, err := l.node(ctx, node)
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	for {
		now, err := l.node(ctx, node)
		if err != nil {
			return err
		}
		if now.Boots > before.Boots {
			return l.WaitRunning(ctx, node)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("node %s did not start again (%s): %w", node, now.Last, err)
		}
	}
}

// WaitRunning waits until the node's systemd says that it has started
// everything, failed units included (then it is "degraded").
func (l *Lab) WaitRunning(ctx context.Context, node string) error {
	for {
		// Answers at once with an error while systemd does not listen yet.
		var state strings.Builder
		_ = l.Exec(ctx, node, nil, &state, nil, "systemctl", "is-system-running", "--wait")
		switch strings.TrimSpace(state.String()) {
		case "running", "degraded":
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("node %s is not running (systemd says %q): %w; see `refit-lab logs --console %s`", node, strings.TrimSpace(state.String()), err, node)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
