package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// RebootHost is the machine.
type RebootHost interface {
	// BootID is another one after every boot.
	BootID() (string, error)
	// Reboot asks for an orderly restart and returns.
	Reboot(ctx context.Context) error
}

const (
	// rebootRetry is the time after which a machine that did not go down is asked again.
	rebootRetry = 3 * time.Minute
	// rebootLimit is how long that may take before the step fails.
	rebootLimit = 15 * time.Minute
)

// RebootUpdater is the step "reboot".
type RebootUpdater struct {
	host        RebootHost
	now         func() time.Time
	requestedAt time.Time
}

// NewReboot makes the updater.
func NewReboot(h RebootHost) *RebootUpdater { return &RebootUpdater{host: h, now: time.Now} }

// Name is reboot.
func (u *RebootUpdater) Name() string { return "reboot" }

// OnlyWaits reports that there is nothing to undo.
func (u *RebootUpdater) OnlyWaits() bool { return true }

// RestartsMachine reports that restored files need another restart.
func (u *RebootUpdater) RestartsMachine() bool { return true }

func rebootFile(t updaters.Task) string {
	return filepath.Join(t.Dir, fmt.Sprintf("%s-%d.boot", t.Step.ID, t.Attempt))
}

// rebootBefore is the boot that must end, "" if it was not recorded yet.
func rebootBefore(t updaters.Task) (string, error) {
	b, err := os.ReadFile(rebootFile(t))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// Observe reports whether this is another boot.
func (u *RebootUpdater) Observe(_ context.Context, t updaters.Task) (updaters.Observation, error) {
	old, err := rebootBefore(t)
	if err != nil {
		return updaters.Observation{}, err
	}
	id, err := u.host.BootID()
	if err != nil {
		return updaters.Observation{}, err
	}
	if old == "" || id == old {
		return updaters.Observation{Detail: "the machine has not been restarted yet"}, nil
	}
	return updaters.Observation{Done: true}, nil
}

// Update records the boot, and asks the machine to end it.
func (u *RebootUpdater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	o, err := u.Observe(ctx, t)
	if err != nil || o.Done {
		return updaters.Result{Done: o.Done}, err
	}
	if u.now().Sub(t.Started) > rebootLimit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the machine did not restart within %s of the request; `systemctl list-jobs` on the node shows what it waits for", rebootLimit), nil
	}
	old, err := rebootBefore(t)
	if err == nil && old == "" {
		var id string
		if id, err = u.host.BootID(); err == nil {
			err = fsutil.WriteFile(rebootFile(t), []byte(id), 0o600)
		}
		failpoint.Here(failpoint.RebootNoted)
	}
	if err != nil {
		return updaters.Result{}, err
	}
	r := updaters.InProgress(v1alpha1.ReasonUpdating, "the machine restarts")
	if !u.requestedAt.IsZero() && u.now().Sub(u.requestedAt) < rebootRetry {
		return r, nil
	}
	u.requestedAt = u.now()
	return r, u.host.Reboot(ctx)
}

// Undo has nothing to undo.
func (u *RebootUpdater) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{Done: true}, nil
}
