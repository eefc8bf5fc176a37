package osdeploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/updatertest"
	"github.com/refit-dev/refit/internal/model"
)

const (
	oldImage, newImage = "q/os@sha256:aaaaaaaaaaaaaaaa", "q/os@sha256:bbbbbbbbbbbbbbbb"
	oldSum, newSum     = "sha256:aaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbb"
)

// machine is a host that stages, takes some ticks to restart, and merges at shutdown.
type machine struct {
	config               string
	booted, staged, back *osdriver.Deployment
	queued               bool
	kargs, next          []string
	oldKargs             []string
	serial, boots, left  int
	// What goes wrong.
	away, unchanged, lost, picked, unsupported bool
	// locks: what is staged is locked until it is let go; unlocked: the host says that
	// it locks, and does not.
	locks, unlocked bool
	// fetched counts downloads from the registry, here is what is prepared, forgot counts
	// removals of it.
	fetched, forgot int
	here            string
	said            string
	hang            chan struct{}
	asked           int
	// soft: a restart of user space alone was asked for; softly: the host can.
	// refuses: its systemd does not know what that is.
	soft, softly, refuses bool
	// sick are digests, or arguments, with which the kubelet does not answer, unready those with which
	// the node is not Ready; dying: the kubelet answers half of the time.
	sick, unready map[string]bool
	dying         bool
	ticks         int
	// api is the API server's answer to anything, if it has no other.
	api string
	// stuck: a rollback that is queued comes to nothing.
	stuck bool
	// pruned: what was booted before is gone from the disk.
	pruned bool
	// torn is the error with which staging ends after it has staged.
	torn error
	// hollow: a restart of user space changes nothing; userspaces counts those.
	hollow     bool
	userspaces int
	softNow    bool
	// itself: letting go what is staged restarts the machine.
	itself bool
	// grub is where the host's files are, if its GRUB counts boots; dead are digests with
	// which it does not come up.
	grub string
	dead map[string]bool
	// journal has what greenboot logged.
	journal journal
}

func (m *machine) KubeletHealthy(context.Context) error {
	sick := m.sick[m.booted.Digest] || slices.ContainsFunc(m.kargs, func(a string) bool { return m.sick[a] })
	if m.left > 0 || sick || m.dying && m.booted.Digest == newSum && m.ticks%20 < 10 {
		return errors.New("kubelet's health: connection refused")
	}
	return nil
}

func (m *machine) Ready(context.Context) (string, bool) {
	switch {
	case m.api != "":
		return m.api, m.api == apiUnavailable
	case m.unready[m.booted.Digest]:
		return "the API server does not call the node Ready: no network plugin", false
	}
	return "", false
}

func (m *machine) KubeletState(context.Context) string {
	return "kubelet.service is activating (exit-code)\nunknown flag: --bad"
}

const apiUnavailable = "the API server does not answer"

func (m *machine) Config(string) (string, bool)                    { return m.config, true }
func (m *machine) Driver(context.Context) (osdriver.Driver, error) { return (*sim)(m), nil }
func (m *machine) Image(_ context.Context, image string) (osdriver.Source, []string, error) {
	if m.away && m.here != image {
		return osdriver.Source{}, nil, errors.New("the registry has no such image")
	}
	return osdriver.Source{Transport: osdriver.Registry, Location: image}, []string{"sha256:other-form"}, nil
}
func (m *machine) Fetch(ctx context.Context, image string) (osdriver.Source, []string, error) {
	s, same, err := m.Image(ctx, image)
	if err == nil && m.here != image {
		m.here = image
		m.fetched++
	}
	return s, same, err
}
func (m *machine) Forget() error {
	if m.here != "" {
		m.here = ""
		m.forgot++
	}
	return nil
}
func (m *machine) Boot() (string, error) {
	return fmt.Sprintf("boot-%d userspace-%d", m.boots, m.userspaces), nil
}
func (m *machine) Reboot(_ context.Context, soft bool) error {
	m.soft = m.soft || soft
	if soft && m.refuses {
		return errors.New("Unknown command verb soft-reboot")
	}
	m.softNow = soft
	if m.asked++; m.left == 0 {
		m.left = 3
	}
	return nil
}

