package osdeploy

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/model"
)

func (m *machine) counter() *osdriver.BootCounter {
	if m.grub == "" {
		return nil
	}
	return &osdriver.BootCounter{Root: m.grub, Runner: m.journal}
}

// journal answers every program with what greenboot logged.
type journal string

func (j journal) Run(context.Context, io.Reader, ...string) ([]byte, error) { return []byte(j), nil }

// countsBoots gives the machine a GRUB that counts.
func (m *machine) countsBoots(t *testing.T) {
	t.Helper()
	m.grub = t.TempDir()
	if err := os.MkdirAll(filepath.Join(m.grub, "boot/grub2"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.setBlock(t, "boot_success=1\n")
	if err := os.WriteFile(filepath.Join(m.grub, "boot/grub2/grub.cfg"), []byte("boot_counter"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) blockFile() string { return filepath.Join(m.grub, "boot/grub2/grubenv") }

func (m *machine) setBlock(t *testing.T, lines string) {
	t.Helper()
	const header = "# GRUB Environment Block\n"
	if err := os.WriteFile(m.blockFile(), []byte(header+lines+strings.Repeat("#", 1024-len(header)-len(lines))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// block is what GRUB's environment has.
func (m *machine) block(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(m.blockFile())
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(lines, "#")
}

const (
	armedBlock    = "boot_counter=2\nboot_success=0\n"
	disarmedBlock = "boot_success=1\n"
)

// driveWith drives a call, and inspects GRUB's environment while the machine restarts.
func driveWith(t *testing.T, m *machine, call func() (updaters.Result, error), tick, restarts func()) updaters.Result {
	t.Helper()
	for range 2000 {
		r, err := call()
		if err == nil && (r.Done || r.Failed) {
			return r
		}
		if m.left == 1 {
			restarts()
		}
		tick()
	}
	t.Fatal("no end")
	return updaters.Result{}
}

// The boots of a new image are counted until the node is Ready with it.
func TestBootsAreCountedUntilTheNodeIsReady(t *testing.T) {
	f, m := fixture(t)
	m.countsBoots(t)
	u := f.Make()
	counted := 0
	r := driveWith(t, m, func() (updaters.Result, error) { return u.Update(t.Context(), f.Task) }, f.Tick, func() {
		if counted++; m.block(t) != armedBlock {
			t.Errorf("at the restart GRUB has %q", m.block(t))
		}
		m.setBlock(t, "boot_counter=1\nboot_success=0\n") // as GRUB does
	})
	if !r.Done || counted == 0 || m.block(t) != disarmedBlock {
		t.Fatalf("%+v, GRUB has %q", r, m.block(t))
	}
}

// GRUB gave the image up: the node is where it was, the image is no longer the default, and the
// result has the reason. It happens once, over restarts of the agent.
func TestGrubGaveTheImageUp(t *testing.T) {
	f, m := fixture(t)
	m.countsBoots(t)
	u := f.Make()
	m.dead = only(newSum)
	boots, from := m.boots, m.state()
	r := driveWith(t, m, func() (updaters.Result, error) { return u.Update(t.Context(), f.Task) }, f.Tick, func() {
		m.setBlock(t, "boot_counter=-1\nboot_success=0\n")
	})
	if !r.Failed || r.Reason != v1alpha1.ReasonOSUnhealthy || m.state() != from || m.boots != boots+1 || m.block(t) != disarmedBlock {
		t.Fatalf("%+v after %d boots at %s, GRUB has %q", r, m.boots-boots, m.state(), m.block(t))
	}
	for _, words := range []string{"rolled back to sha256:aaaaaaaaaaaa", "sha256:bbbbbbbbbbbb did not start", "GRUB started it 2 times", "its kernel, its initramfs or its systemd"} {
		if !strings.Contains(r.Message, words) {
			t.Errorf("%q is not in: %s", words, r.Message)
		}
	}
	fields := f.Make().(*Updater).Fields(t.Context(), &model.NodeConfig{OS: &model.ConfigOS{Image: newImage}})
	if !strings.Contains(fields[model.FieldOSFailed], "did not start") || fields[model.FieldOSLeft] != "" {
		t.Errorf("%v", fields)
	}
	if again := drive(t, f, f.Make().Update); again.Reason != r.Reason || m.boots != boots+1 {
		t.Fatalf("asked again: %+v after %d boots", again, m.boots-boots)
	}
}

// greenboot made the former image the default, and removed the counter: that is no choice of a person.
func TestGreenbootGaveTheImageUp(t *testing.T) {
	f, m := fixture(t)
	m.countsBoots(t)
	program := filepath.Join(m.grub, "usr/libexec/greenboot/greenboot")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.picked, m.journal = true, "FALLBACK BOOT DETECTED! Default rpm-ostree deployment has been rolled back."
	u := f.Make()
	boots, from := m.boots, m.state()
	r := driveWith(t, m, func() (updaters.Result, error) { return u.Update(t.Context(), f.Task) }, f.Tick, func() { m.setBlock(t, "boot_success=0\n") })
	if r.Reason != v1alpha1.ReasonOSUnhealthy || m.state() != from || m.boots != boots+1 || m.block(t) != disarmedBlock {
		t.Fatalf("%+v after %d boots at %s, GRUB has %q", r, m.boots-boots, m.state(), m.block(t))
	}
	if words := "did not start: greenboot returned to the earlier deployment"; !strings.Contains(r.Message, words) {
		t.Errorf("%q is not in: %s", words, r.Message)
	}
}

// rpm-ostree restarts the machine when it lets go what is staged: boots are counted by then.
func TestBootsAreCountedBeforeAHostRestartsByItself(t *testing.T) {
	f, m := fixture(t)
	m.countsBoots(t)
	m.itself = true
	if _, err := f.Make().Update(t.Context(), f.Task); err != nil {
		t.Fatal(err)
	}
	for m.boots == 0 {
		m.tick()
	}
	if got := m.block(t); got != armedBlock {
		t.Fatalf("the image boots while GRUB has %q", got)
	}
	if r := drive(t, f, f.Make().Update); !r.Done || m.block(t) != disarmedBlock {
		t.Fatalf("%+v, GRUB has %q", r, m.block(t))
	}
}

// The way back of a node that is not Ready is not counted: a counter at its end would boot the bad
// image, which is the second entry by then.
func TestTheWayBackIsNotCounted(t *testing.T) {
	f, m := fixture(t)
	m.countsBoots(t)
	u := f.Make()
	m.unready = only(newSum)
	var seen []string
	r := driveWith(t, m, func() (updaters.Result, error) { return u.Update(t.Context(), f.Task) }, f.Tick, func() {
		if seen = append(seen, m.block(t)); len(seen) == 1 {
			m.setBlock(t, "boot_counter=0\nboot_success=0\n")
		}
	})
	if !r.Failed || len(seen) != 2 || seen[0] != armedBlock || seen[1] != disarmedBlock || m.block(t) != disarmedBlock {
		t.Fatalf("%+v, GRUB had %q, has %q", r, seen, m.block(t))
	}
}

// A person chose the former image at the boot menu: GRUB counted once, and no more.
func TestAPersonChoseWhileBootsWereCounted(t *testing.T) {
	f, m := fixture(t)
	m.countsBoots(t)
	u := f.Make()
	m.picked = true
	r := driveWith(t, m, func() (updaters.Result, error) { return u.Update(t.Context(), f.Task) }, f.Tick, func() {
		m.setBlock(t, "boot_counter=1\nboot_success=0\n")
	})
	if r.Reason != v1alpha1.ReasonOSRolledBack || m.block(t) != disarmedBlock {
		t.Fatalf("%+v, GRUB has %q", r, m.block(t))
	}
}

// What a host misses is reported where a boot loader chooses among deployments.
func TestWhatAFallbackNeedsIsReported(t *testing.T) {
	u := New(nil, "")
	for driver, want := range map[string]string{osdriver.OSTree: "panic", osdriver.Bootc: "panic", osdriver.Sysext: "", osdriver.Package: ""} {
		out := map[string]string{FieldDriver: driver}
		if u.WithBootCounter(nil).addBootFallback(out); out[model.FieldOSBootFallback] != "" {
			t.Errorf("%s without a counter: %v", driver, out)
		}
		u.WithBootCounter(&osdriver.BootCounter{Root: t.TempDir()}).addBootFallback(out)
		if got := out[model.FieldOSBootFallback]; !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q", driver, got)
		}
	}
}
