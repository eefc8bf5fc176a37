package agent

import (
	"context"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// A node that keeps no copy holds the images all the same; what it loses
// comes from a peer with a copy, and the status reports which images have one.
func TestANodeThatKeepsNoCopy(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	keeps, lean := newTestNode(t, "n1", 17966, path), newTestNode(t, "n2", 17967)
	introduce(keeps, lean)
	approve(t, h, everything(h), keeps)
	truncateNames := everything(h)
	for i := range truncateNames.Images {
		truncateNames.Images[i].NoCopy = true
	}
	approve(t, h, truncateNames, lean)
	copies := func(n int32) func(*v1alpha1.NodeUpdateStatus) bool {
		return func(s *v1alpha1.NodeUpdateStatus) bool {
			return held(s) && s.ColdStart != nil && s.ColdStart.Copies == n && len(s.ColdStart.Without) == 2-int(n)
		}
	}
	keeps.reported("a copy of both", copies(2))
	s := lean.reported("everything held, no copy", copies(0))
	if s.Pins.ImagesPinned != 2 || s.Pins.PayloadsReady != 1 || s.Pins.BytesDone != s.Pins.BytesTotal {
		t.Errorf("%+v", s.Pins)
	}
	lean.runtime.lose("registry.example/app:1")
	for range 600 {
		if lean.runtime.has("registry.example/app:1") {
			lean.reported("held again, no copy again", copies(0))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("no peer restored it")
}

// A drill runs only on a node that has pinned and copied all images, and once.
func TestADrillIsPlayedOnAReadyNodeOnly(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	var played []string
	a.maintenance.drill = func(_ context.Context, id string) error { played = append(played, id); return nil }
	a.want = &desired.State{Spec: v1alpha1.NodeUpdateSpec{Pins: "pins-1"}}
	a.state.pins = v1alpha1.PinStatus{Content: "pins-1", ImagesTotal: 2, ImagesPinned: 2}
	for _, c := range []struct {
		cold *v1alpha1.ColdStart
		id   string
		want int
	}{
		{&v1alpha1.ColdStart{Copies: 1}, "d1", 0},
		{&v1alpha1.ColdStart{Copies: 2, Drill: "d1"}, "d1", 0},
		{&v1alpha1.ColdStart{Copies: 2, Drill: "d1"}, "d2", 1},
	} {
		a.state.coldStart = c.cold
		a.maintenance.playDrill(t.Context(), c.id)
		if len(played) != c.want {
			t.Errorf("%+v, drill %s: played %v", c.cold, c.id, played)
		}
	}
}

// A restore is rehearsed once for each request, not while an update runs, and not again by an
// agent that starts again.
func TestARestoreIsRehearsedOnce(t *testing.T) {
	a := idle(t, &fakeRuntime{})
	var ran []string
	l := a.maintenance
	l.rehearsals = make(chan string, 1)
	l.rehearse = func(_ context.Context, id string) v1alpha1.RestoreDrill {
		ran = append(ran, id)
		return v1alpha1.RestoreDrill{Datastore: "sqlite", Objects: 3}
	}
	request := func(id string, last *v1alpha1.RestoreDrill, want int) {
		t.Helper()
		l.requestRehearsal(id, last)
		select {
		case id := <-l.rehearsals:
			l.rehearseRestore(t.Context(), id)
		default:
		}
		if len(ran) != want {
			t.Errorf("%s: ran %v", id, ran)
		}
	}
	request("", nil, 0)
	request("r1", &v1alpha1.RestoreDrill{ID: "r1"}, 0)
	request("r2", nil, 1)
	request("r2", nil, 1)
	if r := a.state.restoreDrill; r == nil || r.ID != "r2" || r.Objects != 3 || r.FinishedAt.IsZero() || r.Problem != nil {
		t.Errorf("%+v", r)
	}
	a.runner = &busyRunner{a.runner}
	request("r3", nil, 1)
	if r := a.state.restoreDrill; r.ID != "r3" || r.Problem == nil || r.Problem.Reason != v1alpha1.ReasonAnotherUpdateRunning {
		t.Errorf("%+v", r)
	}
}

type busyRunner struct{ Runner }

func (*busyRunner) Busy() bool { return true }