// tick lets time pass, and the machine restart.
func (m *machine) tick() {
	m.ticks++
	if m.left == 0 {
		return
	}
	if m.left--; m.left > 0 {
		return
	}
	if m.userspaces++; m.softNow && m.hollow {
		return
	}
	m.boots++
	if m.staged != nil && m.dead[m.staged.Digest] { // GRUB gave it up, and it is still the default
		m.back, m.staged, m.queued = m.staged, nil, true
		return
	}
	switch {
	case m.queued && m.stuck:
	case m.queued:
		m.booted, m.back, m.kargs, m.oldKargs = m.back, m.booted, m.oldKargs, m.kargs
	case m.staged != nil && m.staged.Locked: // it was not activated
	case m.staged != nil && !m.lost && m.picked:
		m.back = m.staged // the new one is there, and a person chose the old one
	case m.staged != nil && !m.lost:
		m.booted, m.back, m.kargs, m.oldKargs = m.staged, m.booted, m.next, m.kargs
	}
	m.staged, m.queued = nil, false
	if m.pruned {
		m.back = nil
	}
}

// sim is the machine as a driver.
type sim machine

func (s *sim) Name() string { return "sim" }
func (s *sim) Status(context.Context) (osdriver.Status, error) {
	out := osdriver.Status{Driver: "sim", Booted: s.booted, Staged: s.staged, Rollback: s.back, RollbackQueued: s.queued, Running: slices.Clone(s.kargs), Next: s.booted}
	if s.queued {
		out.Next = s.back
	} else if s.staged != nil {
		out.Next = s.staged
	}
	if s.unsupported {
		out.Unsupported = "made of packages"
	}
	if s.locks {
		out.Capabilities = []string{osdriver.CanDownloadOnly}
	}
	return out, nil
}
func (s *sim) Stage(ctx context.Context, t osdriver.Target) error {
	if s.hang != nil {
		close(s.hang)
		s.hang = nil
		<-ctx.Done()
		return ctx.Err()
	}
	if s.unchanged {
		return nil
	}
	s.serial++
	s.queued, s.staged = false, &osdriver.Deployment{ID: fmt.Sprint("dep-", s.serial), Image: t.Image, Digest: t.Digest, Locked: s.locks && !s.unlocked}
	s.next = osdriver.Change(s.kargs, t.Drop, t.Kargs)
	return s.torn
}
func (s *sim) Discard(context.Context) error { s.staged, s.queued = nil, false; return nil }
func (s *sim) Rollback(context.Context) error {
	if s.back == nil {
		return osdriver.ErrNoRollback
	}
	s.staged, s.queued = nil, true
	return nil
}
func (s *sim) Activate(_ context.Context, t osdriver.Target) (osdriver.Activation, error) {
	if s.staged != nil {
		s.staged.Locked = false
	}
	if s.itself {
		return osdriver.ByReboot, (*machine)(s).Reboot(context.Background(), false)
	}
	if t.SoftReboot && s.softly {
		return osdriver.BySoftReboot, nil
	}
	return osdriver.ByReboot, nil
}
func (s *sim) Failure(context.Context) string { return s.said }

func newMachine() *machine {
	return &machine{booted: &osdriver.Deployment{ID: "dep-0", Image: oldImage, Digest: oldSum}, kargs: []string{"root=/dev/x", "old=1"}}
}

func (m *machine) state() string {
	next := ""
	if m.staged != nil || m.queued {
		next = ", and another is next"
	}
	return m.booted.Digest + " " + strings.Join(m.kargs, " ") + next
}

func fixture(t *testing.T) (*updatertest.Fixture, *machine) {
	m := newMachine()
	now := time.Now()
	dir := t.TempDir()
	b, err := json.Marshal(model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: newImage, KernelArguments: []string{"new=1"}}})
	if err != nil {
		t.Fatal(err)
	}
	m.config = string(b)
	file := filepath.Join(dir, "os.json")
	if err := record(file).update(func(g *recordData) { g.OwnKargs = []string{"old=1"} }); err != nil {
		t.Fatal(err)
	}
	return &updatertest.Fixture{
		Make: func() updaters.Updater {
			u := New(m, file)
			u.now = func() time.Time { return now }
			return u.WithBootCounter(m.counter())
		},
		Task: updaters.Task{UID: "u", Attempt: 1, Started: now, Dir: filepath.Join(dir, "run"), Rollback: filepath.Join(dir, "run", "rollback"),
			Step: v1alpha1.UpdateStep{ID: "os-image", Updater: "os-image", Verb: "apply", Params: map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, m.config)}}},
		Tick:  func() { now = now.Add(time.Second); m.tick() },
		State: m.state, From: oldSum + " root=/dev/x old=1", To: newSum + " root=/dev/x new=1",
		Reversible: true,
		Break:      func() { m.away = true },
		Hang:       func() <-chan struct{} { m.hang = make(chan struct{}); return m.hang },
		Planned:    &model.Step{ID: "os-image", Updater: "os-image", Verb: "apply", Changes: []model.Change{{Path: model.FieldOSImage, From: oldSum, To: newSum}}},
	}, m
}

