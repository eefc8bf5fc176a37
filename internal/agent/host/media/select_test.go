package media

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// machine is a made-up /sys, /dev and /proc.
type machine struct {
	Places
	t     *testing.T
	minor uint32
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: device nodes are made")
	}
	dir := t.TempDir()
	m := &machine{Places: Places{Sys: filepath.Join(dir, "sys/class/block"), Dev: filepath.Join(dir, "dev"), Proc: filepath.Join(dir, "proc")}, t: t}
	write(t, filepath.Join(m.Proc, "swaps"), "Filename\tType\tSize\tUsed\tPriority\n")
	m.mounts("1 0 0:5 / / rw - tmpfs tmpfs rw\n")
	return m
}

func (m *machine) mounts(text string) {
	write(m.t, filepath.Join(m.Proc, "1/mountinfo"), text)
}

// device adds one below a place in /sys/devices; attributes are NAME=VALUE. It returns its number.
func (m *machine) device(at string, attributes ...string) string {
	m.t.Helper()
	m.minor++
	name := filepath.Base(at)
	dir := filepath.Join(m.Sys, "../../devices", at)
	number := "7:" + string('0'+rune(m.minor/10)) + string('0'+rune(m.minor%10))
	number = strings.Replace(number, "7:0", "7:", 1)
	write(m.t, filepath.Join(dir, "dev"), number)
	write(m.t, filepath.Join(dir, "size"), "2048")
	for _, a := range attributes {
		name, value, _ := strings.Cut(a, "=")
		write(m.t, filepath.Join(dir, name), value)
	}
	if err := os.MkdirAll(m.Sys, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(m.Sys, name)); err != nil {
		m.t.Fatal(err)
	}
	path := filepath.Join(m.Dev, name)
	if err := os.MkdirAll(m.Dev, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, m.minor))); err != nil {
		m.t.Fatal(err)
	}
	return number
}

