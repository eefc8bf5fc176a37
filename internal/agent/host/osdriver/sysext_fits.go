package osdriver

import (
	"fmt"
	"os"
	"strings"
)

// fits compares what an extension is for with what this host is, as systemd does when
// it merges: there a mismatch is passed over in silence.
func (d *SysextDriver) fits(release string) error {
	b, err := os.ReadFile(release)
	if err != nil {
		return err
	}
	of := words(string(b))
	if b, err = os.ReadFile(d.path("usr/lib/os-release")); err != nil {
		return fmt.Errorf("which OS this is: %w", err)
	}
	is := words(string(b))
	for _, key := range compared(of) {
		if of[key] != is[key] {
			return fmt.Errorf("it is for %s=%s, and this host is %s=%s", key, of[key], key, is[key])
		}
	}
	return nil
}

// compared are the keys that have to be the same: a level, if the extension has one,
// stands for the version.
func compared(of map[string]string) []string {
	switch {
	case of["ID"] == "_any":
		return nil
	case of["SYSEXT_LEVEL"] != "":
		return []string{"ID", "SYSEXT_LEVEL"}
	}
	return []string{"ID", "VERSION_ID"}
}

// words are the assignments of an os-release file.
func words(text string) map[string]string {
	out := map[string]string{}
	for _, l := range strings.Split(text, "\n") {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), "="); ok && !strings.HasPrefix(k, "#") {
			out[k] = strings.Trim(v, `"'`)
		}
	}
	return out
}
