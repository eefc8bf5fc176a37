package systemd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// Manager is the node's systemd.
type Manager struct{ conn *dbus.Conn }

// Connect opens a connection. Close it.
func Connect(ctx context.Context) (*Manager, error) {
	c, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("systemd: %w", err)
	}
	return &Manager{conn: c}, nil
}

// Close ends the connection.
func (m *Manager) Close() { m.conn.Close() }

// jobTime is how long a job may take; a unit that does not stop is killed by
// systemd after 90 s.
const jobTime = 3 * time.Minute

// job waits for a job of systemd. systemd reports its end once, on this connection: after a
// re-execution of systemd the report never arrives.
func job(ctx context.Context, what, unit string, start func(done chan<- string) (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	done := make(chan string, 1)
	if _, err := start(done); err != nil {
		return fmt.Errorf("%s of %s: %w", what, unit, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s of %s: %w", what, unit, ctx.Err())
	case r := <-done:
		if r != "done" {
			return fmt.Errorf("%s of %s: the job ended with %q; `journalctl -u %s` says why", what, unit, r, unit)
		}
		return nil
	}
}

// Start starts a unit and waits until it runs.
func (m *Manager) Start(ctx context.Context, unit string) error {
	return job(ctx, "start", unit, func(d chan<- string) (int, error) { return m.conn.StartUnitContext(ctx, unit, "replace", d) })
}

// Begin has a unit started and does not wait for it.
func (m *Manager) Begin(ctx context.Context, unit string) error {
	if _, err := m.conn.StartUnitContext(ctx, unit, "replace", nil); err != nil {
		return fmt.Errorf("start of %s: %w", unit, err)
	}
	return nil
}

// Stop stops a unit and waits until it has ended.
func (m *Manager) Stop(ctx context.Context, unit string) error {
	return job(ctx, "stop", unit, func(d chan<- string) (int, error) { return m.conn.StopUnitContext(ctx, unit, "replace", d) })
}

// Restart stops and starts a unit.
func (m *Manager) Restart(ctx context.Context, unit string) error {
	return job(ctx, "restart", unit, func(d chan<- string) (int, error) { return m.conn.RestartUnitContext(ctx, unit, "replace", d) })
}

// Reload reads the unit files again.
func (m *Manager) Reload(ctx context.Context) error {
	if err := m.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("systemd daemon-reload: %w", err)
	}
	return nil
}

// Enable makes a unit start at boot; Disable undoes it.
func (m *Manager) Enable(ctx context.Context, unit string) error {
	if _, _, err := m.conn.EnableUnitFilesContext(ctx, []string{unit}, false, true); err != nil {
		return fmt.Errorf("enable of %s: %w", unit, err)
	}
	return nil
}

// Disable makes a unit not start at boot.
func (m *Manager) Disable(ctx context.Context, unit string) error {
	if _, err := m.conn.DisableUnitFilesContext(ctx, []string{unit}, false); err != nil {
		return fmt.Errorf("disable of %s: %w", unit, err)
	}
	return nil
}

// Stopping reports whether the machine goes down in an orderly way.
func (m *Manager) Stopping(ctx context.Context) (bool, error) {
	p, err := m.conn.SystemStateContext(ctx)
	if err != nil {
		return false, fmt.Errorf("state of the machine: %w", err)
	}
	s, _ := p.Value.Value().(string)
	return s == "stopping", nil
}

// Active returns the unit's state: active, activating, inactive, failed ...; an unknown unit is
// inactive.
func (m *Manager) Active(ctx context.Context, unit string) (string, error) {
	p, err := m.conn.GetUnitPropertyContext(ctx, unit, "ActiveState")
	if err != nil {
		return "", fmt.Errorf("state of %s: %w", unit, err)
	}
	s, _ := p.Value.Value().(string)
	return s, nil
}

// MainPID is the process of a service, 0 if it does not run.
func (m *Manager) MainPID(ctx context.Context, unit string) (int, error) {
	p, err := m.conn.GetServicePropertyContext(ctx, unit, "MainPID")
	if err != nil {
		return 0, fmt.Errorf("process of %s: %w", unit, err)
	}
	pid, _ := p.Value.Value().(uint32)
	return int(pid), nil
}

// ExecPath is the program that a service starts, empty if it has none.
func (m *Manager) ExecPath(ctx context.Context, unit string) (string, error) {
	argv, err := m.Command(ctx, unit)
	if err != nil || len(argv) == 0 {
		return "", err
	}
	return argv[0], nil
}

// Command is what a service starts, the program first, with the variables of its
// unit file unexpanded; empty if it has none.
func (m *Manager) Command(ctx context.Context, unit string) ([]string, error) {
	p, err := m.conn.GetServicePropertyContext(ctx, unit, "ExecStart")
	if err != nil {
		return nil, fmt.Errorf("program of %s: %w", unit, err)
	}
	// The last command is the one that counts for anything but a oneshot.
	list, ok := p.Value.Value().([][]any)
	if !ok || len(list) == 0 || len(list[len(list)-1]) < 2 {
		return nil, nil
	}
	last := list[len(list)-1]
	path, _ := last[0].(string)
	argv, _ := last[1].([]string)
	if path == "" || len(argv) == 0 {
		return nil, nil
	}
	return append([]string{path}, argv[1:]...), nil
}

// Run starts a command as a unit of its own and returns as soon as it runs. A
// unit of that name that has ended is replaced; one that runs is ErrRuns.
func (m *Manager) Run(ctx context.Context, unit, description string, argv, env []string) error {
	state, err := m.Active(ctx, unit)
	if err != nil {
		return err
	}
	if state == "active" || state == "activating" || state == "deactivating" {
		return fmt.Errorf("%s: %w", unit, ErrRuns)
	}
	// Ignored: the unit is not there or has not failed, both are fine.
	_ = m.conn.ResetFailedUnitContext(ctx, unit)
	prop := func(name string, v any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(v)}
	}
	props := []dbus.Property{
		dbus.PropDescription(description),
		dbus.PropExecStart(argv, false),
		dbus.PropType("exec"),
		prop("CollectMode", "inactive-or-failed"),
		prop("Environment", env),
	}
	return job(ctx, "start", unit, func(d chan<- string) (int, error) {
		return m.conn.StartTransientUnitContext(ctx, unit, "fail", props, d)
	})
}

// ErrRuns says that a unit of that name runs already.
var ErrRuns = errors.New("it runs already")

// Runs reports whether a unit runs or is about to.
func (m *Manager) Runs(ctx context.Context, unit string) (bool, error) {
	s, err := m.Active(ctx, unit)
	return strings.HasPrefix(s, "activ") || s == "deactivating" || s == "reloading", err
}

// UserSpace is when systemd began to start this user space: another time after a
// restart of the machine, and after one of user space alone.
func (m *Manager) UserSpace() (string, error) {
	v, err := m.conn.GetManagerProperty("UserspaceTimestampMonotonic")
	if err != nil {
		return "", fmt.Errorf("start of user space: %w", err)
	}
	return v, nil
}
