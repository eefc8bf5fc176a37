package service

import (
	"context"
	"os"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
)

// Config returns a rendered configuration of the desired state.
func (h *nodeHost) Config(name string) (data string, ok bool) { return h.config(name) }

// FindPayload finds a payload of the pin set.
func (h *nodeHost) FindPayload(name, digest string) (updaters.Payload, error) {
	return h.findPinned(name, digest)
}

// Unit returns the state of a unit.
func (h *nodeHost) Unit(ctx context.Context, name string) (u systemd.Unit, err error) {
	err = h.unit(ctx, func(m *systemd.Manager) (err error) {
		u, err = m.Unit(ctx, name)
		return err
	})
	return u, err
}

// SetUnit changes the state of a unit that is in another one.
func (h *nodeHost) SetUnit(ctx context.Context, name, state string) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Set(ctx, name, state) })
}

// ReloadUnits makes systemd reload all unit files.
func (h *nodeHost) ReloadUnits(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Reload(ctx) })
}

// RefreshUnit reloads or restarts a running unit.
func (h *nodeHost) RefreshUnit(ctx context.Context, name string, restart bool) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.ReloadOrRestart(ctx, name, restart) })
}

// StartUnit starts a unit and waits until it runs.
func (h *nodeHost) StartUnit(ctx context.Context, name string) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Start(ctx, name) })
}

// BootID returns the kernel's boot ID.
func (h *nodeHost) BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Reboot shuts the machine down in order and restarts it.
func (h *nodeHost) Reboot(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Reboot(ctx) })
}
