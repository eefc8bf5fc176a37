package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OSName is the stateroot of nodes that boot an OS image.
const OSName = "lab"

// ownKargs are the kernel arguments that the machine was installed with.
func ownKargs() []string { return []string{"root=LABEL=lab", "rw"} }

func sysrootOf(disk string) OSTreeDisk {
	return OSTreeDisk{Dir: filepath.Join(disk, "sysroot"), OSName: OSName}
}

// varLinks are the folders that images for libostree have in /var.
func varLinks() map[string]string {
	return map[string]string{"opt": "var/opt", "root": "var/roothome", "home": "var/home", "srv": "var/srv", "mnt": "var/mnt"}
}

// linkIntoVar makes the places that the OS image's own links lead to, so that what the
// lab lays into /opt is where the node finds it.
func (m *Machine) linkIntoVar(disk string) error {
	if m.OSImage == "" {
		return nil
	}
	root := filepath.Join(disk, "root")
	for name, to := range varLinks() {
		if err := os.MkdirAll(filepath.Join(root, to), 0o755); err != nil {
			return err
		}
		if err := link(to, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// installOS deploys the OS image on the disk. Like an installer, it copies the /etc of
// the lab and of the machine to the deployment. From then on libostree carries it from
// deployment to deployment.
func (m *Machine) installOS(disk string) error {
	if m.OSImage == "" {
		return nil
	}
	d := sysrootOf(disk)
	if err := d.Install(context.Background(), m.OSImage, ownKargs()); err != nil {
		return err
	}
	entries, err := d.Entries()
	if err != nil {
		return err
	}
	for name, to := range varLinks() {
		if is, _ := os.Readlink(filepath.Join(entries[0].Deployment, name)); is != to {
			return fmt.Errorf("the OS image of node %s has no link /%s -> %s: a node of a lab keeps what is there over its deployments", m.Name, name, to)
		}
	}
	etc := filepath.Join(disk, "root/etc")
	if err := mountAll(etc, []mount{overlay(disk, "etc", "", "/etc")}); err != nil {
		return err
	}
	// What the image has stays the image's.
	out, err := exec.Command("/usr/bin/cp", "-an", etc+"/.", filepath.Join(entries[0].Deployment, "etc")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("/etc of node %s: %w: %s", m.Name, err, out)
	}
	return unix.Unmount(etc, 0)
}

// bootEntry is what the firmware boots, nil on a node without an OS image.
func (m *Machine) bootEntry(disk string) (*BootEntry, error) {
	if m.OSImage == "" {
		return nil, nil
	}
	entries, err := sysrootOf(disk).Entries()
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", m.Name, err)
	}
	return &entries[0], nil
}

// deploymentMounts are those of a node whose root is a deployment. /etc is the
// deployment's own.
func (m *Machine) deploymentMounts(disk, deployment string) []mount {
	d := sysrootOf(disk)
	return []mount{
		{deployment, "", "", unix.MS_BIND, ""},
		{"proc", "proc", "proc", 0, ""},
		{"sysfs", "sys", "sysfs", 0, ""},
		overlay(disk, "usr", "usr", m.Programs+":"+filepath.Join(deployment, "usr")+":/usr"),
		{d.Dir, "sysroot", "", unix.MS_BIND, ""},
		{filepath.Join(d.Dir, "boot"), "boot", "", unix.MS_BIND, ""},
		{filepath.Join(disk, "root/var"), "var", "", unix.MS_BIND, ""},
		{"tmpfs", "run", "tmpfs", 0, "mode=755"},
		{"tmpfs", "tmp", "tmpfs", 0, "mode=1777"},
		{"dev", "dev", "tmpfs", 0, "mode=755"},
	}
}

// booted says in the node what an initramfs and a kernel say: that libostree's
// deployment was booted, and with which arguments.
func booted(root, options string) error {
	if err := os.WriteFile(filepath.Join(root, "run/ostree-booted"), nil, 0o644); err != nil {
		return err
	}
	line := filepath.Join(root, "run/lab/cmdline")
	if err := os.WriteFile(line, []byte(options+"\n"), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(line, filepath.Join(root, "proc/cmdline"), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("covering /proc/cmdline: %w", err)
	}
	return nil
}
