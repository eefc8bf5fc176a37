package osdeploy

import (
	"context"
	"fmt"
	"time"
)

const (
	// quiet is how long the node must be well without a break: a kubelet that dies
	// again and again is healthy in between.
	quiet = 10 * time.Second
	// look is how often it is looked at meanwhile.
	look = time.Second
	// noteEvery is the time that a crash may make forgotten.
	noteEvery = 10 * time.Second
)

// wait counts for how long one attempt has waited for the node to be well, by no
// clock that a boot may set: the time that this life of the agent has taken, and that
// of those before it, which is on disk.
type wait struct {
	began         time.Time
	before, noted time.Duration
	// well and kubelet: all is well, the kubelet is healthy since then without a
	// break; zero if it is not.
	well, kubelet time.Time
}

// waited is the time so far. A life that was too short to note anything counts as a
// second: an agent that dies again and again does not wait for ever.
func (u *Updater) waited(m marks) (time.Duration, error) {
	w, now := &u.wait, u.now()
	if w.began.IsZero() {
		text, err := m.read("waited")
		if err != nil {
			return 0, err
		}
		if text != "" {
			if w.before, err = time.ParseDuration(text); err != nil {
				return 0, fmt.Errorf("the time that was waited: %w", err)
			}
			w.before += time.Second
		}
		if err := m.write("waited", w.before.String()); err != nil {
			return 0, err
		}
		w.began, w.noted = now, w.before
	}
	spent := w.before + now.Sub(w.began)
	if spent-w.noted < noteEvery {
		return spent, nil
	}
	w.noted = spent
	return spent, m.write("waited", spent.String())
}

// since goes on, begins, or ends a time without a break.
func since(t *time.Time, now time.Time, goesOn bool) time.Duration {
	switch {
	case !goesOn:
		*t = time.Time{}
		return 0
	case t.IsZero():
		*t = now
	}
	return now.Sub(*t)
}

// ask has the machine restart. A restart of user space that the host refuses (its
// systemd is too old) is a whole one.
func (u *Updater) ask(ctx context.Context, soft bool) error {
	if u.asked = u.now(); u.told.IsZero() {
		u.told = u.asked
	}
	err := u.host.Reboot(ctx, soft)
	if err != nil && soft {
		err = u.host.Reboot(ctx, false)
	}
	return err
}

// WithClock has another clock tell the time, for tests.
func (u *Updater) WithClock(now func() time.Time) *Updater {
	u.now = now
	return u
}
