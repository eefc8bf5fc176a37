package media

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/text"
)

// AllDevices among the devices that are allowed means all that belong to this machine.
const AllDevices = "all"

// shared are devices that store their bytes on other machines or combine other devices. Reading
// one may move a resource between nodes, wait for a network, or repeat a device that is read
// anyway. They are read only if the configuration names them.
var shared = []string{"drbd", "rbd", "nbd", "dm-", "md", "zd", "bcache"}

// never are virtual devices, which are no media.
var never = []string{"ram", "zram", "fd"}

var usb = regexp.MustCompile(`/usb[0-9]+/`)

// selection decides which devices are read. It is made anew at every scan.
type selection struct {
	p Places
	// used are the numbers of devices that are mounted or swap space.
	used map[string]bool
}

func (p Places) selection() selection {
	return selection{p: p, used: p.used()}
}

// wants reports whether a device is read: it is removable, on USB or allowed by the
// configuration, and nothing on this machine uses it. It sets what it learns about m.
func (s selection) wants(name, path string, m *Medium) bool {
	real, err := filepath.EvalSymlinks(filepath.Join(s.p.sys(), name))
	if err != nil || begins(name, never) {
		return false
	}
	disk := real
	if n, err := strconv.Atoi(readAttribute(real, "partition")); err == nil {
		disk = filepath.Dir(real)
		m.Disk, m.Partition = s.p.devicePath(filepath.Base(disk)), n
	}
	m.Expected = s.allowed(name, path) || !begins(name, shared) && removable(disk)
	m.Model = model(disk)
	return (m.Expected || !begins(name, shared) && slices.Contains(s.p.Allow, AllDevices)) && !s.inUse(real, disk)
}

// maxModel bounds the name of a device in bytes.
const maxModel = 64

// model is what a disk calls itself: vendor and model of SCSI and USB, or the name of a card.
func model(disk string) string {
	var words []string
	for _, name := range []string{"device/vendor", "device/model", "device/name"} {
		words = append(words, strings.Fields(text.CleanLine(readAttribute(disk, name)))...)
	}
	return text.Truncate(strings.Join(words, " "), maxModel)
}

func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// removable reports whether people plug a device in: the kernel says so, it is on USB,
// or it is a card.
func removable(disk string) bool {
	return readAttribute(disk, "removable") == "1" || usb.MatchString(disk+"/") || readAttribute(disk, "device/type") == "SD"
}

// allowed reports whether the configuration names a device: by a pattern of its name,
// or by a path, such as one in /dev/disk/by-id.
func (s selection) allowed(name, path string) bool {
	return slices.ContainsFunc(s.p.Allow, func(pattern string) bool {
		if !strings.HasPrefix(pattern, "/") {
			ok, err := filepath.Match(pattern, strings.ReplaceAll(name, "!", "/"))
			return ok && err == nil
		}
		found, _ := filepath.Glob(pattern) // a pattern that is none matches nothing
		return slices.ContainsFunc(found, func(f string) bool {
			to, err := filepath.EvalSymlinks(f)
			return err == nil && to == path
		})
	})
}

// inUse reports whether something on this machine has a device, a partition of it, or
// the disk that it is a partition of: a file system, swap space, a volume.
func (s selection) inUse(real, disk string) bool {
	parts := []string{real}
	if real != disk {
		parts = append(parts, disk)
	} else if below, err := filepath.Glob(filepath.Join(disk, "*", "partition")); err == nil {
		for _, p := range below {
			parts = append(parts, filepath.Dir(p))
		}
	}
	return slices.ContainsFunc(parts, func(dir string) bool {
		holders, _ := os.ReadDir(filepath.Join(dir, "holders"))
		return len(holders) > 0 || s.used[readAttribute(dir, "dev")]
	})
}

// used are the numbers of what is mounted anywhere on this machine, or is swap space.
func (p Places) used() map[string]bool {
	out := map[string]bool{}
	table := filepath.Join(p.proc(), "1", "mountinfo") // the agent may have fewer mounts than the machine
	if _, err := os.Stat(table); err != nil {
		table = filepath.Join(p.proc(), "self", "mountinfo")
	}
	for _, fields := range lines(table) {
		if len(fields) > 2 {
			out[fields[2]] = true
		}
		// btrfs shows a number of its own; its source is the device.
		if i := slices.Index(fields, "-"); i > 0 && len(fields) > i+2 {
			out[deviceNumber(fields[i+2])] = true
		}
	}
	for _, fields := range lines(filepath.Join(p.proc(), "swaps")) {
		if len(fields) > 0 {
			out[deviceNumber(fields[0])] = true
		}
	}
	delete(out, "")
	return out
}

func lines(path string) [][]string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out [][]string
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, strings.Fields(s.Text()))
	}
	return out
}

// deviceNumber of a path, as the kernel writes it; empty if it is no device.
func deviceNumber(path string) string {
	var st unix.Stat_t
	if !strings.HasPrefix(path, "/") || unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return strconv.FormatUint(uint64(unix.Major(st.Rdev)), 10) + ":" + strconv.FormatUint(uint64(unix.Minor(st.Rdev)), 10)
}

// written is how many sectors were written to a device since it is there, so that the
// key of one that was written in place changes. Writes to the disk below count too.
func written(dirs ...string) string {
	var out []string
	for _, dir := range dirs {
		if f := strings.Fields(readAttribute(dir, "stat")); len(f) > 6 {
			out = append(out, f[6])
		}
	}
	return strings.Join(out, "+")
}
