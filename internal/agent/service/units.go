package service

import (
	"context"
	"os"
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
)

// Config is a rendered configuration that this node was told.
func (h *nodeHost) Config(name string) (data string, ok bool) { return h.config(name) }

// Held is a file of a bundle that this node holds.
func (h *nodeHost) Held(name, digest string) (updaters.Payload, error) { return h.held(name, digest) }

// Unit is the state of a unit.
func (h *nodeHost) Unit(ctx context.Context, name string) (u systemd.Unit, err error) {
	err = h.unit(ctx, func(m *systemd.Manager) (err error) {
		u, err = m.Unit(ctx, name)
		return err
	})
	return u, err
}

// SetUnit brings a unit into a state. It is asked for a unit that is not in it.
func (h *nodeHost) SetUnit(ctx context.Context, name, state string) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Set(ctx, name, state) })
}

// ReloadUnits has systemd read all unit files again.
func (h *nodeHost) ReloadUnits(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Reload(ctx) })
}

// RefreshUnit has a unit that runs read its configuration again.
func (h *nodeHost) RefreshUnit(ctx context.Context, name string, restart bool) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Renew(ctx, name, restart) })
}

// BootID of the kernel.
func (h *nodeHost) BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// Reboot has the machine restarted in an orderly way.
func (h *nodeHost) Reboot(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Reboot(ctx) })
}
