package osdeploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// readyWithin gives the fixture's configuration a time to be Ready.
func readyWithin(f *updatertest.Fixture, m *machine, seconds int32) {
	c := model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: newImage, KernelArguments: []string{"new=1"}, ReadySeconds: seconds}}
	m.config = string(c.JSON())
	f.Task.Step.Params = map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, m.config)}
}

func only(digests ...string) map[string]bool {
	out := map[string]bool{}
	for _, d := range digests {
		out[d] = true
	}
	return out
}

// A node that is not Ready with the image it booted rolls back, once, and says what was
// observed; called again it says the same and boots nothing else.
func TestNotWell(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*machine)
		boots int
		stays bool // where the image brought it
		says  []string
	}{
		"the kubelet does not answer":                       {func(m *machine) { m.sick = only(newSum) }, 2, false, []string{"rolled back to sha256:aaaaaaaaaaaa", "connection refused", "exit-code", "--bad", "10m0s"}},
		"it does not, and the API server is unavailable":    {func(m *machine) { m.sick, m.api = only(newSum), apiUnavailable }, 2, false, []string{"connection refused"}},
		"the kubelet answers, and the node is not Ready":    {func(m *machine) { m.unready = only(newSum) }, 2, false, []string{"no network plugin"}},
		"the kubelet dies again and again":                  {func(m *machine) { m.dying = true }, 2, false, []string{"connection refused"}},
		"it crashes again and again, without an API server": {func(m *machine) { m.dying, m.api = true, apiUnavailable }, 2, false, []string{"rolled back"}},
		"there is no way to the API server":                 {func(m *machine) { m.api = "no way: network is unreachable" }, 2, false, []string{"not Ready there either", "network is unreachable"}},
		"it is not well there either":                       {func(m *machine) { m.sick = only(newSum, oldSum) }, 2, false, []string{"not Ready there either"}},
		"nothing is left to roll back to":                   {func(m *machine) { m.booted.Image, m.booted.Digest, m.sick, m.pruned = "", "", only(newSum), true }, 1, true, []string{"could not roll back", "connection refused"}},
		"the restart leads elsewhere":                       {func(m *machine) { m.sick, m.stuck = only(newSum), true }, 4, true, []string{"could not roll back", "runs sha256:bbbbbbbbbbbb"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			c.set(m)
			from := m.state()
			r := drive(t, f, f.Make().Update)
			if !r.Failed || r.Reason != v1alpha1.ReasonOSUnhealthy || m.boots != c.boots || (m.state() == from) == c.stays {
				t.Fatalf("%+v after %d boots at %s", r, m.boots, m.state())
			}
			for _, word := range c.says {
				if !strings.Contains(r.Message, word) {
					t.Errorf("%q is not in: %s", word, r.Message)
				}
			}
			if again := drive(t, f, f.Make().Update); again.Reason != r.Reason || m.boots != c.boots {
				t.Fatalf("asked again: %+v after %d boots", again, m.boots)
			}
			if c.stays {
				return
			}
			fields := f.Make().(*Updater).Fields(t.Context(), &model.NodeConfig{OS: &model.ConfigOS{Image: newImage}})
			if got := fields[model.FieldOSFailed]; !strings.HasPrefix(got, newSum+": ") || fields[model.FieldOSLeft] != "" || fields[FieldDrift] != "" {
				t.Errorf("%v", fields)
			}
			if back := drive(t, f, f.Make().Undo); !back.Done || m.boots != c.boots || m.state() != from {
				t.Fatalf("the engine's own undo: %+v after %d boots at %s", back, m.boots, m.state())
			}
		})
	}
}

// A slow node is waited for, and nothing is rolled back.
func TestWellInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*machine)
		then func(*machine)
	}{
		"the kubelet comes late":                                    {func(m *machine) { m.sick = only(newSum) }, func(m *machine) { m.sick = nil }},
		"the node is Ready late":                                    {func(m *machine) { m.unready = only(newSum) }, func(m *machine) { m.unready = nil }},
		"the API server is unavailable, and the kubelet is healthy": {func(m *machine) { m.api = apiUnavailable }, nil},
		"the API server comes back":                                 {func(m *machine) { m.api = apiUnavailable }, func(m *machine) { m.api = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			c.set(m)
			since, most, u := 0, 0, f.Make()
			r := drive(t, f, func(ctx context.Context, task updaters.Task) (updaters.Result, error) {
				if m.boots == 0 {
					since = m.ticks
				} else if m.ticks-since == 300 && c.then != nil {
					c.then(m)
				}
				most = m.ticks - since
				return u.Update(ctx, task)
			})
			if !r.Done || m.boots != 1 || m.state() != f.To || most < 300 {
				t.Fatalf("%+v after %d boots at %s, %d s", r, m.boots, m.state(), most)
			}
		})
	}
}

