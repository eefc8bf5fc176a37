package osdriver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// greenbootProgram is there on hosts with greenboot, in both of its generations (in bash and in Rust).
const greenbootProgram = "/usr/libexec/greenboot/greenboot"

// greenbootUnits log what greenboot found and did.
var greenbootUnits = []string{"greenboot-healthcheck.service", "greenboot-rpm-ostree-grub2-check-fallback.service"}

// greenbootReturned are the lines by which greenboot says that it made the earlier deployment the
// default. The first two are in the boot of that deployment, the last in the one before it. greenboot removes boot_counter at the same time, so that only its journal tells.
var greenbootReturned = map[string][]string{
	"0":  {"FALLBACK BOOT DETECTED! Default", "GRUB kernel fallback detected"},
	"-1": {"Rollback successful"},
}

// greenboot reports whether greenboot returned to the earlier deployment, and the check for which it
// ended the boot before. A journal that cannot be read says neither.
func (c *BootCounter) greenboot(ctx context.Context) (returned bool, why string) {
	if _, err := os.Stat(filepath.Join(c.Root, greenbootProgram)); err != nil || c.Runner == nil {
		return false, ""
	}
	for boot, words := range greenbootReturned {
		argv := []string{"journalctl", "-q", "-o", "cat", "-b", boot}
		for _, u := range greenbootUnits {
			argv = append(argv, "-u", u)
		}
		out, err := c.Runner.Run(ctx, nil, argv...)
		if err != nil {
			continue // a host that keeps no journal has none of the boot before
		}
		returned = returned || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(string(out), w) })
		if boot == "-1" {
			why = failedCheck(string(out))
		}
	}
	return returned, why
}

// failedCheck is the last check that failed in a boot that greenboot found bad, "" in a good one: a
// check may fail there too, if it is only wanted.
func failedCheck(journal string) (why string) {
	if !strings.Contains(journal, "greenboot-healthcheck.service: Failed with result") && !strings.Contains(journal, "Greenboot error") {
		return ""
	}
	for line := range strings.Lines(journal) {
		if strings.Contains(line, "FAILURE (exit code") || strings.Contains(line, "required script") && strings.Contains(line, "failed!") {
			why = "greenboot: " + strings.TrimSpace(line)
		}
	}
	return why
}
