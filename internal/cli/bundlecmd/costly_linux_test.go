package bundlecmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// program builds the command line as it is shipped.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "refit")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/refit-dev/refit/cmd/refit").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// costly makes the files in a process of its own: what a process had in memory when
// it started another one counts as that one's.
func costly(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run=^TestMakeCostly$")
	c.Env = append(os.Environ(), "REFIT_COSTLY_DIR="+dir)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	return files
}

func TestMakeCostly(t *testing.T) {
	dir := os.Getenv("REFIT_COSTLY_DIR")
	if dir == "" {
		t.Skip("TestAnyHeaderIsInspectedInLittleMemory runs it")
	}
	files := bundletest.Costly(4<<20-4096, 7<<20)
	for name, raw := range bundletest.Costly(8<<20-4096, 15<<20) {
		files[name+", too long"] = raw
	}
	files["two million chunks"] = bundletest.Large()
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// No header, however costly, takes more than 64 MiB of memory of the whole process:
// one of 8 MB once took 3.2 GB. The header of two million chunks counts too.
func TestAnyHeaderIsInspectedInLittleMemory(t *testing.T) {
	const most = 64 << 10 // KiB
	refit := program(t)
	for _, path := range costly(t) {
		name := filepath.Base(path)
		c := exec.Command(refit, "bundle", "inspect", path)
		began := time.Now()
		out, err := c.CombinedOutput()
		took := time.Since(began)
		rss := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		last := strings.TrimSpace(string(out))
		last = last[strings.LastIndexByte(last, '\n')+1:]
		t.Logf("%-40s %6d KiB in %4d ms, exit code %d: %.100s", name, rss, took.Milliseconds(), c.ProcessState.ExitCode(), last)
		if rss > most {
			t.Errorf("%s: %d KiB of memory", name, rss)
		}
		if code := c.ProcessState.ExitCode(); err != nil && code != int(exit.Verification) {
			t.Errorf("%s: exit code %d: %s", name, code, last)
		}
	}
}

// A pipe that nobody writes to, and other files that are none, are refused at once.
func TestOddFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, socket, "/dev/zero", "/dev/tty", dir} {
		for _, args := range [][]string{
			{"bundle", "inspect", path}, {"bundle", "verify", path, "--digest", "sha256:" + strings.Repeat("0", 64)}, {"bundle", "extract", path, "--to", filepath.Join(dir, "to")},
			{"bundle", "sign", path, "--key", path}, {"bundle", "create", "-o", filepath.Join(dir, "out"), "oci-archive:" + path}, {"bundle", "create", "-o", filepath.Join(dir, "out"), "bundle:" + path},
			{"bundle", "create", "-o", filepath.Join(dir, "out"), "payload:kubelet@v1.36.3=" + path}, {"bundle", "create", "-o", filepath.Join(dir, "out"), "list:" + path},
		} {
			done := make(chan result, 1)
			go func() { done <- refit(t, args...) }()
			select {
			case r := <-done:
				if r.code == exit.OK {
					t.Errorf("refit %s: accepted", strings.Join(args, " "))
				}
			case <-time.After(20 * time.Second):
				t.Errorf("refit %s: hangs", strings.Join(args, " "))
				// Whoever waits to read is let go.
				if w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
					w.Close()
				}
			}
		}
	}
}
