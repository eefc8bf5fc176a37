package confined

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// UnprivilegedID is the user and group nobody, on every Linux.
const UnprivilegedID = 65534

// Bounds of a unprivileged process. Go takes memory in steps of 64 MiB, and has taken one
// and some for itself when it begins: there is room for one more.
const (
	maxData    = 160 << 20 // bytes of memory that can be written
	softMemory = 48 << 20  // from here on garbage is collected hard
	maxSeconds = 10        // of processor time
	maxFiles   = 32
)

// maxComplaint bounds what is kept of a process's last words.
const maxComplaint = 2 << 10

// file is the number under which a unprivileged process finds its file.
const file = 3

// RunUnprivileged runs this program with args, and f as its file, until it ends or the context
// does. It returns at most most bytes of its answer; more is an error.
func RunUnprivileged(ctx context.Context, f *os.File, most int64, args ...string) ([]byte, error) {
	c, complaint := unprivileged(ctx, []*os.File{f}, args)
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("unprivileged process: %w", err)
	}
	if err := start(c); err != nil {
		return nil, fmt.Errorf("unprivileged process: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(out, most+1))
	if int64(len(answer)) > most {
		err = errors.Join(fmt.Errorf("its answer has more than %d bytes", most), c.Process.Kill())
	}
	if ended := c.Wait(); ended != nil && err == nil {
		err = ended
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("it did not end in time: %w", ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("unprivileged process: %w%s", err, complaint.said())
	}
	return answer, nil
}

// unprivileged is this program as a process without privileges, and its last words.
func unprivileged(ctx context.Context, files []*os.File, args []string) (*exec.Cmd, *head) {
	// Not by its path: user nobody may not enter its directory.
	c := exec.CommandContext(ctx, "/proc/self/exe", args...)
	c.Args[0] = os.Args[0]
	c.Env, c.Dir, c.ExtraFiles = []string{}, "/", files
	// Without WaitDelay: the process has no children that could hold its pipes open. On a busy node the
	// rest of its answer may take long to be written.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: UnprivilegedID, Gid: UnprivilegedID, Groups: []uint32{}}
	}
	complaint := &head{most: maxComplaint}
	c.Stderr = complaint
	return c, complaint
}

// StreamUnprivileged runs this program with args, and files as its files, until it ends or the
// context does. The process reads in, and out gets what it writes; an error of out ends it.
func StreamUnprivileged(ctx context.Context, files []*os.File, in io.Reader, out io.Writer, args ...string) error {
	c, complaint := unprivileged(ctx, files, args)
	c.Stdin, c.Stdout = in, out
	err := start(c)
	if err == nil {
		err = c.Wait()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("unprivileged process: it did not end in time: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("unprivileged process: %w%s", err, complaint.said())
	}
	return nil
}

// start starts a command from a thread that may gain no privilege: the process has
// that from its first instruction. The thread ends with it.
func start(c *exec.Cmd) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is of no other use
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			done <- fmt.Errorf("no_new_privs: %w", err)
			return
		}
		done <- c.Start()
	}()
	return <-done
}

// head keeps the beginning of what is written.
type head struct {
	most int
	b    bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), h.most-h.b.Len())])
	return len(p), nil
}

// said is the first line, as it may be printed.
func (h *head) said() string {
	line, _, _ := strings.Cut(h.b.String(), "\n")
	if line == "" {
		return ""
	}
	return fmt.Sprintf(": %.200q", line)
}

// EnterUnprivileged is the first thing that a unprivileged process does, before it touches its file,
// which is returned.
func EnterUnprivileged() (*os.File, error) {
	files, err := enter(1, maxSeconds, 0)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// streamSeconds is the processor time of a process of StreamUnprivileged, which works on gigabytes.
const streamSeconds = 4 * 3600

// EnterUnprivilegedStream is EnterUnprivileged for a process of StreamUnprivileged with a number of
// files. It may write a file up to fileSize bytes.
func EnterUnprivilegedStream(files int, fileSize int64) ([]*os.File, error) {
	return enter(files, streamSeconds, uint64(fileSize))
}

func enter(files int, seconds, fileSize uint64) (out []*os.File, err error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("this runs without rights only: it is not for root")
	}
	for _, l := range []struct {
		what int
		most uint64
	}{
		{unix.RLIMIT_DATA, maxData}, {unix.RLIMIT_CPU, seconds}, {unix.RLIMIT_NOFILE, maxFiles}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, fileSize}, {unix.RLIMIT_MEMLOCK, 0},
	} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return nil, fmt.Errorf("limit %d: %w", l.what, err)
		}
	}
	debug.SetMemoryLimit(softMemory)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("not dumpable: %w", err)
	}
	leaveFiles()
	for n := range files {
		out = append(out, os.NewFile(uintptr(file+n), "input"))
	}
	return out, nil
}

// leaveFiles gives up the file system, where the kernel has Landlock: files that are
// open stay so, no other can be opened. It is one wall more, and not there on every node.
func leaveFiles() {
	all := unix.LandlockRulesetAttr{Access_fs: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM}
	// The first version of the interface knows this member only.
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&all)), unsafe.Sizeof(all.Access_fs), 0)
	if errno != 0 {
		return
	}
	defer unix.Close(int(rules))
	// On every thread. A program that was built with cgo cannot: tests with -race only.
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0)
}
