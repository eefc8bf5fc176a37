package confined

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// overflowID is the user and group nobody, on every Linux.
const overflowID = 65534

// shared are what programs that are no static ELF need: interpreter and libraries.
var shared = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}

// limits hold from the moment that the program is seen to run; those of the agent's
// unit hold before.
var limits = map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64, unix.RLIMIT_CPU: 30, unix.RLIMIT_AS: 4 << 30}

// run works in a thread that never returns to the Go scheduler: the mount namespace, bounding set
// and no_new_privs end with the thread.
func run(ctx context.Context, c Command, out, said io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can confine a program")
	}
	root, err := os.MkdirTemp(c.Dir, "confined-")
	if err != nil {
		return fmt.Errorf("root of a confined program: %w", err)
	}
	defer func() { _ = os.Remove(root) }() // an empty directory: the mount is of the thread's namespace
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- inThread(ctx, c, root, out, said)
	}()
	return <-done
}

func inThread(ctx context.Context, c Command, root string, out, said io.Writer) error {
	if err := makeRoot(c, root); err != nil {
		return fmt.Errorf("root of a confined program: %w", err)
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/program", c.Args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = out, said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     root,
		Credential: &syscall.Credential{Uid: overflowID, Gid: overflowID},
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for what, n := range limits {
		_ = unix.Prlimit(cmd.Process.Pid, what, &unix.Rlimit{Cur: n, Max: n}, nil) // it may have ended
	}
	return cmd.Wait()
}

// makeRoot makes a mount namespace for this thread, and in it a read-only root.
func makeRoot(c Command, root string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("refit", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m"); err != nil {
		return fmt.Errorf("mount %s: %w", root, err)
	}
	program := filepath.Join(root, "program")
	if err := os.WriteFile(program, nil, 0o555); err != nil {
		return err
	}
	if err := bind(c.Program, program); err != nil {
		return err
	}
	if !static(c.Program) {
		if err := share(root); err != nil {
			return err
		}
	}
	for name, text := range c.Files {
		if err := os.WriteFile(filepath.Join(root, filepath.Base(name)), text, 0o444); err != nil {
			return err
		}
	}
	return readOnly(root)
}

// share shows programs and libraries of the host.
func share(root string) error {
	for _, dir := range shared {
		at := filepath.Join(root, dir)
		if to, err := os.Readlink(dir); err == nil {
			if err := os.Symlink(to, at); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := bind(dir, at); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", from, err)
	}
	return readOnly(to)
}

func readOnly(at string) error {
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", at, err)
	}
	return nil
}

// dropPrivileges is of this thread: what it has it keeps, what it starts gets none back.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for c := uintptr(0); c < 64; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel knows no more
		}
		if err != nil {
			return fmt.Errorf("bounding set: %w", err)
		}
	}
	return nil
}