func TestConformance(t *testing.T) {
	updatertest.Conform(t, func(t *testing.T) *updatertest.Fixture { f, _ := fixture(t); return f })
}

func drive(t *testing.T, f *updatertest.Fixture, call func(context.Context, updaters.Task) (updaters.Result, error)) updaters.Result {
	t.Helper()
	for range 2000 {
		r, err := call(t.Context(), f.Task)
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		f.Tick()
	}
	t.Fatal("no end")
	return updaters.Result{}
}

// Every way in which a restart does not lead to the image has its own word.
func TestWhatGoesWrong(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*machine)
		reason string
		boots  int
	}{
		"the host answers unchanged and ends with 0":  {func(m *machine) { m.unchanged = true }, v1alpha1.ReasonOSNotStaged, 0},
		"the image is nowhere":                        {func(m *machine) { m.away = true }, v1alpha1.ReasonOSNotStaged, 0},
		"it came back on the old one":                 {func(m *machine) { m.lost = true; m.said = "No space left on device" }, v1alpha1.ReasonVersionReverted, 1},
		"a person chose the old one at the boot menu": {func(m *machine) { m.picked = true }, v1alpha1.ReasonOSRolledBack, 1},
		"the OS is made of packages":                  {func(m *machine) { m.unsupported = true }, v1alpha1.ReasonOSUnsupported, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			c.set(m)
			r := drive(t, f, f.Make().Update)
			if r.Reason != c.reason || m.boots != c.boots || !strings.HasPrefix(m.state(), f.From) {
				t.Fatalf("%+v after %d boots at %s", r, m.boots, m.state())
			}
			if m.said != "" && !strings.Contains(r.Message, m.said) {
				t.Errorf("the host's own words are missing: %s", r.Message)
			}
			if again := drive(t, f, f.Make().Update); again.Reason != c.reason || m.boots != c.boots {
				t.Fatalf("asked again: %+v after %d boots", again, m.boots)
			}
		})
	}
}

// The image is booted already, under the digest of the index: nothing restarts, and the
// field says the digest that people know (2.2).
func TestTheOtherDigest(t *testing.T) {
	f, m := fixture(t)
	m.booted.Digest, m.kargs = "sha256:other-form", []string{"root=/dev/x", "new=1"}
	if r := drive(t, f, f.Make().Update); !r.Done || m.boots != 0 {
		t.Fatalf("%+v after %d boots", r, m.boots)
	}
	fields := f.Make().(*Updater).Fields(t.Context(), &model.NodeConfig{OS: &model.ConfigOS{Image: newImage, KernelArguments: []string{"new=1"}}})
	if history := fields[model.FieldOSHistory]; !strings.HasSuffix(history, " "+newImage) {
		t.Error(history)
	}
	delete(fields, model.FieldOSHistory) // it has a time
	if d := cmp.Diff(map[string]string{FieldDriver: "sim", model.FieldOSStock: "q/os@sha256:other-form", model.FieldOSImage: newSum, model.FieldKernelArguments: "new=1", FieldDrift: "", FieldPrepared: model.ValueNone}, fields); d != "" {
		t.Fatal(d)
	}
}

// An argument that the machine has of its own is never taken away.
func TestForeignArgumentsStay(t *testing.T) {
	f, m := fixture(t)
	m.kargs = append(m.kargs, "new=1") // a person gave it
	if r := drive(t, f, f.Make().Update); !r.Done {
		t.Fatalf("%+v", r)
	}
	g, err := record(filepath.Join(filepath.Dir(f.Task.Dir), "os.json")).load()
	if err != nil || len(g.OwnKargs) != 0 {
		t.Fatalf("refit says that it gave %v (%v)", g.OwnKargs, err)
	}
}

// Nothing is left to roll back to: that is reported, and nothing restarts.
func TestNoWayBack(t *testing.T) {
	f, m := fixture(t)
	m.booted.Image, m.booted.Digest = "", ""
	if r := drive(t, f, f.Make().Update); !r.Done {
		t.Fatalf("%+v", r)
	}
	m.back = nil
	boots := m.boots
	if r := drive(t, f, f.Make().Undo); r.Reason != v1alpha1.ReasonNotReversible || m.boots != boots {
		t.Fatalf("%+v after %d boots", r, m.boots-boots)
	}
}

