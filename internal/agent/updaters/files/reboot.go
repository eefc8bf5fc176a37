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
	// again is after how long a machine that did not go down is told once more.
	again = 3 * time.Minute
	// rebootLimit is after how long that has failed.
	rebootLimit = 15 * time.Minute
)

// RebootUpdater is the step "reboot".
type RebootUpdater struct {
	host  RebootHost
	now   func() time.Time
	asked time.Time
}

// NewReboot makes the updater.
func NewReboot(h RebootHost) *RebootUpdater { return &RebootUpdater{host: h, now: time.Now} }

// Name is reboot.
func (u *RebootUpdater) Name() string { return "reboot" }

// Watches reports that there is nothing to take back.
func (u *RebootUpdater) Watches() bool { return true }

func rebootFile(t updaters.Task) string {
	return filepath.Join(t.Dir, fmt.Sprintf("%s-%d.boot", t.Step.ID, t.Attempt))
}

// rebootBefore is the boot that is to end, "" if it was not written down yet.
func rebootBefore(t updaters.Task) (string, error) {
	b, err := os.ReadFile(rebootFile(t))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// Observe sees whether this is another boot.
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

// Update writes the boot down and has it end.
func (u *RebootUpdater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	o, err := u.Observe(ctx, t)
	if err != nil || o.Done {
		return updaters.Result{Done: o.Done}, err
	}
	if u.now().Sub(t.Started) > rebootLimit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the machine was told to restart and has not within %s; `systemctl list-jobs` on the node says what it waits for", rebootLimit), nil
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
	r := updaters.Going(v1alpha1.ReasonUpdating, "the machine restarts")
	if !u.asked.IsZero() && u.now().Sub(u.asked) < again {
		return r, nil
	}
	u.asked = u.now()
	return r, u.host.Reboot(ctx)
}

// Undo has nothing to take back.
func (u *RebootUpdater) Undo(context.Context, updaters.Task) (updaters.Result, error) {
	return updaters.Result{Done: true}, nil
}
