package osdeploy

import (
	"context"
	"fmt"
	"time"
)

const (
	// readyStreak is how long the node must be Ready without a break: a kubelet that
	// crashes again and again is healthy in between.
	readyStreak = 10 * time.Second
	// observeInterval is the time between two observations meanwhile.
	observeInterval = time.Second
	// saveInterval is the time that a crash may lose.
	saveInterval = 10 * time.Second
)

// readyWait counts how long one attempt has waited for the node to become Ready, by no clock
// that a boot may set. It adds the time of this process of the agent to that of earlier
// ones, which is on disk.
type readyWait struct {
	started        time.Time
	earlier, saved time.Duration
	// readySince and kubeletSince: the node is Ready, and the kubelet healthy, since then
	// without a break; zero if it is not.
	readySince, kubeletSince time.Time
}

// timeWaited is the time so far. A process that was too short to save anything counts as a
// second, so that an agent that crashes again and again does not wait for ever.
func (u *Updater) timeWaited(m marks) (time.Duration, error) {
	w, now := &u.wait, u.now()
	if w.started.IsZero() {
		text, err := m.get("waited")
		if err != nil {
			return 0, err
		}
		if text != "" {
			if w.earlier, err = time.ParseDuration(text); err != nil {
				return 0, fmt.Errorf("recorded waiting time: %w", err)
			}
			w.earlier += time.Second
		}
		if err := m.set("waited", w.earlier.String()); err != nil {
			return 0, err
		}
		w.started, w.saved = now, w.earlier
	}
	spent := w.earlier + now.Sub(w.started)
	if spent-w.saved < saveInterval {
		return spent, nil
	}
	w.saved = spent
	return spent, m.set("waited", spent.String())
}

// streak continues, starts, or ends a time without a break.
func streak(t *time.Time, now time.Time, goesOn bool) time.Duration {
	switch {
	case !goesOn:
		*t = time.Time{}
		return 0
	case t.IsZero():
		*t = now
	}
	return now.Sub(*t)
}

// requestReboot asks the machine to restart. If the host refuses a restart of user space
// alone (its systemd is too old), it asks for a full one.
func (u *Updater) requestReboot(ctx context.Context, soft bool) error {
	if u.lastRequest = u.now(); u.firstRequest.IsZero() {
		u.firstRequest = u.lastRequest
	}
	err := u.host.Reboot(ctx, soft)
	if err != nil && soft {
		err = u.host.Reboot(ctx, false)
	}
	return err
}

// WithClock sets another clock, for tests.
func (u *Updater) WithClock(now func() time.Time) *Updater {
	u.now = now
	return u
}
