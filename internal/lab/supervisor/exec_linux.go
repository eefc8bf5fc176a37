package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
)

// RunInNode enters the node of the directory, with this process, and runs the command
// there. The process is of no other use afterwards.
func RunInNode(dir string, argv []string) error {
	// Namespaces are entered by a thread; the command must be started by the same one.
	runtime.LockOSThread()
	m, err := machine.Load(dir)
	if err != nil {
		return err
	}
	p, err := LoadProcess(dir)
	if err != nil || !p.Alive() {
		return fmt.Errorf("node %s is off", m.Name)
	}
	// First the groups: what the command starts must not sit in the machine's own.
	if err := kernel.JoinCgroup(m.Group); err != nil {
		return err
	}
	if err := enterNamespaces(p.PID); err != nil {
		return fmt.Errorf("entering node %s: %w", m.Name, err)
	}
	path, err := exec.LookPath(argv[0]) // this thread sees the node's files
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: path, Args: argv, Dir: "/", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return err
	}
	// The kernel's own "die with the parent" does not work across pid namespaces.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		_ = cmd.Process.Kill()
	}()
	return cmd.Wait()
}

// enterNamespaces moves this thread into the namespaces of pid. It refuses a process of
// our own pid namespace: a reboot or poweroff run "in the node" would be the machine's.
func enterNamespaces(pid int) error {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return err
	}
	ours, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	if theirs == ours {
		return fmt.Errorf("process %d is not in a pid namespace of its own: refusing to run anything there", pid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A thread that shares root and working directory with others may not change its mounts.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|unix.CLONE_NEWNET|unix.CLONE_NEWCGROUP)
}
