package service

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/agent/host/crio"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// preflightPause is the time between two checks of incomplete images.
const preflightPause = 3 * time.Second

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Preflight checks the node's images and returns when its kubelet may start.
func Preflight(ctx context.Context, conf agentconfig.Config, patience time.Duration, log *slog.Logger) (coldstart.Report, error) {
	boot, err := bootID()
	if err != nil {
		log.Error("failed to read the boot ID", "error", err)
	}
	conf = conf.WithDefaultPaths()
	o := coldstart.Options{Config: conf, BootID: boot, Patience: patience, Pause: preflightPause, Log: log}
	// Before anything that may fail: the kubelet's unit calls this at every start.
	if r, done := coldstart.Done(conf, boot); done {
		return r, nil
	}
	for _, p := range conf.Problems {
		log.Error("configuration of the agent damaged", "error", p.Message)
		statefile.At(conf.RunPath()).Add(p)
	}
	if why := coldstart.DisabledBy(coldstart.KernelCommandLine, coldstart.OffFile); why != "" {
		return coldstart.Skip(o, why)
	}
	var rt imagekeeper.NodeRuntime
	o.Open = func(ctx context.Context) (_ coldstart.Runtime, err error) {
		rt, err = imagekeeper.Open(ctx, conf.Runtime, crio.Places{}, log)
		return rt, err
	}
	r, err := coldstart.Run(ctx, o)
	if rt != nil && r.Released == "" { // a check that hangs may still use it
		err = errors.Join(err, rt.Close())
	}
	return r, err
}

// NoteEnd is called when the unit of the check stops. If the machine shuts down, the next start
// need not compare contents.
func NoteEnd(ctx context.Context, conf agentconfig.Config) error {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if stopping, err := m.Stopping(ctx); err != nil || !stopping {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	return coldstart.RecordShutdown(conf.WithDefaultPaths(), boot)
}

// drillOf returns a function that records a drill and restarts the machine.
func drillOf(conf agentconfig.Config) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		boot, err := bootID()
		if err != nil {
			return err
		}
		fresh, err := coldstart.Arm(conf, id, boot)
		if err != nil || !fresh {
			return err
		}
		m, err := systemd.Connect(ctx)
		if err != nil {
			return err
		}
		defer m.Close()
		return m.Reboot(ctx)
	}
}
