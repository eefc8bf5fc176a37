package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/kernel"
)

const systemd = "/lib/systemd/systemd"

// Become turns this process, started in new mount, pid, uts, ipc and net
// namespaces with a terminal on its standard descriptors, into the node. It
// returns only if that is impossible.
func Become(dir string) error {
	// Namespaces and exec are of a thread.
	runtime.LockOSThread()
	unix.CloseOnExec(Powered)
	unix.CloseOnExec(Fault)
	terminal, err := os.Readlink("/proc/self/fd/0")
	if err != nil {
		return err
	}
	m, err := Load(dir)
	if err != nil {
		return err
	}
	// Looked up here: from inside a control group namespace they look like parts.
	hierarchies, err := kernel.CgroupHierarchies()
	if err != nil {
		return err
	}
	if err := m.isolate(); err != nil {
		return err
	}
	root, err := m.mountRoot(terminal, hierarchies)
	if err != nil {
		return err
	}
	if err := waitForPower(); err != nil {
		return err
	}
	if err := m.forward(root); err != nil {
		return err
	}
	if err := pivot(root); err != nil {
		return err
	}
	return start()
}

func waitForPower() error {
	power := os.NewFile(Powered, "power")
	defer power.Close()
	if _, err := power.Read(make([]byte, 1)); err != nil {
		return errors.New("the supervisor gave up before the network was there")
	}
	return nil
}

// isolate puts this process where its node's processes belong and cuts its mounts off.
func (m *Machine) isolate() error {
	kernel.EmptyCgroup(m.Group) // what the last boot left
	if err := kernel.JoinCgroup(m.Group); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new control group namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	return unix.Sethostname([]byte(m.Name))
}

// mountRoot mounts everything a node sees and returns where.
func (m *Machine) mountRoot(terminal string, hierarchies []kernel.CgroupHierarchy) (string, error) {
	disk := filepath.Join(m.Dir, "mnt")
	if err := m.mountDisk(disk); err != nil {
		return "", err
	}
	if err := m.populate(disk); err != nil {
		return "", fmt.Errorf("filling the disk of %s: %w", m.Name, err)
	}
	entry, err := m.bootEntry(disk)
	if err != nil {
		return "", err
	}
	root, mounts := filepath.Join(disk, "root"), m.mounts(disk)
	if entry != nil {
		root, mounts = entry.Deployment, m.deploymentMounts(disk, entry.Deployment)
	}
	if err := mountAll(root, mounts); err != nil {
		return "", err
	}
	if err := kernel.MountCgroups(filepath.Join(root, "sys/fs/cgroup"), hierarchies); err != nil {
		return "", err
	}
	if err := makeDevices(root, terminal, m.Media); err != nil {
		return "", err
	}
	if err := m.pretend(root); err != nil || entry == nil {
		return root, err
	}
	return root, booted(root, entry.Options)
}

// mountDisk attaches and mounts the node's disk. A mount of the last boot may
// still be on its way out: two devices on one file would destroy it, so the
// device that is there is used.
func (m *Machine) mountDisk(at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	var device string
	if numbers := kernel.LoopsOf(m.Disk); len(numbers) > 0 {
		device = fmt.Sprintf("/dev/loop%d", numbers[0])
	} else {
		d, err := kernel.AttachLoop(m.Disk, kernel.AutoDetach)
		if err != nil {
			return err
		}
		defer d.Close()
		device = d.Path()
	}
	if err := unix.Mount(device, at, "ext4", 0, "noinit_itable"); err != nil {
		return fmt.Errorf("mounting the disk of %s (%s): %w", m.Name, device, err)
	}
	return nil
}

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m *Machine) mounts(disk string) []mount {
	return []mount{
		{filepath.Join(disk, "root"), "", "", unix.MS_BIND, ""},
		{"proc", "proc", "proc", 0, ""},
		{"sysfs", "sys", "sysfs", 0, ""},
		overlay(disk, "usr", "usr", m.Programs+":/usr"),
		overlay(disk, "etc", "etc", "/etc"),
		{"tmpfs", "run", "tmpfs", 0, "mode=755"},
		{"tmpfs", "tmp", "tmpfs", 0, "mode=1777"},
		{"dev", "dev", "tmpfs", 0, "mode=755"},
	}
}

