package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// killMember looks again, through a handle that cannot come to mean another
// process, whether pid is in group, before it kills.
func killMember(pid int, group string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !isCgroupMember(string(data), group) {
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// MountCgroups mounts the hierarchies at dir, from inside a new control group
// namespace, so that the group joined before shows as their root. systemd adds
// the unified one itself where there are legacy ones.
func MountCgroups(dir string, all []CgroupHierarchy) error {
	legacy := slices.DeleteFunc(slices.Clone(all), func(h CgroupHierarchy) bool { return h.Unified })
	if len(legacy) == 0 {
		return mountErr(dir, unix.Mount("cgroup2", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	if err := unix.Mount("cgroup", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		return mountErr(dir, err)
	}
	for _, h := range legacy {
		names := strings.TrimPrefix(h.Options, "none,name=")
		target := filepath.Join(dir, names)
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", target, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.Options); err != nil {
			return mountErr(target, err)
		}
		if parts := strings.Split(names, ","); len(parts) > 1 {
			for _, p := range parts {
				_ = os.Symlink(names, filepath.Join(dir, p))
			}
		}
	}
	return nil
}

func mountErr(target string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mounting control groups at %s: %w", target, err)
}
