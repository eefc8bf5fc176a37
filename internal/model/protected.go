package model

import (
	"path"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
)

// protectedDirs are directories whose content belongs to another component. Those of
// distributions, the kubelet and most container runtimes are in the table of distributions.
var protectedDirs = []struct{ dir, why string }{
	{"/var/lib/refit", "refit's own"},
	{"/etc/refit", "refit's own"},
	{"/run/refit", "refit's own"},
	{"/var/lib/containers", "the container runtime's state"},
	{"/run/containers", "the container runtime's state"},
	{"/var/lib/cni", "the network plugins' state"},
	{"/proc", "the kernel's"},
	{"/sys", "the kernel's"},
	{"/dev", "the kernel's"},
	{"/run", "gone after a reboot"},
	{"/tmp", "gone after a reboot, and every user may write there"},
	{"/var/tmp", "every user may write there"},
}

// ProtectedPath says why a file may not be put at a path, "" if it may. The same
// rule holds when the configuration is rendered and on the node, where it is
// asked again of the path behind symbolic links.
func ProtectedPath(p string) string {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "it is not absolute"
	case path.Clean(p) != p || p == "/":
		return "it is not a clean path: no .., no //, no slash at the end"
	case strings.ContainsAny(p, "\x00\n"):
		return "it has characters that no path should have"
	}
	if why := distribution.Protected(p); why != "" {
		return why
	}
	for _, k := range protectedDirs {
		if p == k.dir || strings.HasPrefix(p, k.dir+"/") {
			return k.dir + " is " + k.why
		}
	}
	if strings.HasPrefix(path.Base(p), "refit-agent.service") || strings.Contains(p, "/refit-agent.service.d/") {
		return "refit's own unit is not changed by a configuration"
	}
	return ""
}

// readableDirs are directories of the kernel that may be read, but not written.
var readableDirs = []string{"/sys/", "/proc/", "/run/"}

// UnreadablePath says why a file may not be read for a field, "" if it may: what it holds
// is published in the node's status.
func UnreadablePath(p string) string {
	for _, d := range readableDirs {
		if strings.HasPrefix(p, d) && path.Clean(p) == p && !strings.HasPrefix(p, "/run/refit") {
			return ""
		}
	}
	return ProtectedPath(p)
}

// protectedUnits may not be disabled or masked: the node would be lost.
var protectedUnits = append([]string{"containerd.service", "crio.service", "dbus.service", "systemd-journald.service"}, distribution.Units()...)

// ProtectedUnit says why a unit may not be brought into a state, "" if it may.
func ProtectedUnit(name, state string) string {
	switch {
	case strings.HasPrefix(name, "refit-"):
		return "it is refit's own"
	case state != UnitEnabled && slices.Contains(protectedUnits, name):
		return "the node needs it"
	}
	return ""
}