// overlay is the node's changes to a folder, on its disk, over others.
func overlay(disk, name, target, lower string) mount {
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s/%s-up,workdir=%s/%s-work", lower, disk, name, disk, name)
	return mount{"overlay", target, "overlay", 0, data}
}

func mountAll(root string, all []mount) error {
	for _, m := range all {
		target := filepath.Join(root, m.target)
		if err := unix.Mount(m.source, target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s at %s (%s): %w", m.source, target, m.data, err)
		}
	}
	return nil
}

// makeDevices fills /dev with what every machine has and with this node's media, and nothing else.
func makeDevices(root, terminal string, media []Medium) error {
	dev := filepath.Join(root, "dev")
	for _, d := range []struct {
		name       string
		major, min uint32
		mode       uint32
	}{{"null", 1, 3, 0o666}, {"zero", 1, 5, 0o666}, {"full", 1, 7, 0o666}, {"random", 1, 8, 0o666}, {"urandom", 1, 9, 0o666}, {"tty", 5, 0, 0o666}, {"kmsg", 1, 11, 0o644}} {
		if err := makeNode(filepath.Join(dev, d.name), unix.S_IFCHR|d.mode, unix.Mkdev(d.major, d.min)); err != nil {
			return err
		}
	}
	for _, s := range media {
		for _, n := range kernel.LoopNodes(s.Loop) {
			if err := makeNode(filepath.Join(dev, n.Name), unix.S_IFBLK|0o660, n.Device); err != nil {
				return err
			}
		}
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm", "mqueue"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dev, "console"), nil, 0o600); err != nil {
		return err
	}
	return mountAll(dev, []mount{
		{"devpts", "pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"shm", "shm", "tmpfs", 0, "mode=1777"},
		{"mqueue", "mqueue", "mqueue", 0, ""},
		{terminal, "console", "", unix.MS_BIND, ""},
	})
}

func makeNode(path string, mode uint32, device uint64) error {
	if err := unix.Mknod(path, mode, int(device)); err != nil {
		return fmt.Errorf("making device %s: %w", path, err)
	}
	return os.Chmod(path, os.FileMode(mode&0o777)) // mknod obeys the umask
}

// pretend mounts files over parts of /proc: a boot id that is new at every start, and the
// kernel settings that the kubelet requires. Otherwise the kubelet would change these on
// the whole machine.
func (m *Machine) pretend(root string) error {
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return err
	}
	files := map[string]string{
		"kernel/random/boot_id":     string(id),
		"vm/overcommit_memory":      "1\n",
		"vm/panic_on_oom":           "0\n",
		"kernel/panic":              "10\n",
		"kernel/panic_on_oops":      "1\n",
		"kernel/keys/root_maxkeys":  "1000000\n",
		"kernel/keys/root_maxbytes": "25000000\n",
	}
	dir := filepath.Join(root, "run/lab")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, value := range files {
		source, target := filepath.Join(dir, strings.ReplaceAll(name, "/", "-")), filepath.Join(root, "proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue // a kernel without it
		}
		if err := os.WriteFile(source, []byte(value), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", target, err)
		}
	}
	// A pod with a user namespace of its own gets a new /proc only if one that nothing
	// covers is mounted somewhere.
	whole := filepath.Join(dir, "proc")
	if err := os.Mkdir(whole, 0o555); err != nil {
		return err
	}
	return unix.Mount("proc", whole, "proc", 0, "")
}

// forward lets the node route between its pods and the others.
func (m *Machine) forward(root string) error {
	return os.WriteFile(filepath.Join(root, "proc/sys/net/ipv4/ip_forward"), []byte("1"), 0)
}

func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // this mounts the old root over the new one
		return fmt.Errorf("making %s the root: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// start executes systemd. "container" in its environment makes it leave the
// clock, most kernel settings and the file systems of the machine alone.
func start() error {
	console, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(console, fd, 0); err != nil {
			return err
		}
	}
	unix.CloseOnExec(console)
	env := []string{"container=lab", "TERM=dumb", SearchPath}
	return fmt.Errorf("starting %s: %w", systemd, unix.Exec(systemd, []string{systemd, "--system"}, env))
}
