package osdriver

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const countingConfig = "if [ -n \"$boot_counter\" ]; then set default=1; fi\n"

// hostWith makes a host of files.
func hostWith(t *testing.T, files map[string]string) *BootCounter {
	t.Helper()
	c := &BootCounter{Root: t.TempDir()}
	for path, text := range files {
		writeAt(t, c, path, text)
	}
	return c
}

func writeAt(t *testing.T, c *BootCounter, path, text string) {
	t.Helper()
	full := filepath.Join(c.Root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// block is an environment block with lines.
func block(lines string) string {
	return envHeader + lines + strings.Repeat("#", 1024-len(envHeader)-len(lines))
}

func (c *BootCounter) mustEnv(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(c.grubEnv())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBootCounterArmsAndDisarms(t *testing.T) {
	t.Parallel()
	c := hostWith(t, map[string]string{"boot/grub2/grubenv": block("saved_entry=a\\\nb\nboot_success=1\n"), "boot/grub2/grub.cfg": countingConfig})
	if err := c.Arm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := c.mustEnv(t), block("saved_entry=a\\\nb\nboot_counter=2\nboot_success=0\n"); got != want {
		t.Fatalf("armed: %q", got)
	}
	if why, err := c.GaveUp(t.Context()); why != "" || err != nil {
		t.Fatalf("gave up before a boot: %q, %v", why, err)
	}
	if err := c.Disarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := c.mustEnv(t), block("saved_entry=a\\\nb\nboot_success=1\n"); got != want {
		t.Fatalf("disarmed: %q", got)
	}
	if _, err := os.Stat(c.attempt()); !os.IsNotExist(err) {
		t.Fatal("the boot check would still run:", err)
	}
}

// What GRUB leaves after the last try, and the reason that the boot check recorded.
func TestBootCounterGaveUp(t *testing.T) {
	t.Parallel()
	for attempt, words := range map[string]string{
		"":                                   "its kernel, its initramfs or its systemd",
		"boot 1\nboot 2\n":                   "its kernel, its initramfs or its systemd",
		"boot 1\nfailed a\nboot 2\nfailed b": "earlier deployment: b",
	} {
		c := hostWith(t, map[string]string{"boot/grub/grubenv": block("boot_counter=-1\nboot_success=0\n"), "boot/grub/grub.cfg": countingConfig})
		if why, err := c.GaveUp(t.Context()); why != "" || err != nil {
			t.Fatalf("another program counted: %q, %v", why, err)
		}
		writeAt(t, c, BootAttempt, attempt)
		if why, err := c.GaveUp(t.Context()); err != nil || !strings.Contains(why, words) {
			t.Errorf("%q: %q, %v", attempt, why, err)
		}
	}
}

// Without a GRUB that counts nothing is written: the boot check would restart the machine in vain.
func TestBootCounterOnOtherHosts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*BootCounter{
		"none":          nil,
		"no GRUB":       hostWith(t, nil),
		"no counting":   hostWith(t, map[string]string{"boot/grub/grubenv": block(""), "boot/grub/grub.cfg": "blscfg\n"}),
		"no header":     hostWith(t, map[string]string{"boot/grub/grubenv": strings.Repeat("#", 1024), "boot/grub/grub.cfg": countingConfig}),
		"counter alone": hostWith(t, map[string]string{"boot/grub/grub.cfg": countingConfig}),
	} {
		if err := c.Arm(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Disarm(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if why, err := c.GaveUp(t.Context()); why != "" || err != nil {
			t.Errorf("%s: %q, %v", name, why, err)
		}
		if c == nil {
			continue
		}
		if _, err := os.Stat(c.attempt()); !os.IsNotExist(err) {
			t.Errorf("%s: an attempt was recorded", name)
		}
	}
}

// A counter that greenboot set is not ended.
func TestBootCounterLeavesOthers(t *testing.T) {
	t.Parallel()
	text := block("boot_counter=3\n")
	c := hostWith(t, map[string]string{"boot/grub2/grubenv": text, "boot/grub2/grub.cfg": countingConfig})
	if err := c.Disarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.mustEnv(t) != text {
		t.Fatal("it was changed")
	}
}

func TestRequirementsOfAHost(t *testing.T) {
	t.Parallel()
	whole := map[string]string{
		"boot/grub2/grubenv": block(""), "boot/grub2/grub.cfg": countingConfig,
		"proc/cmdline":                                  "root=x panic=10 rd.emergency=reboot\n",
		"sys/class/watchdog/watchdog0/state":            "active\n",
		"sys/class/watchdog/watchdog0/nowayout":         "1\n",
		"etc/systemd/system/emergency.service.d/x.conf": "[Service]\nExecStart=systemctl reboot -f\n",
	}
	if missing := hostWith(t, whole).Missing(); len(missing) > 0 {
		t.Fatalf("a host with all of it misses %v", missing)
	}
	for path, want := range map[string][]string{
		"boot/grub2/grubenv":                            {NeedsCounter},
		"proc/cmdline":                                  {NeedsPanic, NeedsEmergency},
		"sys/class/watchdog/watchdog0/state":            {NeedsWatchdog},
		"sys/class/watchdog/watchdog0/nowayout":         {NeedsNoWayOut},
		"etc/systemd/system/emergency.service.d/x.conf": {NeedsEmergency},
	} {
		c := hostWith(t, whole)
		writeAt(t, c, path, "panic=0\n")
		if got := c.Missing(); !slices.Equal(got, want) {
			t.Errorf("without %s: %v", path, got)
		}
	}
}

func TestGrubEnvRefusesDamage(t *testing.T) {
	t.Parallel()
	full := envHeader + "a=" + strings.Repeat("x", 1024-len(envHeader)-3) + "\n"
	for name, b := range map[string]string{"empty": "", "no header": "a=b\n", "torn": envHeader + "boot_cou", "no room": full, "quote at the end": envHeader + "a=b\\"} {
		if out, err := withEnvValues([]byte(b), envValue{"boot_counter", "2"}); err == nil {
			t.Errorf("%s: %q", name, out)
		}
	}
}

// GRUB's own tool reads what this writes, and this reads what the tool writes.
func TestGrubEnvAgainstGrub(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("grub-editenv")
	if err != nil {
		t.Skip("needs grub-editenv: make test-boot-deps installs it")
	}
	file := filepath.Join(t.TempDir(), "grubenv")
	run := func(args ...string) string {
		out, err := exec.Command(tool, append([]string{file}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	run("create")
	run("set", `odd=a\b # c=d`, "boot_success=1", "boot_counter=7")
	if err := updateGrubEnv(t.Context(), nil, file, envValue{"boot_counter", "2"}, envValue{"boot_success", ""}); err != nil {
		t.Fatal(err)
	}
	if got, want := run("list"), "odd=a\\b # c=d\nboot_counter=2\n"; got != want {
		t.Fatalf("grub-editenv reads %q", got)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	run("unset", "boot_counter")
	run("set", "boot_counter=2")
	after, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(before, after) {
		t.Fatalf("grub-editenv writes other bytes: %v\n%q\n%q", err, before, after)
	}
}