func (m *machine) seen(allow ...string) string {
	m.t.Helper()
	p := m.Places
	p.Allow = allow
	all, err := Scan(p, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	var names []string
	for _, x := range all {
		names = append(names, filepath.Base(x.Path))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// The node's own disks and the volumes of its pods are never read.
func TestWhichDevicesAreRead(t *testing.T) {
	m := newMachine(t)
	m.device("pci0/ata1/block/sda", "removable=0")
	m.device("pci0/usb1/1-1/block/sdb", "removable=0") // a USB disk
	m.device("pci0/usb1/1-1/block/sdb/sdb1", "partition=1")
	m.device("pci0/ata2/block/sr0", "removable=1")
	m.device("mmc0/block/mmcblk0", "removable=0", "device/type=MMC")
	m.device("mmc1/block/mmcblk1", "removable=0", "device/type=SD")
	m.device("virtual/block/loop3", "removable=0")
	for _, name := range []string{"drbd0", "rbd0", "nbd0", "dm-0", "md0", "zd0"} {
		m.device("virtual/block/"+name, "removable=0")
	}
	m.device("virtual/block/zram0")
	m.device("platform/floppy/block/fd0", "removable=1")
	if err := os.MkdirAll(filepath.Join(m.Dev, "disk/by-id"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../sda", filepath.Join(m.Dev, "disk/by-id/ata-GOOD")); err != nil {
		t.Fatal(err)
	}
	const usual = "mmcblk1 sdb sdb1 sr0"
	for _, tc := range []struct {
		allow []string
		want  string
	}{
		{nil, usual},
		{[]string{"loop*"}, "loop3 " + usual},
		{[]string{filepath.Join(m.Dev, "disk/by-id/ata-*")}, "mmcblk1 sda sdb sdb1 sr0"},
		{[]string{filepath.Join(m.Dev, "sda")}, "mmcblk1 sda sdb sdb1 sr0"},
		{[]string{AllDevices}, "loop3 mmcblk0 mmcblk1 sda sdb sdb1 sr0"},
		{[]string{"rbd0", "zram*"}, "mmcblk1 rbd0 sdb sdb1 sr0"},
		{[]string{"["}, usual},
	} {
		if got := m.seen(tc.allow...); got != tc.want {
			t.Errorf("%v: %s\nwant %s", tc.allow, got, tc.want)
		}
	}
}

// What something uses is not read, even if it is named: neither a device, nor the disk
// around it, nor a partition on it.
func TestDevicesInUseAreNotRead(t *testing.T) {
	for name, use := range map[string]func(m *machine, disk, part, other string){
		"nothing":             func(*machine, string, string, string) {},
		"the disk is mounted": func(m *machine, disk, _, _ string) { m.mounts("1 0 " + disk + " / /data rw - ext4 /dev/sdb rw\n") },
		"a partition is":      func(m *machine, _, part, _ string) { m.mounts("1 0 " + part + " / /data rw - ext4 /dev/sdb1 rw\n") },
		"btrfs on the disk": func(m *machine, _, _, _ string) {
			m.mounts("1 0 0:44 / /data rw shared:1 - btrfs " + m.Dev + "/sdb rw\n")
		},
		"swap on a partition": func(m *machine, _, _, _ string) {
			write(m.t, m.Proc+"/swaps", "Filename\n"+m.Dev+"/sdb1 partition 1 0 -2\n")
		},
		"multipath or a volume":   func(m *machine, _, _, _ string) { write(m.t, m.Sys+"/sdb/holders/dm-0", "") },
		"a volume on a partition": func(m *machine, _, _, _ string) { write(m.t, m.Sys+"/sdb1/holders/md0", "") },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			disk := m.device("pci0/usb1/block/sdb", "removable=1")
			part := m.device("pci0/usb1/block/sdb/sdb1", "partition=1")
			other := m.device("pci0/usb1/block/sdb/sdb2", "partition=2")
			use(m, disk, part, other)
			got := m.seen("sdb*", AllDevices)
			if want := map[bool]string{true: "sdb sdb1 sdb2", false: "sdb2"}[name == "nothing"]; got != want && (name == "nothing" || !strings.HasPrefix("sdb2", got)) {
				t.Errorf("read: %q", got)
			}
		})
	}
}

// A device that was written in place is another medium, and one that was not is the same.
func TestTheKeyChangesWhenADeviceIsWritten(t *testing.T) {
	m := newMachine(t)
	m.device("pci0/usb1/block/sdb", "removable=1", "diskseq=4", "stat=10 0 80 5 0 0 0 0 0 0 0")
	m.device("pci0/usb1/block/sdb/sdb1", "partition=1", "stat=1 0 8 5 0 0 0 0 0 0 0")
	keys := func() (out []string) {
		all, err := Scan(m.Places, nil)
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		return []string{all[0].Key, all[1].Key}
	}
	before := keys()
	write(t, m.Sys+"/sdb/stat", "99 0 800 50 0 0 0 0 0 0 0") // read only
	if !slices.Equal(keys(), before) {
		t.Error("reading changed the key")
	}
	write(t, m.Sys+"/sdb/stat", "99 0 800 50 7 0 2048 9 0 0 0")
	if after := keys(); after[0] == before[0] || after[1] == before[1] {
		t.Errorf("written, and the keys are %v", after)
	}
}

// People know a stick by its name, and a partition is not read next to its disk.
func TestWhatADeviceCallsItself(t *testing.T) {
	m := newMachine(t)
	m.device("pci0/usb1/1-1/block/sdb", "removable=1", "device/vendor=SanDisk ", "device/model=Ultra\x1b[2J  Fit      ")
	m.device("pci0/usb1/1-1/block/sdb/sdb2", "partition=2")
	m.device("mmc1/block/mmcblk1", "device/type=SD", "device/name=SC64G")
	m.device("virtual/block/loop3", "removable=0")
	m.device("virtual/block/loop4", "removable=0")
	p := m.Places
	p.Allow = []string{AllDevices, "loop4"}
	all, err := Scan(p, nil)
	if err != nil || len(all) != 5 {
		t.Fatal(all, err)
	}
	for i := range all {
		all[i].Path, all[i].Disk = filepath.Base(all[i].Path), strings.TrimPrefix(all[i].Disk, m.Dev)
		all[i].Key, all[i].Device = "", false
	}
	disk := "SanDisk Ultra\\u001b[2J Fit"
	want := []Medium{{Path: "loop3"}, {Path: "loop4", Expected: true}, {Path: "mmcblk1", Model: "SC64G", Expected: true},
		{Path: "sdb", Model: disk, Expected: true}, {Path: "sdb2", Model: disk, Expected: true, Disk: "/sdb", Partition: 2}}
	if d := cmp.Diff(want, all); d != "" {
		t.Error(d)
	}
}
