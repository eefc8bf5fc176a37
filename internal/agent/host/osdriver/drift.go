package osdriver

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// twins are folders whose files in /etc go before those of the same name in /usr.
func twins() map[string]string {
	return map[string]string{
		"etc/systemd/system": "usr/lib/systemd/system", "etc/systemd/network": "usr/lib/systemd/network",
		"etc/sysctl.d": "usr/lib/sysctl.d", "etc/modprobe.d": "usr/lib/modprobe.d", "etc/modules-load.d": "usr/lib/modules-load.d",
		"etc/tmpfiles.d": "usr/lib/tmpfiles.d", "etc/sysusers.d": "usr/lib/sysusers.d", "etc/udev/rules.d": "usr/lib/udev/rules.d",
		"etc/containers/registries.conf.d": "usr/share/containers/registries.conf.d",
	}
}

// selfUpdates are timers by which distributions move hosts on their own.
func selfUpdates() []string {
	return []string{"bootc-fetch-apply-updates.timer", "rpm-ostreed-automatic.timer", "zincati.service", "apt-daily-upgrade.timer", "dnf-automatic.timer"}
}

// maxDrift is how many findings of one kind are reported.
const maxDrift = 16

// EtcDrift finds files in /etc that hide those of the image. They have the same name as one in
// /usr, or they were changed on the node, so that the next image does not change them. It skips
// files that it cannot read.
func (h Host) EtcDrift(ctx context.Context) []Drift {
	out := h.shadows()
	for _, p := range h.pinned(ctx) {
		out = append(out, Drift{DriftShadow, "/etc/" + p + " was changed on the node: a new image does not change it any more"})
	}
	if len(out) > maxDrift {
		more := len(out) - maxDrift
		out = append(out[:maxDrift], Drift{DriftShadow, fmt.Sprintf("and %d more", more)})
	}
	return append(out, h.selfUpdates()...)
}

// shadows are files in /etc that hide others of their name.
func (h Host) shadows() []Drift {
	var out []Drift
	for etc, usr := range twins() {
		entries, err := os.ReadDir(filepath.Join(h.Root, etc))
		if err != nil {
			continue
		}
		for _, e := range entries {
			a, b := filepath.Join(h.Root, etc, e.Name()), filepath.Join(h.Root, usr, e.Name())
			if e.Type().IsRegular() && hides(a, b) {
				out = append(out, Drift{DriftShadow, "/" + filepath.Join(etc, e.Name()) + " hides /" + filepath.Join(usr, e.Name())})
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Detail < out[j].Detail })
	return out
}

// hides reports whether two files are there and differ.
func hides(a, b string) bool {
	st, err := os.Lstat(b)
	if err != nil || !st.Mode().IsRegular() || st.Size() > 1<<20 {
		return false
	}
	x, errA := os.ReadFile(a)
	y, errB := os.ReadFile(b)
	return errA == nil && errB == nil && !bytes.Equal(x, y)
}

// pinned are the files that libostree keeps as they are, because they differ from
// the image's default: relative to /etc.
func (h Host) pinned(ctx context.Context) []string {
	out, err := h.Runner.Run(ctx, nil, "ostree", "admin", "config-diff")
	if err != nil {
		return nil
	}
	var paths []string
	for _, l := range strings.Split(string(out), "\n") {
		if kind, path, ok := strings.Cut(strings.TrimSpace(l), " "); ok && kind == "M" {
			paths = append(paths, strings.TrimSpace(path))
		}
	}
	sort.Strings(paths)
	return slices.DeleteFunc(paths, ownToNode)
}

// ownToNode are files that differ on every machine.
func ownToNode(path string) bool {
	switch path {
	case "machine-id", "hostname", "hosts", "fstab", "passwd", "group", "shadow", "gshadow", "resolv.conf", "localtime":
		return true
	}
	return strings.HasPrefix(path, "ssh/ssh_host_")
}

// selfUpdates are timers that are enabled.
func (h Host) selfUpdates() []Drift {
	var out []Drift
	for _, unit := range selfUpdates() {
		masked, _ := os.Readlink(filepath.Join(h.Root, "etc/systemd/system", unit))
		if masked == "/dev/null" {
			continue
		}
		for _, wants := range []string{"timers.target.wants", "multi-user.target.wants"} {
			for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system"} {
				if st, err := os.Lstat(filepath.Join(h.Root, dir, wants, unit)); err == nil && st.Mode()&fs.ModeSymlink != 0 {
					out = append(out, Drift{DriftSelfUpdates, unit + " is enabled and moves this host by itself"})
				}
			}
		}
	}
	return out
}

// FinaliseFailure reads from the journal of the boot before why the staged
// deployment did not come into its place; empty if it says nothing. Which unit does it depends on
// who keeps the deployments.
func (h Host) FinaliseFailure(ctx context.Context) string {
	out, err := h.Runner.Run(ctx, nil, "journalctl", "--boot=-1", "--unit=ostree-finalize-staged.service", "--unit=bootc-finalize-staged.service", "--priority=warning", "--output=cat", "--no-pager", "--lines=5")
	if err != nil {
		return ""
	}
	return lastLines(string(out), 3)
}
