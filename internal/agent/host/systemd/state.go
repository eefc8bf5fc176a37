package systemd

import (
	"context"
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// Set brings a unit into a state of a NodeConfig. It is asked for a unit that is not
// in it.
func (m *Manager) Set(ctx context.Context, name, state string) error {
	switch state {
	case model.UnitEnabled:
		return m.enable(ctx, name)
	case model.UnitDisabled:
		return m.disable(ctx, name)
	case model.UnitMasked:
		if err := m.disable(ctx, name); err != nil {
			return err
		}
		if err := m.Mask(ctx, name); err != nil {
			return err
		}
		return m.Reload(ctx)
	}
	return fmt.Errorf("unit %s: no state %q is known", name, state)
}

// ReloadOrRestart reloads or restarts a running unit. It skips inactive, masked and missing units:
// systemd ignores an inactive unit, which reads its files at its next start, but refuses masked and
// missing ones. A unit is missing before the image that contains it boots, and after an undo
// removed its file.
func (m *Manager) ReloadOrRestart(ctx context.Context, name string, restart bool) error {
	u, err := m.Unit(ctx, name)
	if err != nil {
		return err
	}
	if u.Active == "inactive" || masked(u) && u.Active != "active" {
		return nil
	}
	if restart {
		return m.TryRestart(ctx, name)
	}
	return m.Refresh(ctx, name)
}

func masked(u Unit) bool { return u.File == "masked" || u.File == "masked-runtime" }

// unmasked lifts a mask, so that a unit can be set.
func (m *Manager) unmasked(ctx context.Context, name string) (Unit, error) {
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

func (m *Manager) enable(ctx context.Context, name string) error {
	u, err := m.unmasked(ctx, name)
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

func (m *Manager) disable(ctx context.Context, name string) error {
	u, err := m.unmasked(ctx, name)
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
