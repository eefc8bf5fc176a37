package service

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/refit-dev/refit/internal/host/systemd"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/update/updaters"
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
	return h.unit(ctx, func(m *systemd.Manager) error {
		switch state {
		case model.UnitEnabled:
			return enable(ctx, m, name)
		case model.UnitDisabled:
			return disable(ctx, m, name)
		case model.UnitMasked:
			if err := disable(ctx, m, name); err != nil {
				return err
			}
			if err := m.Mask(ctx, name); err != nil {
				return err
			}
			return m.Reload(ctx)
		}
		return fmt.Errorf("unit %s: no state %q is known", name, state)
	})
}

func masked(u systemd.Unit) bool { return u.File == "masked" || u.File == "masked-runtime" }

// unmasked lifts a mask, so that a unit can be set.
func unmasked(ctx context.Context, m *systemd.Manager, name string) (systemd.Unit, error) {
	u, err := m.Unit(ctx, name)
	if err != nil || !masked(u) {
		return u, err
	}
	if err := m.Unmask(ctx, name); err != nil {
		return u, err
	}
	if err := m.Reload(ctx); err != nil {
		return u, err
	}
	return m.Unit(ctx, name)
}

func enable(ctx context.Context, m *systemd.Manager, name string) error {
	u, err := unmasked(ctx, m, name)
	if err != nil {
		return err
	}
	if u.File != "enabled" && u.File != "static" { // one without [Install] cannot be
		if err := m.Enable(ctx, name); err != nil {
			return err
		}
		if err := m.Reload(ctx); err != nil {
			return err
		}
	}
	return m.Start(ctx, name)
}

func disable(ctx context.Context, m *systemd.Manager, name string) error {
	u, err := unmasked(ctx, m, name)
	if err != nil {
		return err
	}
	if u.Active != "inactive" && u.Active != "failed" {
		if err := m.Stop(ctx, name); err != nil {
			return err
		}
	}
	if u.File == "" || u.File == "disabled" || u.File == "static" {
		return nil
	}
	if err := m.Disable(ctx, name); err != nil {
		return err
	}
	return m.Reload(ctx)
}

// ReloadUnits has systemd read all unit files again.
func (h *nodeHost) ReloadUnits(ctx context.Context) error {
	return h.unit(ctx, func(m *systemd.Manager) error { return m.Reload(ctx) })
}

// RefreshUnit has a unit that runs read its configuration again. systemd refuses
// to refresh one that is masked, where it passes over one that is stopped; either
// reads its files when somebody lets it start.
func (h *nodeHost) RefreshUnit(ctx context.Context, name string, restart bool) error {
	return h.unit(ctx, func(m *systemd.Manager) error {
		u, err := m.Unit(ctx, name)
		if err != nil {
			return err
		}
		if masked(u) && u.Active != "active" {
			return nil
		}
		if restart {
			return m.TryRestart(ctx, name)
		}
		return m.Refresh(ctx, name)
	})
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
