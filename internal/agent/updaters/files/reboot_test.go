package files

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
)

// machine takes some ticks to go down.
type machine struct {
	boots, left, asked int
	stuck              bool
}

func (m *machine) BootID() (string, error) { return fmt.Sprint("boot-", m.boots), nil }
func (m *machine) Reboot(context.Context) error {
	if m.asked++; m.left == 0 && !m.stuck {
		m.left = 4
	}
	return nil
}
func (m *machine) tick() {
	if m.left > 0 {
		if m.left--; m.left == 0 {
			m.boots++
		}
	}
}

func rebootFixture(t *testing.T) (*updatertest.Fixture, *machine) {
	m := &machine{}
	now := time.Now()
	return &updatertest.Fixture{
		Make: func() updaters.Updater { u := NewReboot(m); u.now = func() time.Time { return now }; return u },
		Task: updaters.Task{UID: "u", Attempt: 1, Started: now, Dir: filepath.Join(t.TempDir(), "runs"),
			Step: v1alpha1.UpdateStep{ID: "reboot", Updater: "reboot", Verb: "reboot"}},
		Tick:  func() { now = now.Add(time.Second); m.tick() },
		State: func() string { id, _ := m.BootID(); return id }, From: "boot-0", To: "boot-1",
		Waits: true, Reversible: true, Break: func() { m.stuck = true },
	}, m
}

func TestRebootConformance(t *testing.T) {
	updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture { f, _ := rebootFixture(t); return f })
}

// A machine that is slow to go down is not asked at every call, and a boot that is over
// is not ended again.
func TestOnce(t *testing.T) {
	f, m := rebootFixture(t)
	u := f.Make()
	for range 60 {
		if _, err := u.Update(t.Context(), f.Task); err != nil {
			t.Fatal(err)
		}
		f.Tick()
	}
	for range 5 { // a new process each time
		if r, err := f.Make().Update(t.Context(), f.Task); err != nil || !r.Done {
			t.Fatal(r, err)
		}
	}
	if m.asked != 1 || m.boots != 1 {
		t.Fatalf("asked %d times, %d boots", m.asked, m.boots)
	}
}
