package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// hostRoot is the root of the node's pid 1, seen from a pod in its pid namespace.
const hostRoot = "/proc/1/root"

// hostProgram is where this program is copied to on the host before it installs itself.
const hostProgram = "/var/tmp/refit-agent.install"

// OnHost copies this program to the host, and runs its installation there, in the host's
// root. Standard output is that of the installer.
func OnHost(ctx context.Context, stdout, stderr io.Writer) error {
	return installOnHost(ctx, hostRoot, stdout, stderr)
}

func installOnHost(ctx context.Context, root string, stdout, stderr io.Writer) error {
	if err := checkHostRoot(root); err != nil {
		return err
	}
	program := filepath.Join(root, hostProgram)
	if err := copySelf(program); err != nil {
		return fmt.Errorf("copying the agent to the host: %w", err)
	}
	defer os.Remove(program)
	c := exec.CommandContext(ctx, hostProgram, "install")
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	c.Dir, c.Env = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	c.Stdout, c.Stderr = stdout, stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("installing on the host: %w; its output is above", err)
	}
	return nil
}

// checkHostRoot refuses to install into the pod's own root: then the pod does not see the
// node's processes, and pid 1 is its own.
func checkHostRoot(root string) error {
	theirs, err := os.Stat(root)
	if err != nil {
		return fmt.Errorf("the root of the node's pid 1: %w; the pod needs hostPID: true and privileged: true", err)
	}
	ours, err := os.Stat("/")
	if err != nil {
		return err
	}
	if os.SameFile(theirs, ours) {
		return errors.New("pid 1 has this program's own root, so this is not a pod that sees its node: set hostPID: true, or on a host leave out --onto-host")
	}
	return nil
}

func copySelf(to string) (err error) {
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