// The earlier deployment was pruned, its image can be fetched: it is staged again.
func TestBackByImage(t *testing.T) {
	f, m := fixture(t)
	if r := drive(t, f, f.Make().Update); !r.Done {
		t.Fatalf("%+v", r)
	}
	m.back = nil
	if r := drive(t, f, f.Make().Undo); !r.Done || m.state() != f.From {
		t.Fatalf("%+v at %s", r, m.state())
	}
}

// The answer of the host's signature policy is a field; an unreadable policy rejects.
func TestPolicyField(t *testing.T) {
	f, _ := fixture(t)
	file := filepath.Join(t.TempDir(), "policy.json")
	for _, c := range []struct{ text, want string }{{"", ""}, {`{"default":[{"type":"insecureAcceptAnything"}]}`, model.SignaturePolicyAccepts}, {`{"default":[{"type":"reject"}]}`, model.SignaturePolicyRejects}, {"{", model.SignaturePolicyRejects}} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := f.Make().(*Updater).WithPolicy(file).Fields(t.Context(), &model.NodeConfig{OS: &model.ConfigOS{Image: newImage}})
		if got[model.FieldOSPolicy] != c.want || got[FieldDriver] == "" {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}

// A host whose kernel enforces an SELinux policy says so, also if that policy cannot be read.
func TestSELinuxField(t *testing.T) {
	f, _ := fixture(t)
	for _, c := range []struct{ driver, state, want string }{
		{osdriver.OSTree, "", ""}, {osdriver.OSTree, "0", ""}, {osdriver.OSTree, "1", model.ValueEnforcing},
		{osdriver.Bootc, "1\n", model.ValueEnforcing}, {osdriver.RPMOSTree, "1", model.ValueEnforcing}, {osdriver.Sysext, "1", ""},
	} {
		root := t.TempDir()
		if c.state != "" {
			if err := os.MkdirAll(filepath.Join(root, "sys/fs/selinux"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "sys/fs/selinux/enforce"), []byte(c.state), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := map[string]string{FieldDriver: c.driver}
		if f.Make().(*Updater).WithSELinux(root).addSELinux(out); out[model.FieldOSSELinux] != c.want {
			t.Errorf("%+v: %v", c, out)
		}
	}
}

func TestFields(t *testing.T) {
	s := osdriver.Status{Driver: "bootc", Unsupported: "why", Booted: &osdriver.Deployment{ID: "1", Digest: "sha256:a"}, Rollback: &osdriver.Deployment{ID: "0", Digest: "sha256:o"},
		Next: &osdriver.Deployment{ID: "2", Digest: "sha256:n"}, Running: []string{"x", "b=1", "a=1", "gone=1"},
		Drift: []osdriver.Drift{{Kind: osdriver.DriftShadow, Detail: "one"}, {Kind: osdriver.DriftShadow, Detail: strings.Repeat("y", 600)}, {Kind: osdriver.DriftOverlay, Detail: "over"}}}
	got := fieldsOf(s, &model.ConfigOS{Image: newImage, KernelArguments: []string{"a=1", "b=1", "c=1"}}, recordData{OwnKargs: []string{"gone=1", "never=1"}})
	want := map[string]string{FieldDriver: "bootc", FieldUnsupported: "why", model.FieldOSImage: "sha256:a", FieldRollback: "sha256:o", FieldStaged: "sha256:n",
		model.FieldKernelArguments: "a=1 b=1 gone=1", FieldDrift: "ShadowedByEtc,UsrOverlay", PrefixDrift + osdriver.DriftOverlay: "over",
		PrefixDrift + osdriver.DriftShadow: "one; " + strings.Repeat("y", 504) + "..."}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// A restart of user space alone, where the pool permits it and the host can; one that
// does not happen is followed by a whole one.
func TestSoftReboot(t *testing.T) {
	for name, x := range map[string]struct{ permitted, can, refuses, want bool }{
		"permitted, and the host can":                        {true, true, false, true},
		"permitted, and the host cannot":                     {true, false, false, false},
		"the host can, and may not":                          {false, true, false, false},
		"permitted, and its systemd refuses: whole, at once": {true, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			m.softly, m.refuses = x.can, x.refuses
			c := model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: newImage, KernelArguments: []string{"new=1"}, SoftReboot: x.permitted}}
			m.config = string(c.JSON())
			f.Task.Step.Params = map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, m.config)}
			if r := drive(t, f, f.Make().Update); !r.Done || m.soft != x.want || m.state() != f.To {
				t.Fatalf("%+v, soft %v", r, m.soft)
			}
		})
	}
}

