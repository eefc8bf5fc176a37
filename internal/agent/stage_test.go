package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/told"
	"github.com/refit-dev/refit/internal/model"
)

// fakeStager notes what it is asked.
type fakeStager struct {
	mu   sync.Mutex
	said []string
	// away: nothing can be prepared; slow: it takes until its context ends.
	away, slow bool
}

func (s *fakeStager) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
}

func (s *fakeStager) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.said
	s.said = nil
	return out
}

func (s *fakeStager) Prepare(ctx context.Context, name string, c *model.NodeConfig) error {
	s.note("prepare " + name + " " + c.OS.Digest())
	s.mu.Lock()
	away, slow := s.away, s.slow
	s.mu.Unlock()
	switch {
	case slow:
		<-ctx.Done()
		s.note("given up " + name)
		return ctx.Err()
	case away:
		return errors.New("the registry does not answer")
	}
	return nil
}

func (s *fakeStager) Drop(context.Context) error { s.note("drop"); return nil }

// busyRun is a run that is under way while it is said to be.
type busyRun struct {
	noRun
	mu   sync.Mutex
	busy bool
}

func (r *busyRun) Busy() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.busy }

func (r *busyRun) set(busy bool) { r.mu.Lock(); defer r.mu.Unlock(); r.busy = busy }

func configText(t *testing.T, version, image string) string {
	t.Helper()
	b, err := json.Marshal(model.NodeConfig{Version: version, OS: &model.ConfigOS{Image: image}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantsStaged is what a node is told: to make ready the configuration of that name.
func wantsStaged(t *testing.T, name string) *told.Want {
	t.Helper()
	return &told.Want{Spec: v1alpha1.NodeUpdateSpec{Stage: name}, Configs: map[string]string{
		"one": configText(t, model.ConfigVersion, "q/os@sha256:1"), "two": configText(t, model.ConfigVersion, "q/os@sha256:2"), "newer": configText(t, "refit.dev/config/v9", "q/os@sha256:3"), "torn": "{"}}
}

func TestStage(t *testing.T) {
	for name, c := range map[string]struct {
		stage string
		says  []string
		fails string
	}{
		"what is named is made ready":                {"one", []string{"prepare one sha256:1"}, ""},
		"nothing is named any more: dropped":         {"", []string{"drop"}, ""},
		"of a version that this agent does not know": {"newer", nil, "update refit on this node"},
		"a configuration that is no configuration":   {"torn", nil, "configuration torn"},
		"a configuration that has not arrived":       {"later", nil, "configuration later"},
	} {
		t.Run(name, func(t *testing.T) {
			a, s := idle(t, &fakeRuntime{dir: t.TempDir()}), &fakeStager{}
			a.stager = s
			w := wantsStaged(t, c.stage)
			err := a.stage(t.Context(), c.stage, w.Configs[c.stage])
			if d := cmp.Diff(c.says, s.took()); d != "" || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatal(err, d)
			}
		})
	}
}

// The loop: not while a run is under way, again after a minute if it did not work, at
// once when it is told something else, which also ends what is on its way (R2.91, R2.101).
func TestStageLoop(t *testing.T) {
	a, s, r := idle(t, &fakeRuntime{dir: t.TempDir()}), &fakeStager{away: true}, &busyRun{busy: true}
	a.stager, a.runner = s, r
	synctest.Test(t, func(t *testing.T) {
		a.kickStage, a.kickFacts = make(chan struct{}, 1), make(chan struct{}, 1)
		tell := func(name string) {
			a.mu.Lock()
			a.want = wantsStaged(t, name)
			a.mu.Unlock()
			kick(a.kickStage)
		}
		is := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if d := cmp.Diff(want, s.took()); d != "" {
				t.Fatal(what, d)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); a.stageLoop(ctx) }()
		is("nothing is told")
		tell("one")
		is("a run is under way")
		r.set(false)
		time.Sleep(stageEvery)
		is("it is over", "prepare one sha256:1")
		time.Sleep(3 * stageEvery)
		is("the registry is away", "prepare one sha256:1", "prepare one sha256:1", "prepare one sha256:1")
		s.mu.Lock()
		s.away, s.slow = false, true
		s.mu.Unlock()
		time.Sleep(stageEvery)
		is("it comes slowly", "prepare one sha256:1")
		s.mu.Lock()
		s.slow = false
		s.mu.Unlock()
		time.Sleep(10 * stageEvery)
		is("it still comes slowly")
		tell("two")
		time.Sleep(2 * supersededEvery)
		is("another is wanted", "given up one", "prepare two sha256:2")
		select {
		case <-a.kickFacts:
		default:
			t.Error("nobody is told that it lies ready")
		}
		tell("")
		is("nothing is wanted", "drop")
		stop()
		<-ended
	})
}

// What somebody changed is put back where the configuration that is wanted now asks for
// it, and told (R2.183).
func TestPutBack(t *testing.T) {
	repair := &model.NodeConfig{Version: model.ConfigVersion, Drift: model.DriftRepair}
	long := strings.Repeat("/etc/some/file ", 40)
	for name, c := range map[string]struct {
		configs []*model.NodeConfig
		did     []string
		fails   error
		asked   int
		told    string
	}{
		"a file is put back":                     {[]*model.NodeConfig{repair}, []string{"/etc/motd"}, nil, 1, "DriftRepaired: put back as refit had made it: /etc/motd"},
		"nothing was changed":                    {[]*model.NodeConfig{repair}, nil, nil, 1, ""},
		"it cannot be put back":                  {[]*model.NodeConfig{repair}, []string{"/etc/motd"}, errors.New("read-only file system"), 1, ""},
		"so many that a message would not end":   {[]*model.NodeConfig{repair}, []string{long}, nil, 1, "DriftRepaired: put back as refit had made it: /etc/some"},
		"only reported":                          {[]*model.NodeConfig{{Version: model.ConfigVersion}}, nil, nil, 0, ""},
		"ignored":                                {[]*model.NodeConfig{{Version: model.ConfigVersion, Drift: model.DriftIgnore}}, nil, nil, 0, ""},
		"asked for by a configuration of before": {[]*model.NodeConfig{{Version: model.ConfigVersion}, repair}, nil, nil, 0, ""},
		"no configuration is wanted":             {nil, nil, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, api, asked := idle(t, &fakeRuntime{dir: t.TempDir()}), newFakeAPI(), 0
			a.api = api
			a.repair = func(_ context.Context, got *model.NodeConfig, busy func() bool) ([]string, error) {
				if asked++; got != repair || busy() {
					t.Errorf("asked about %+v, busy %v", got, busy())
				}
				return c.did, c.fails
			}
			a.putBack(t.Context(), Asked{Configs: c.configs})
			said := strings.Join(api.events, "\n")
			if asked != c.asked || (c.told == "") != (said == "") || !strings.HasPrefix(said, c.told) || len(said) > messageBytes+len("DriftRepaired: ") {
				t.Fatalf("asked %d times, said %q", asked, said)
			}
		})
	}
	idle(t, &fakeRuntime{dir: t.TempDir()}).putBack(t.Context(), Asked{Configs: []*model.NodeConfig{repair}}) // nobody mends here
}
