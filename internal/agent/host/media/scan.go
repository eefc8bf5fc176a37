package media

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Medium is something a bundle may be on: from its first byte on, or in a file system.
type Medium struct {
	// Path to open.
	Path string
	// Device is true for a block device.
	Device bool
	// Key changes whenever something else may be behind Path.
	Key string
	// Model is what the device calls itself, for people: vendor and model. It may be empty.
	Model string
	// Disk is the path of the disk that a partition belongs to, Partition its number there;
	// both are empty for other media.
	Disk      string
	Partition int
	// Expected is true if people plug it in, or the configuration names it. Other devices are
	// the machine's own: that they have no bundle is no news.
	Expected bool
}

// Places where a node's devices are; zero values are the usual ones.
type Places struct {
	Sys  string // /sys/class/block
	Dev  string // /dev
	Proc string // /proc
	// Allow are devices that are read in addition to removable and USB devices: patterns
	// of names (sd*), paths (/dev/disk/by-id/...), or AllDevices.
	Allow []string
}

func (p Places) proc() string {
	if p.Proc == "" {
		return "/proc"
	}
	return p.Proc
}

func (p Places) sys() string {
	if p.Sys == "" {
		return "/sys/class/block"
	}
	return p.Sys
}

func (p Places) dev() string {
	if p.Dev == "" {
		return "/dev"
	}
	return p.Dev
}

// Scan lists what is plugged in now: devices that have a medium and may be read, and
// those of the files that exist. Sorted by path; each path once. No device is opened.
func Scan(p Places, files []string) ([]Medium, error) {
	found := map[string]Medium{}
	entries, err := os.ReadDir(p.sys())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list of block devices: %w", err)
	}
	may := p.selection()
	for _, e := range entries {
		if m, ok := p.device(e.Name(), may); ok {
			found[m.Path] = m
		}
	}
	for _, f := range files {
		if m, ok := file(f); ok && found[m.Path].Path == "" {
			found[m.Path] = m
		}
	}
	out := make([]Medium, 0, len(found))
	for _, m := range found {
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out, nil
}

// device checks one entry of /sys/class/block.
func (p Places) device(name string, may selection) (Medium, bool) {
	dir := filepath.Join(p.sys(), name)
	size := readAttribute(dir, "size")
	if size == "" || size == "0" {
		return Medium{}, false // nothing in the drive
	}
	path := p.devicePath(name)
	number := readAttribute(dir, "dev")
	if !sameDevice(path, number) {
		return Medium{}, false // not in this node
	}
	out := Medium{Path: path, Device: true, Key: key(dir, number, size)}
	if !may.wants(name, path, &out) {
		return Medium{}, false
	}
	return out, true
}

// devicePath is the path of a device in /dev.
func (p Places) devicePath(name string) string {
	// The kernel writes "!" for "/" in names of devices in subdirectories.
	return filepath.Join(p.dev(), strings.ReplaceAll(name, "!", "/"))
}

// key of a device: another one if another medium is in it, or it was written.
func key(dir, number, size string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // what is above it is the disk of a partition
	}
	disk := filepath.Dir(dir)
	seq := readAttribute(dir, "diskseq")
	if seq == "" {
		seq = readAttribute(disk, "diskseq")
	}
	return strings.Join([]string{number, size, seq, written(dir, disk)}, "/")
}

func readAttribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func sameDevice(path, number string) bool {
	major, minor, ok := strings.Cut(number, ":")
	if !ok {
		return false
	}
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	var st unix.Stat_t
	if err1 != nil || err2 != nil || unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	return uint64(unix.Major(st.Rdev)) == ma && uint64(unix.Minor(st.Rdev)) == mi
}

func file(path string) (Medium, bool) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return Medium{}, false
	}
	var sys unix.Stat_t
	if err := unix.Stat(path, &sys); err != nil {
		return Medium{}, false
	}
	return Medium{Path: path, Expected: true, Key: fmt.Sprintf("%d/%d/%d", sys.Ino, st.Size(), st.ModTime().UnixNano())}, true
}

// Open opens a medium for reading. size is -1 for a device: it may be larger
// than what is on it.
func Open(m Medium) (f *os.File, size int64, err error) {
	// Non-blocking: an empty drive must not hold us up.
	fd, err := unix.Open(m.Path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("medium %s: %w", m.Path, err)
	}
	f = os.NewFile(uintptr(fd), m.Path)
	if m.Device {
		return f, -1, nil
	}
	st, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("medium %s: %w", m.Path, err), f.Close())
	}
	return f, st.Size(), nil
}
