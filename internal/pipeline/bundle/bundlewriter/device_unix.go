//go:build unix

package bundlewriter

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysfsPath returns the directory of a block device in sysfs, in which those of its partitions
// are, or "".
func sysfsPath(st os.FileInfo) string {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode()&os.ModeDevice == 0 || st.Mode()&os.ModeCharDevice != 0 {
		return ""
	}
	dev := uint64(sys.Rdev) //nolint:unconvert // the type differs between systems
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return ""
	}
	return dir
}

// usedBy names the mount point of a device, for a better message than the
// kernel's.
func usedBy(st os.FileInfo) string {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	dev := uint64(sys.Rdev) //nolint:unconvert // the type differs between systems
	id := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if fields := strings.Fields(sc.Text()); len(fields) > 4 && fields[2] == id {
			return "mounted on " + fields[4]
		}
	}
	return ""
}
