package service

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/config"
	"github.com/refit-dev/refit/internal/agent/preflight"
	"github.com/refit-dev/refit/internal/host/crio"
	"github.com/refit-dev/refit/internal/host/systemd"
	pin "github.com/refit-dev/refit/internal/pipeline/pin/agent"
)

// preflightPause is the time between two looks at images that are not whole.
const preflightPause = 3 * time.Second

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Preflight looks at the node's images and returns when its kubelet may start.
func Preflight(ctx context.Context, conf config.Config, patience time.Duration, log *slog.Logger) (preflight.Report, error) {
	boot, err := bootID()
	if err != nil {
		return preflight.Report{}, err
	}
	// Before anything that may fail: the kubelet's unit asks at every start.
	conf = conf.WithPlaces()
	if r, done := preflight.Done(conf, boot); done {
		return r, nil
	}
	rt, err := pin.Open(ctx, conf.Runtime, crio.Places{}, log)
	if err != nil {
		return preflight.Report{}, err
	}
	r, err := preflight.Run(ctx, preflight.Options{Config: conf, Runtime: rt, BootID: boot, Patience: patience, Pause: preflightPause, Log: log})
	return r, errors.Join(err, rt.Close())
}

// NoteEnd is called when the unit of the check stops: if the machine goes down, the
// next start need not compare contents.
func NoteEnd(ctx context.Context, conf config.Config) error {
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
	return preflight.NoteEnd(conf.WithPlaces(), boot)
}

// drillOf notes a drill and restarts the machine.
func drillOf(conf config.Config) func(ctx context.Context, id string) error {
	return func(ctx context.Context, id string) error {
		boot, err := bootID()
		if err != nil {
			return err
		}
		fresh, err := preflight.Arm(conf, id, boot)
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
