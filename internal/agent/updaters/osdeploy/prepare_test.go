package osdeploy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

// wants is a configuration and its name.
func wants(image string, kargs ...string) (string, *model.NodeConfig) {
	c := &model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: image, KernelArguments: kargs}}
	b, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return v1alpha1.ContentName(v1alpha1.ContentConfig, string(b)), c
}

func updaterOf(t *testing.T) (*Updater, *machine, updaters.Task) {
	f, m := fixture(t)
	m.locks = true
	return f.Make().(*Updater), m, f.Task
}

func prepare(t *testing.T, u *Updater, name string, c *model.NodeConfig) map[string]string {
	t.Helper()
	if err := u.Prepare(t.Context(), name, c); err != nil {
		t.Fatal(err)
	}
	return u.Fields(t.Context(), c)
}

// The run boots what was prepared, and fetches or stages nothing again: the registry may
// be unreachable by then.
func TestPreparedIsUsed(t *testing.T) {
	for name, locks := range map[string]bool{"staged and locked": true, "only its bytes, where nothing can be locked (T2)": false} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			m.locks = locks
			u := f.Make().(*Updater)
			config, c := wants(newImage, "new=1")
			for range 3 { // again and again is once
				if got := prepare(t, u, config, c)[FieldPrepared]; got != config {
					t.Fatalf("%q is prepared", got)
				}
				u = f.Make().(*Updater)
			}
			if m.fetched != 1 || (m.staged != nil) != locks || m.asked != 0 {
				t.Fatalf("%d fetched, staged %+v, %d restarts asked", m.fetched, m.staged, m.asked)
			}
			m.away = true
			if r := drive(t, f, f.Make().Update); !r.Done || m.state() != f.To || m.serial != 1 || m.boots != 1 {
				t.Fatalf("%+v at %s, staged %d times, %d boots", r, m.state(), m.serial, m.boots)
			}
			if got := u.Fields(t.Context(), c)[FieldPrepared]; got != model.ValueNone {
				t.Fatalf("%q is prepared when it is booted", got)
			}
			if r := drive(t, f, f.Make().Undo); !r.Done || m.state() != f.From {
				t.Fatalf("%+v at %s", r, m.state())
			}
		})
	}
}

// An unplanned restart is into the old OS, and the image is prepared again.
func TestAnUnplannedRestart(t *testing.T) {
	u, m, _ := updaterOf(t)
	config, c := wants(newImage)
	prepare(t, u, config, c)
	_ = m.Reboot(t.Context(), false)
	for range 3 {
		m.tick()
	}
	u.seen.ok = false
	if got := u.Fields(t.Context(), c)[FieldPrepared]; m.booted.Digest != oldSum || got != model.ValueNone {
		t.Fatalf("%s is booted, %q is prepared", m.booted.Digest, got)
	}
	if got := prepare(t, u, config, c)[FieldPrepared]; got != config || m.staged == nil {
		t.Fatalf("%q is prepared", got)
	}
}

// What is superseded or not wanted any more is dropped; what others staged stays.
func TestSuperseded(t *testing.T) {
	const third = "q/os@sha256:cccccccccccccccc"
	u, m, _ := updaterOf(t)
	config, c := wants(newImage)
	prepare(t, u, config, c)
	other, d := wants(third)
	if f := prepare(t, u, other, d); f[FieldPrepared] != other || m.staged.Digest != "sha256:cccccccccccccccc" || m.forgot != 1 {
		t.Fatalf("%v, staged %+v, forgotten %d times", f, m.staged, m.forgot)
	}
	if err := u.Drop(t.Context()); err != nil || m.staged != nil || u.Fields(t.Context(), d)[FieldPrepared] != model.ValueNone {
		t.Fatal(err, m.staged)
	}
	prepare(t, u, config, c)
	m.staged = &osdriver.Deployment{ID: "theirs", Image: third, Digest: "sha256:cccccccccccccccc"}
	if err := u.Drop(t.Context()); err != nil || m.staged == nil {
		t.Fatal("what others staged is gone", err)
	}
	prepare(t, u, config, c)
	if f := prepare(t, u, "none", &model.NodeConfig{}); m.staged != nil || f[FieldPrepared] != "" {
		t.Fatal("a configuration without an image leaves one ready", f)
	}
}

// Any reason why it is not prepared is reported, and nothing stays behind that a restart
// would boot.
func TestNotPrepared(t *testing.T) {
	for name, x := range map[string]struct {
		set  func(*machine)
		says string
	}{
		"the image is nowhere":         {func(m *machine) { m.away = true }, "no such image"},
		"the host answers unchanged":   {func(m *machine) { m.unchanged = true }, "the next boot is into sha256:aaaaaaaaaaaa"},
		"the OS is made of packages":   {func(m *machine) { m.unsupported = true }, "made of packages"},
		"what is staged is not locked": {func(m *machine) { m.unlocked = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u, m, _ := updaterOf(t)
			x.set(m)
			config, c := wants(newImage)
			err := u.Prepare(t.Context(), config, c)
			f := u.Fields(t.Context(), c)
			if m.staged != nil || (err == nil) != (x.says == "") || (f[FieldPrepared] == config) != (x.says == "") || !strings.Contains(f[FieldProblem], x.says) || (f[FieldProblem] == "") != (x.says == "") {
				t.Fatalf("%v; %v; staged %+v", err, f, m.staged)
			}
			*m = *newMachine()
			m.locks = true
			if f := prepare(t, u, config, c); x.says != "" && (f[FieldPrepared] != config || f[FieldProblem] != "") {
				t.Fatal("after the repair:", f)
			}
		})
	}
}

// One at a time: a run waits for what prepares, and the other way round.
func TestOneAtATime(t *testing.T) {
	u, m, task := updaterOf(t)
	if err := u.exclusive(func() error {
		config, c := wants(newImage)
		if err := u.Prepare(t.Context(), config, c); err == nil || m.fetched != 0 {
			t.Errorf("%v, %d fetched", err, m.fetched)
		}
		r, err := u.Update(t.Context(), task)
		if err != nil || r.Done || r.Failed || r.Reason == "" || m.serial != 0 {
			t.Errorf("%+v %v", r, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
