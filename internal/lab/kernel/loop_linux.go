package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// loopMajor is the block device number of loop devices.
const loopMajor = 7

// LoopOption changes how a file is attached.
type LoopOption uint32

const (
	// Partitions makes the kernel read the partition table.
	Partitions LoopOption = unix.LO_FLAGS_PARTSCAN
	// AutoDetach detaches the file when the last user closes the device: a mount keeps it.
	AutoDetach LoopOption = unix.LO_FLAGS_AUTOCLEAR
)

// LoopDevice is an attached file.
type LoopDevice struct {
	Number int
	file   *os.File
}

// Path is the device in the machine's own /dev.
func (d *LoopDevice) Path() string { return loopPath(d.Number) }

// Close lets go of the device; the file stays attached unless AutoDetach was asked for.
func (d *LoopDevice) Close() error { return d.file.Close() }

func loopPath(number int) string { return "/dev/loop" + strconv.Itoa(number) }

// AttachLoop attaches file. The device must be closed by the caller.
func AttachLoop(file string, options ...LoopOption) (*LoopDevice, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", file, err)
	}
	defer backing.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	for _, o := range options {
		config.Info.Flags |= uint32(o)
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file)
	// Another program may take the free device between asking and configuring.
	for range 100 {
		device, err := tryAttach(&config)
		if err == nil {
			return device, nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attaching %s: %w", file, err)
		}
	}
	return nil, fmt.Errorf("attaching %s: no loop device stays free", file)
}

func tryAttach(config *unix.LoopConfig) (*LoopDevice, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("asking for a free loop device: %w", err)
	}
	f, err := openDevice(number)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlLoopConfigure(int(f.Fd()), config); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", loopPath(number), err)
	}
	return &LoopDevice{Number: number, file: f}, nil
}

// openDevice waits a moment for a node that udev or devtmpfs is about to make.
func openDevice(number int) (*os.File, error) {
	var f *os.File
	var err error
	for range 50 {
		if f, err = os.OpenFile(loopPath(number), os.O_RDWR, 0); !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

// LoopsOf lists the numbers of the devices that file is attached to.
func LoopsOf(file string) []int {
	return findLoops(func(backing string) bool { return backing == file })
}

// LoopsBelow lists the devices whose file is below dir.
func LoopsBelow(dir string) map[int]string {
	found := map[int]string{}
	for _, number := range findLoops(func(backing string) bool { return strings.HasPrefix(backing, dir+"/") }) {
		found[number] = backingFile(number)
	}
	return found
}

func findLoops(wanted func(backing string) bool) []int {
	var numbers []int
	names, _ := filepath.Glob("/sys/block/loop*")
	for _, name := range names {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "loop"))
		if backing := backingFile(number); err == nil && backing != "" && wanted(backing) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// backingFile is what the device is attached to now, "" if nothing. The kernel
// marks a file that was deleted meanwhile.
func backingFile(number int) string {
	data, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", number))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)")
}

// DetachLoop detaches device number if it is file that is attached to it; else it
// does nothing. While someone still has the device open, the kernel defers it.
func DetachLoop(number int, file string) error {
	if backingFile(number) != file {
		return nil
	}
	f, err := os.OpenFile(loopPath(number), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if backingFile(number) != file {
		return nil
	}
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && err != unix.ENXIO {
		return fmt.Errorf("detaching %s from %s: %w", file, loopPath(number), err)
	}
	return nil
}

// DeviceNode is a device file to be made for an attached file or a partition on it.
type DeviceNode struct {
	Name   string // like loop8 or loop8p1
	Device uint64 // device number, as mknod wants it
}

// LoopNodes lists the device itself and its partitions.
func LoopNodes(number int) []DeviceNode {
	name := "loop" + strconv.Itoa(number)
	nodes := []DeviceNode{{name, unix.Mkdev(loopMajor, uint32(number))}}
	parts, _ := filepath.Glob(fmt.Sprintf("/sys/block/%s/%sp*/dev", name, name))
	for _, p := range parts {
		data, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		var maj, min uint32
		if _, err := fmt.Sscanf(string(data), "%d:%d", &maj, &min); err == nil {
			nodes = append(nodes, DeviceNode{filepath.Base(filepath.Dir(p)), unix.Mkdev(maj, min)})
		}
	}
	return nodes
}

// AnnounceLoop makes the kernel tell every listener that device and partitions changed.
func AnnounceLoop(number int) error {
	for _, n := range LoopNodes(number) {
		uevent := filepath.Join("/sys/class/block", n.Name, "uevent")
		if err := os.WriteFile(uevent, []byte("change"), 0); err != nil {
			return fmt.Errorf("announcing %s: %w", n.Name, err)
		}
	}
	return nil
}
