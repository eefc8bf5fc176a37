package systemd

import (
	"context"
	"fmt"
)

// Unit is the state of one unit.
type Unit struct {
	// File is enabled, disabled, masked, static ...; empty if there is no file.
	File string
	// Active is active, activating, inactive, failed ...
	Active string
	// Stale: the unit's files changed since systemd read them.
	Stale bool
	// Oneshot units do something and end; Ran says that it was started since the
	// boot, Result how it ended.
	Oneshot, Ran bool
	Result       string
}

// Unit inspects a unit; an unknown unit has no File and is inactive.
func (m *Manager) Unit(ctx context.Context, name string) (Unit, error) {
	p, err := m.conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return Unit{}, fmt.Errorf("state of %s: %w", name, err)
	}
	text := func(key string) string { s, _ := p[key].(string); return s }
	stale, _ := p["NeedDaemonReload"].(bool)
	since, _ := p["InactiveExitTimestamp"].(uint64)
	u := Unit{Ran: since > 0, File: text("UnitFileState"), Active: text("ActiveState"), Stale: stale, Oneshot: text("Type") == "oneshot", Result: text("Result")}
	if u.File == "" && text("LoadState") == "masked" {
		u.File = "masked"
	}
	return u, nil
}

// Mask makes a unit impossible to start; Unmask undoes it. A file of the
// administrator's own in /etc stands in the way of a mask.
func (m *Manager) Mask(ctx context.Context, unit string) error {
	if _, err := m.conn.MaskUnitFilesContext(ctx, []string{unit}, false, false); err != nil {
		return fmt.Errorf("mask of %s: %w", unit, err)
	}
	return nil
}

// Unmask lets a masked unit be started again.
func (m *Manager) Unmask(ctx context.Context, unit string) error {
	if _, err := m.conn.UnmaskUnitFilesContext(ctx, []string{unit}, false); err != nil {
		return fmt.Errorf("unmask of %s: %w", unit, err)
	}
	return nil
}

// Refresh has a unit that runs read its configuration again: reloaded if it can
// be, else restarted. One that does not run is left alone.
func (m *Manager) Refresh(ctx context.Context, unit string) error {
	return job(ctx, "reload", unit, func(d chan<- string) (int, error) {
		return m.conn.ReloadOrTryRestartUnitContext(ctx, unit, "replace", d)
	})
}

// TryRestart restarts a unit that runs; one that does not is left alone.
func (m *Manager) TryRestart(ctx context.Context, unit string) error {
	return job(ctx, "restart", unit, func(d chan<- string) (int, error) {
		return m.conn.TryRestartUnitContext(ctx, unit, "replace", d)
	})
}

// Reboot has the machine restarted in an orderly way; it returns at once.
func (m *Manager) Reboot(ctx context.Context) error {
	if _, err := m.conn.StartUnitContext(ctx, "reboot.target", "replace-irreversibly", nil); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	return nil
}
