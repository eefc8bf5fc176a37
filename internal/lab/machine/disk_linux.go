package machine

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"
)

//go:embed files
var files embed.FS

// populated marks a disk that was filled to the end.
const populated = "populated"

// populate fills a new disk: directories of the root, the node's changes to
// /etc, the network plugins. Done once; cut off, it is done again.
func (m *Machine) populate(disk string) error {
	if _, err := os.Stat(filepath.Join(disk, populated)); err == nil {
		return nil
	}
	for _, step := range []func(disk string) error{m.linkIntoVar, m.makeDirs, m.hideServices, m.identify, m.writeFiles, m.enable, m.copyPlugins, m.installOS} {
		if err := step(disk); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(disk, populated), nil, 0o644)
}

func (m *Machine) makeDirs(disk string) error {
	for _, d := range []string{
		"usr", "etc", "tmp", "run", "proc", "sys", "dev", "root", "opt/cni/bin", "mnt", "srv", "home", "media", "boot",
		"var/lib/kubelet", "var/lib/" + m.Runtime, "var/lib/cni", "var/lib/etcd", "var/lib/dbus", "var/lib/systemd",
		"var/log/journal", "var/log/pods", "var/log/containers", "var/cache", "var/spool", "var/tmp",
	} {
		if err := os.MkdirAll(filepath.Join(disk, "root", d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(disk, "root/var/tmp"), 0o1777|os.ModeSticky); err != nil {
		return err
	}
	for _, d := range []string{"usr-up", "usr-work", "etc-up", "etc-work"} {
		if err := os.MkdirAll(filepath.Join(disk, d), 0o755); err != nil {
			return err
		}
	}
	links := map[string]string{"var/run": "/run", "var/lock": "/run/lock"}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		links[d] = "usr/" + d
	}
	for name, target := range links {
		if err := link(target, filepath.Join(disk, "root", name)); err != nil {
			return err
		}
	}
	return nil
}

// hidden directories of the machine's /etc hold what its administrator enabled
// or set: it must not run in a node. With a policy of SELinux in /etc, libostree finalizes a
// deployment in bubblewrap, which the machine may not have.
var hidden = strings.Fields(`systemd containers crio init.d rc0.d rc1.d rc2.d rc3.d rc4.d rc5.d rc6.d rcS.d cron.d cron.hourly cron.daily
cron.weekly cron.monthly sysctl.d modules-load.d containerd cni kubernetes selinux`)

// hideServices makes the overlay show nothing of the machine in the hidden directories.
func (m *Machine) hideServices(disk string) error {
	for _, name := range hidden {
		dir := filepath.Join(disk, "etc-up", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Setxattr(dir, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("hiding /etc/%s: %w", name, err)
		}
	}
	return nil
}

// identify gives the node its identity: machine id, name, addresses.
func (m *Machine) identify(disk string) error {
	uuid, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return err
	}
	release, err := os.ReadFile("/usr/lib/os-release")
	if err != nil {
		return err
	}
	address, _, _ := strings.Cut(m.Address, "/")
	hosts := "127.0.0.1 localhost\n" + address + " " + m.Name + "\n"
	for _, p := range m.Peers {
		hosts += p.Address + " " + p.Name + "\n"
	}
	for name, content := range map[string]string{
		"machine-id":  strings.ReplaceAll(string(uuid), "-", ""),
		"hostname":    m.Name + "\n",
		"hosts":       hosts,
		"resolv.conf": "nameserver " + m.Gateway + "\n",
		"fstab":       "",
		"os-release":  string(release),
	} {
		if err := put(filepath.Join(disk, "etc-up", name), []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes what is in files/, as templates over m.
func (m *Machine) writeFiles(disk string) error {
	return fs.WalkDir(files, "files", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if m.Supervised && (strings.Contains(path, "containerd") || strings.Contains(path, "kubelet")) {
			return nil
		}
		if strings.Contains(path, m.otherRuntime()) || strings.Contains(path, "ostree") && m.OSImage == "" {
			return nil
		}
		t, err := template.ParseFS(files, path)
		if err != nil {
			return err
		}
		var text strings.Builder
		if err := t.Execute(&text, m); err != nil {
			return err
		}
		return put(filepath.Join(disk, "etc-up", strings.TrimPrefix(path, "files/")), []byte(text.String()))
	})
}

// otherRuntime is a word in the paths of files that this node's runtime has no use for.
func (m *Machine) otherRuntime() string {
	if m.Runtime == "crio" {
		return "containerd"
	}
	return "crio"
}

// masked would reach the machine's kernel, devices or clock, or wait for what a node has not.
var masked = strings.Fields(`systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket
systemd-udevd-control.socket systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service
proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount sys-kernel-debug.mount sys-kernel-tracing.mount
sys-kernel-config.mount sys-fs-fuse-connections.mount dev-hugepages.mount systemd-timesyncd.service
systemd-pstore.service systemd-firstboot.service console-getty.service getty.target systemd-networkd.service
systemd-resolved.service systemd-journald-audit.socket kmod-static-nodes.service modprobe@.service
e2scrub_reap.service`)

func (m *Machine) enable(disk string) error {
	system := filepath.Join(disk, "etc-up/systemd/system")
	links := map[string]string{"default.target": "/lib/systemd/system/multi-user.target"}
	for _, unit := range masked {
		links[unit] = "/dev/null"
	}
	wanted := []string{m.Runtime + ".service", "kubelet.service"}
	if m.Supervised {
		wanted = nil
	}
	if m.OSImage != "" {
		wanted = append(wanted, "ostree-finalize-staged.path")
	}
	for _, unit := range wanted {
		links["multi-user.target.wants/"+unit] = "../" + unit
	}
	for name, target := range links {
		if err := link(target, filepath.Join(system, name)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) copyPlugins(disk string) error {
	found, err := os.ReadDir(m.CNIDir)
	if err != nil {
		return err
	}
	for _, f := range found {
		if err := copyProgram(filepath.Join(m.CNIDir, f.Name()), filepath.Join(disk, "root/opt/cni/bin", f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// put replaces any file at path.
func put(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

func link(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, path)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