// A host that restarts only its user space, and comes back to the old OS, restarts as a whole.
func TestHollowSoftReboot(t *testing.T) {
	f, m := fixture(t)
	m.softly, m.hollow = true, true
	c := model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: newImage, KernelArguments: []string{"new=1"}, SoftReboot: true}}
	m.config = string(c.JSON())
	f.Task.Step.Params = map[string]string{model.ParamConfig: v1alpha1.ContentName(v1alpha1.ContentConfig, m.config)}
	if r := drive(t, f, f.Make().Update); !r.Done || !m.soft || m.state() != f.To || m.boots != 1 || m.asked != 2 {
		t.Fatalf("%+v, soft %v, %d boots, asked %d times", r, m.soft, m.boots, m.asked)
	}
}

// A tool that stages, and then fails, leaves nothing that a restart would boot, neither before the
// run nor in it. What was staged before it, and is there still, is not the tool's.
func TestWhatAFailedTryLeavesIsDropped(t *testing.T) {
	f, m := fixture(t)
	m.torn, m.locks = errors.New("bound image registry.example/a: connection refused"), true
	config, c := wants(newImage, "new=1")
	err := f.Make().(*Updater).Prepare(t.Context(), config, c)
	if err == nil || !strings.Contains(err.Error(), "bound image") || m.staged != nil {
		t.Fatalf("prepared: %v, staged %+v", err, m.staged)
	}
	if r := drive(t, f, f.Make().Update); r.Reason != v1alpha1.ReasonOSNotStaged || !strings.Contains(r.Message, "bound image") || m.staged != nil || m.boots != 0 {
		t.Fatalf("%+v, staged %+v, %d boots", r, m.staged, m.boots)
	}
	theirs := &osdriver.Deployment{ID: "theirs"}
	m.staged = theirs
	err = stageOrDrop(t.Context(), &view{driver: failing{(*sim)(m)}, status: osdriver.Status{Next: theirs}}, osdriver.Target{})
	if err == nil || m.staged != theirs {
		t.Fatal("what others staged is gone", err)
	}
}

// failing fails before it changes anything.
type failing struct{ *sim }

func (failing) Stage(context.Context, osdriver.Target) error { return errors.New("busy") }

// rpm-ostree restarts the machine when it lets go what is staged. The boot that ends is on record by
// then: a restart into the old OS is reported, and not repeated.
func TestAHostThatRestartsByItself(t *testing.T) {
	for name, lost := range map[string]bool{"into the image": false, "into the old OS": true} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			m.itself, m.lost = true, lost
			call := f.Make()
			if _, err := call.Update(t.Context(), f.Task); err != nil {
				t.Fatal(err)
			}
			for m.boots == 0 { // the agent is killed before it can ask by itself
				m.tick()
			}
			r := drive(t, f, f.Make().Update)
			if r.Done == lost || lost && r.Reason != v1alpha1.ReasonVersionReverted || m.boots != 1 {
				t.Fatalf("%+v after %d boots", r, m.boots)
			}
		})
	}
}

// A person rolled the node back from what is still wanted: that is reported, and not as
// drift of another kind. What refit did itself is neither.
func TestLeft(t *testing.T) {
	f, m := fixture(t)
	c := &model.NodeConfig{OS: &model.ConfigOS{Image: newImage, KernelArguments: []string{"new=1"}}}
	fields := func() map[string]string { return f.Make().(*Updater).Fields(t.Context(), c) }
	if r := drive(t, f, f.Make().Update); !r.Done || fields()[model.FieldOSLeft] != "" || fields()[FieldDrift] != "" {
		t.Fatalf("%+v %v", r, fields())
	}
	m.booted, m.back = m.back, m.booted // `bootc rollback` and a restart
	if got := fields(); got[model.FieldOSLeft] != newSum || got[FieldDrift] != "" {
		t.Fatal("rolled back:", got)
	}
	c.OS.Image = "q/os@sha256:cccccccccccccccc" // by now another one is wanted
	if got := fields(); got[model.FieldOSLeft] != "" {
		t.Fatal("another is wanted:", got)
	}
	c.OS.Image = newImage
	old := m.booted
	m.booted = &osdriver.Deployment{ID: "x", Image: "q/theirs@sha256:dddddddddddddddd", Digest: "sha256:dddddddddddddddd"}
	if got := fields(); got[FieldDrift] != osdriver.DriftForeign || got[model.FieldOSLeft] != "" {
		t.Fatal("another deployment:", got)
	}
	m.booted, m.back = m.back, old
	if r := drive(t, f, f.Make().Undo); !r.Done || fields()[model.FieldOSLeft] != "" || fields()[FieldDrift] != "" {
		t.Fatalf("rolled back by refit: %+v %v", r, fields())
	}
}
