package osdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
)

// BootAttempt is the file that exists while a new deployment is tried. The boot check adds a
// line for each boot that reached it, and one with the reason for each that it refused.
const BootAttempt = "/var/lib/refit/boot-attempt"

// bootTries is how often GRUB starts a new deployment before it returns to the earlier one: one
// boot may end in a power cut.
const bootTries = 2

// BootCounter makes GRUB return to the earlier deployment if a new one does not come up. A kernel
// that panics and a systemd that hangs run no agent, so only the boot loader can do it. A nil
// counter counts nothing.
type BootCounter struct {
	// Root is where the host's files are; empty is /.
	Root string
	// Runner runs programs of the host: a /boot that is mounted read-only is written with them, and
	// greenboot's journal is read. Without one neither is done.
	Runner Runner
}

// Requirements of a host whose failed boot ends by itself.
const (
	NeedsCounter   = "boot-counter"        // GRUB has an environment block, and a configuration that counts
	NeedsPanic     = "panic"               // a kernel that panics restarts
	NeedsWatchdog  = "watchdog"            // systemd feeds a watchdog
	NeedsNoWayOut  = "watchdog-nowayout"   // it stays armed while one systemd hands over to the next
	NeedsEmergency = "reboot-on-emergency" // the emergency shell restarts instead of waiting for a person
)

// Missing lists the requirements that the host does not meet.
func (c *BootCounter) Missing() []string {
	var out []string
	add := func(word string, met bool) {
		if !met {
			out = append(out, word)
		}
	}
	args := strings.Fields(c.text("/proc/cmdline"))
	add(NeedsCounter, c.grubEnv() != "")
	add(NeedsPanic, slices.ContainsFunc(args, restartsOnPanic))
	add(NeedsWatchdog, c.text("/sys/class/watchdog/watchdog0/state") == "active")
	add(NeedsNoWayOut, c.text("/sys/class/watchdog/watchdog0/nowayout") == "1")
	add(NeedsEmergency, slices.Contains(args, "rd.emergency=reboot") && c.emergencyReboots())
	return out
}

// restartsOnPanic reports whether a kernel argument makes a panic restart the machine.
func restartsOnPanic(arg string) bool {
	v, ok := strings.CutPrefix(arg, "panic=")
	n, err := strconv.Atoi(v)
	return ok && err == nil && n != 0
}

func (c *BootCounter) emergencyReboots() bool {
	for _, dir := range []string{"etc", "run", "usr/lib"} {
		files, _ := filepath.Glob(filepath.Join(c.Root, "/", dir, "systemd/system/emergency.service.d/*.conf")) // the pattern is well formed
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), "reboot") {
				return true
			}
		}
	}
	return false
}

// text is the content of a small file, "" if it cannot be read.
func (c *BootCounter) text(path string) string {
	b, err := os.ReadFile(filepath.Join(c.Root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// grubEnv is GRUB's environment block, "" if this host has none, or if its GRUB counts no boots.
// Fedora's 08_fallback_counting and greenboot count with the same two variables.
func (c *BootCounter) grubEnv() string {
	for _, dir := range []string{"/boot/grub2", "/boot/grub"} {
		env := filepath.Join(c.Root, dir, "grubenv")
		if b, err := os.ReadFile(env); err != nil || !strings.HasPrefix(string(b), envHeader) {
			continue
		}
		for _, pattern := range []string{dir + "/*.cfg", dir + "/*.cfg.d/*.cfg", "/boot/efi/EFI/*/*.cfg"} {
			files, _ := filepath.Glob(filepath.Join(c.Root, pattern)) // the patterns are well formed
			if slices.ContainsFunc(files, countsBoots) {
				return env
			}
		}
	}
	return ""
}

func countsBoots(config string) bool {
	b, err := os.ReadFile(config)
	return err == nil && strings.Contains(string(b), "boot_counter")
}

// Arm makes GRUB count the next boots. It is called after a deployment was staged, and before the
// machine restarts into it. greenboot counts with the same variables, so that its own number of boots
// is replaced, and no boot is counted twice.
func (c *BootCounter) Arm(ctx context.Context) error {
	env := c.env()
	if env == "" {
		return nil
	}
	if err := fsutil.WriteFile(c.attempt(), nil, 0o600); err != nil {
		return err
	}
	return updateGrubEnv(ctx, c.Runner, env, envValue{"boot_counter", strconv.Itoa(bootTries)}, envValue{"boot_success", "0"})
}

// Disarm ends what Arm began: the boots from now on are not counted. Without Arm it does nothing,
// so that a counter that greenboot set stays.
func (c *BootCounter) Disarm(ctx context.Context) error {
	env := c.env()
	if env == "" {
		return nil
	}
	if _, err := os.Stat(c.attempt()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := updateGrubEnv(ctx, c.Runner, env, envValue{"boot_counter", ""}, envValue{"boot_success", "1"}); err != nil {
		return err
	}
	if err := os.Remove(c.attempt()); err != nil {
		return fmt.Errorf("end of counting boots: %w", err)
	}
	return nil
}

// GaveUp says why GRUB returned to the earlier deployment, or greenboot did, "" if neither did.
func (c *BootCounter) GaveUp(ctx context.Context) (string, error) {
	env := c.env()
	if env == "" {
		return "", nil
	}
	attempt, err := os.ReadFile(c.attempt())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("counted boots: %w", err)
	}
	block, err := os.ReadFile(env)
	if err != nil {
		return "", fmt.Errorf("counted boots: %w", err)
	}
	who := fmt.Sprintf("GRUB started it %d times and", bootTries)
	returned, why := c.greenboot(ctx)
	if v, _ := grubEnvValue(block, "boot_counter"); v != "-1" {
		if who = "greenboot"; !returned {
			return "", nil
		}
	}
	return who + " returned to the earlier deployment: " + cmp.Or(lastRefusal(attempt), why, noTrace), nil
}

// noTrace is the cause if no program of the image said anything.
const noTrace = "its kernel, its initramfs or its systemd did not come up; the console of the machine, or /sys/fs/pstore, shows the reason"

// lastRefusal is why the boot check refused the last boot that reached it, "" if it refused none.
func lastRefusal(attempt []byte) (why string) {
	for line := range strings.Lines(string(attempt)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "failed "); ok {
			why = text
		}
	}
	return why
}

func (c *BootCounter) env() string {
	if c == nil {
		return ""
	}
	return c.grubEnv()
}

func (c *BootCounter) attempt() string { return filepath.Join(c.Root, BootAttempt) }
