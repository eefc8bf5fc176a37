package osdriver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Journals of greenboot's two generations, as their sources write them.
const (
	bashFallback = "FALLBACK BOOT DETECTED! Default bootc deployment has been rolled back.\n"
	rustFallback = " WARN  greenboot > GRUB kernel fallback detected: expected deployment b, booted a\n"
	bashRed      = "Script '10_dns.sh' FAILURE (exit code '1'). Continuing...\ngreenboot-healthcheck.service: Failed with result 'exit-code'.\n"
	rustRed      = " ERROR greenboot > required script /etc/greenboot/check/required.d/10_dns.sh failed!\n ERROR greenboot > Greenboot error: required health-check failed, skipping remaining scripts\n INFO  greenboot > Rollback successful\n"
	bashWanted   = "Script '01_update_platforms_check.sh' FAILURE (exit code '1'). Continuing...\nScript '02_watchdog.sh' SUCCESS\n"
	manual       = "FALLBACK BOOT DETECTED but SYSTEM is still UNHEALTHY. Manual intervention necessary.\n"
)

// greenboot makes the earlier deployment the default by itself, and removes GRUB's counter: its
// journal tells that apart from a person's choice at the boot menu.
func TestGreenbootReturned(t *testing.T) {
	t.Parallel()
	const now, before = "journalctl -q -o cat -b 0", "journalctl -q -o cat -b -1"
	for name, c := range map[string]struct {
		env, attempt, now, before string
		want                      string
	}{
		"bash, a kernel that panics":            {"", "", bashFallback, bashWanted, "greenboot returned to the earlier deployment: its kernel"},
		"Rust, a kernel that panics":            {"boot_success=1\n", "", rustFallback, "", "greenboot returned to the earlier deployment: its kernel"},
		"bash, a check of its own":              {"", "boot 1\nboot 2\n", bashFallback, bashRed, "greenboot returned to the earlier deployment: greenboot: Script '10_dns.sh' FAILURE"},
		"Rust, a check of its own":              {"", "boot 1\nboot 2\n", "", rustRed, "greenboot returned to the earlier deployment: greenboot: ERROR greenboot > required script /etc/greenboot/check/required.d/10_dns.sh failed!"},
		"refit's check":                         {"", "boot 1\nfailed no agent\n", bashFallback, bashRed, "greenboot returned to the earlier deployment: no agent"},
		"GRUB, and greenboot was not there yet": {"boot_counter=-1\n", "", "", bashRed, "GRUB started it 2 times and returned to the earlier deployment: greenboot: Script"},
		"a person chose at the menu":            {"boot_success=1\n", "", "", bashWanted, ""},
		"no fallback, and still red":            {"boot_success=0\n", "", manual, bashRed, ""},
	} {
		b := hostWith(t, map[string]string{"boot/grub2/grubenv": block(c.env), "boot/grub2/grub.cfg": countingConfig, BootAttempt: c.attempt, greenbootProgram: ""})
		b.Runner = &Script{Answers: map[string]Answer{now: {Out: c.now}, before: {Out: c.before}}}
		why, err := b.GaveUp(t.Context())
		if err != nil || (why == "") != (c.want == "") || !strings.HasPrefix(why, c.want) {
			t.Errorf("%s: %q, %v", name, why, err)
		}
		if err := os.Remove(filepath.Join(b.Root, greenbootProgram)); err != nil {
			t.Fatal(err)
		}
		if why, err := b.GaveUp(t.Context()); err != nil || strings.HasPrefix(why, "greenboot") {
			t.Errorf("%s, without greenboot: %q, %v", name, why, err)
		}
	}
	b := hostWith(t, map[string]string{"boot/grub2/grubenv": block(""), "boot/grub2/grub.cfg": countingConfig, BootAttempt: "", greenbootProgram: ""})
	b.Runner = &Script{Answers: map[string]Answer{now: {Out: bashFallback}, before: {Code: 1}}}
	if why, err := b.GaveUp(t.Context()); err != nil || !strings.HasPrefix(why, "greenboot returned") {
		t.Errorf("no journal of the boot before: %q, %v", why, err)
	}
}
