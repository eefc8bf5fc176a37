package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/lab/kernel"
	"github.com/refit-dev/refit/internal/lab/machine"
)

// node is one node's mains switch.
type node struct {
	name, dir string

	mu    sync.Mutex
	cmd   *exec.Cmd
	boots int
	since time.Time
	last  string
	cutIt bool          // power is cut for good
	off   chan struct{} // closed when the node is off
}

// A node that dies this often within this time is broken, not rebooting.
const (
	tooOften = 5
	tooSoon  = 3 * time.Second
)

func (n *node) describeStatus() NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := NodeStatus{Name: n.name, Boots: n.boots, Since: n.since, Last: n.last}
	if n.cmd != nil {
		s.On, s.PID = true, n.cmd.Process.Pid
	}
	return s
}

// switchOn starts the node and keeps starting it until it is switched off.
// It returns when systemd was started once, or with the reason why not.
func (n *node) switchOn() error {
	n.mu.Lock()
	if n.off != nil {
		n.mu.Unlock()
		return nil
	}
	n.off, n.cutIt = make(chan struct{}), false
	n.mu.Unlock()
	first := make(chan error, 1)
	go n.run(first)
	return <-first
}

func (n *node) run(first chan<- error) {
	// A child is tied to the thread that made it.
	runtime.LockOSThread()
	defer n.switchedOff()
	for quick := 0; ; {
		started := time.Now()
		cmd, terminal, err := n.boot()
		select {
		case first <- err:
		default:
		}
		if err != nil {
			n.recordRun(nil, err.Error())
			return
		}
		_ = cmd.Wait()
		terminal.Close()
		how := cmd.ProcessState.Sys().(syscall.WaitStatus)
		n.recordRun(nil, describeEnd(how))
		if time.Since(started) < tooSoon {
			quick++
		} else {
			quick = 0
		}
		if how.Signaled() && how.Signal() == syscall.SIGINT || quick >= tooOften || n.isCut() {
			return
		}
	}
}

// describeEnd says what the end of pid 1 means.
func describeEnd(how syscall.WaitStatus) string {
	switch {
	case how.Signaled() && how.Signal() == syscall.SIGHUP:
		return "rebooted"
	case how.Signaled() && how.Signal() == syscall.SIGINT:
		return "powered off"
	case how.Signaled():
		return "died of " + how.Signal().String()
	}
	return fmt.Sprintf("pid 1 ended with exit status %d", how.ExitStatus())
}

func (n *node) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cutIt
}

func (n *node) switchedOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.off)
	n.off = nil
}

func (n *node) recordRun(cmd *exec.Cmd, last string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd, n.since = cmd, time.Now()
	if cmd != nil {
		n.boots++
		log.Printf("%s: boot %d, pid %d", n.name, n.boots, cmd.Process.Pid)
		return
	}
	n.last = last
	log.Printf("%s: %s", n.name, last)
	_ = os.Remove(filepath.Join(n.dir, PIDName))
}

// crash kills pid 1; run starts the node again.
func (n *node) crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return fmt.Errorf("node %s is off", n.name)
	}
	return n.cmd.Process.Kill()
}

// cut kills pid 1 and waits until all of the node has ended.
func (n *node) cut() {
	n.mu.Lock()
	n.cutIt = true
	off := n.off
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
	}
	n.mu.Unlock()
	if off != nil {
		<-off
	}
}

// boot starts the node in new namespaces, connects it, and returns when its
// systemd has been started. The terminal must stay open while the node lives:
// with no one at this end of it, what the node says to its console would end in
// an error there.
func (n *node) boot() (*exec.Cmd, io.Closer, error) {
	m, err := machine.Load(n.dir)
	if err != nil {
		return nil, nil, err
	}
	waitUnmounted(m.Disk)
	if err := swapDisk(m.Disk); err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	terminal, err := n.console()
	if err != nil {
		return nil, nil, err
	}
	cmd, err := n.bootAt(terminal, m)
	if err != nil {
		terminal.Close()
		return nil, nil, fmt.Errorf("node %s: %w", n.name, err)
	}
	return cmd, terminal, nil
}

func (n *node) bootAt(terminal *os.File, m *machine.Machine) (*exec.Cmd, error) {
	powerThere, power, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer power.Close()
	fault, faultThere, err := os.Pipe()
	if err != nil {
		powerThere.Close()
		return nil, err
	}
	defer fault.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{NodeProcess, n.dir}, Dir: "/", Env: []string{},
		Stdin: terminal, Stdout: terminal, Stderr: terminal, ExtraFiles: []*os.File{powerThere, faultThere},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true,
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET},
	}
	err = cmd.Start()
	powerThere.Close()
	faultThere.Close()
	if err != nil {
		return nil, err
	}
	if err := n.powerOn(cmd, m, power, fault); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return cmd, nil
}

func (n *node) powerOn(cmd *exec.Cmd, m *machine.Machine, power, fault *os.File) error {
	p, err := process(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := save(filepath.Join(n.dir, PIDName), p); err != nil {
		return err
	}
	if err := connect(m, cmd.Process.Pid); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if _, err := power.Write([]byte{1}); err != nil {
		why, _ := io.ReadAll(fault)
		return fmt.Errorf("%w: %s", err, why)
	}
	why, err := io.ReadAll(fault)
	if err != nil {
		return err
	}
	if len(why) > 0 {
		return errors.New(strings.TrimSpace(string(why)))
	}
	n.recordRun(cmd, "")
	if n.isCut() {
		return errors.New("power was cut")
	}
	return nil
}

// waitUnmounted gives the kernel time to let go of the last boot's disk.
func waitUnmounted(disk string) {
	for range 500 {
		if len(kernel.LoopsOf(disk)) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// swapDisk puts what a power cut has left of a disk in its place, if there was one.
func swapDisk(disk string) error {
	if _, err := os.Stat(CutDisk(disk)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for range 3000 { // two devices on files of one name would be taken for one
		if len(kernel.LoopsOf(disk)) == 0 {
			return os.Rename(CutDisk(disk), disk)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("the disk %s of before the power cut is still in use", disk)
}

// console creates a terminal for the node; its output goes to console.log.
func (n *node) console() (*os.File, error) {
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		control.Close()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		control.Close()
		return nil, err
	}
	record, err := os.OpenFile(filepath.Join(n.dir, "console.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		control.Close()
		terminal.Close()
		return nil, err
	}
	go func() {
		_, _ = io.Copy(record, control) // ends when the last process of the node is gone
		record.Close()
		control.Close()
	}()
	return terminal, nil
}