// The pool says how long it may take; half of a step's deadline is left for a rollback.
func TestHowLong(t *testing.T) {
	for name, c := range map[string]struct{ pool, deadline, want int32 }{
		"no limit is set":         {0, 0, model.OSReadySeconds},
		"the pool does":           {90, 3600, 90},
		"the step's time is less": {1200, 300, 150},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			readyWithin(f, m, c.pool)
			f.Task.Step.DeadlineSeconds = c.deadline
			m.sick = only(newSum)
			began, ended := 0, 0
			u := f.Make()
			r := drive(t, f, func(ctx context.Context, task updaters.Task) (updaters.Result, error) {
				r, err := u.Update(ctx, task)
				if m.boots == 0 {
					began = m.ticks
				} else if ended == 0 && r.Reason == v1alpha1.ReasonUndoing {
					ended = m.ticks
				}
				return r, err
			})
			if got := ended - began; r.Reason != v1alpha1.ReasonOSUnhealthy || got < int(c.want) || got > int(c.want)+2 {
				t.Fatalf("%+v after %d s, not %d", r, got, c.want)
			}
		})
	}
}

// A person's retry boots it again, with its whole time; if it is well then, nothing is
// left of the failure.
func TestTriedAgain(t *testing.T) {
	f, m := fixture(t)
	m.sick = only(newSum)
	for attempt := int32(1); attempt <= 2; attempt++ {
		f.Task.Attempt = attempt
		if r := drive(t, f, f.Make().Update); r.Reason != v1alpha1.ReasonOSUnhealthy || m.boots != 2*int(attempt) || m.state() != f.From {
			t.Fatalf("attempt %d: %+v after %d boots at %s", attempt, r, m.boots, m.state())
		}
	}
	m.sick, f.Task.Attempt = nil, 3
	if r := drive(t, f, f.Make().Update); !r.Done || m.state() != f.To {
		t.Fatalf("%+v at %s", r, m.state())
	}
	if got := f.Make().(*Updater).Fields(t.Context(), &model.NodeConfig{OS: &model.ConfigOS{Image: newImage}})[model.FieldOSFailed]; got != "" {
		t.Fatal(got)
	}
	if r := drive(t, f, f.Make().Undo); !r.Done || m.state() != f.From {
		t.Fatalf("%+v at %s", r, m.state())
	}
}

// An image that runs already is none that this step booted: how the node is is not
// its doing.
func TestTheImageThatWasBootedBeforeNeedsNoReadiness(t *testing.T) {
	f, m := fixture(t)
	m.booted.Digest, m.kargs, m.sick = newSum, []string{"root=/dev/x", "new=1"}, only(newSum)
	if r := drive(t, f, f.Make().Update); !r.Done || m.boots != 0 {
		t.Fatalf("%+v after %d boots", r, m.boots)
	}
}

// Arguments alone can keep a node from being well too.
func TestNotWellWithArguments(t *testing.T) {
	f, m := fixture(t)
	m.booted.Digest, m.booted.Image = newSum, newImage
	m.sick = only("new=1")
	from := m.state()
	if r := drive(t, f, f.Make().Update); r.Reason != v1alpha1.ReasonOSUnhealthy || m.boots != 2 || m.state() != from {
		t.Fatalf("%+v after %d boots at %s", r, m.boots, m.state())
	}
}

// An agent that crashes again and again still rolls back. One that is killed at any point
// of the rollback, or loses its power there, reaches the same end.
func TestNotWellAndKilled(t *testing.T) {
	t.Run("at every call", func(t *testing.T) {
		f, m := fixture(t)
		m.sick = only(newSum)
		r := drive(t, f, func(ctx context.Context, task updaters.Task) (updaters.Result, error) {
			return f.Make().Update(ctx, task)
		})
		if r.Reason != v1alpha1.ReasonOSUnhealthy || m.boots != 2 || m.state() != f.From {
			t.Fatalf("%+v after %d boots at %s", r, m.boots, m.state())
		}
	})
	for _, power := range []bool{false, true} {
		for nth, passed := 1, true; passed; nth++ {
			t.Run(fmt.Sprintf("power cut %v, at point %d", power, nth), func(t *testing.T) {
				f, m := fixture(t)
				m.sick = only(newSum)
				at := m.cutAt(t, f, nth)
				if at == "" {
					passed = false
					return
				}
				if power && m.boots > 0 { // before that another test cuts it
					m.boots++
					m.staged = nil
					if m.queued {
						m.queued, m.booted, m.back, m.kargs, m.oldKargs = false, m.back, m.booted, m.oldKargs, m.kargs
					}
				}
				r := drive(t, f, f.Make().Update)
				if r.Reason != v1alpha1.ReasonOSUnhealthy || m.state() != f.From || m.boots > 3 {
					t.Fatalf("killed at %s: %+v after %d boots at %s", at, r, m.boots, m.state())
				}
			})
		}
	}
}

type killed struct{}

// cutAt kills the agent at the nth failpoint that it passes, and names it; "" if it
// passed fewer.
func (m *machine) cutAt(t *testing.T, f *updatertest.Fixture, nth int) (at string) {
	t.Helper()
	n := 0
	defer failpoint.OnHit(func(name string) {
		if n++; n == nth {
			at = name
			panic(killed{})
		}
	})()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	drive(t, f, f.Make().Update)
	return at
}
