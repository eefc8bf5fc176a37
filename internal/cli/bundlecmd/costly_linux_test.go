package bundlecmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// program builds a program for a test.
func program(t *testing.T, from string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := build(from, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// costly writes the files.
func costly(t *testing.T) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	files := bundletest.Costly(4<<20-4096, 7<<20)
	for name, raw := range bundletest.Costly(8<<20-4096, 15<<20) {
		files[name+", too long"] = raw
	}
	files["two million chunks"] = bundletest.Large()
	for name, raw := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// peak runs a program by way of a small one, which measures its memory in KiB.
func peak(t *testing.T, by string, argv ...string) (out string, kib int64, code int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := exec.Command(by, argv...)
	c.ExtraFiles = []*os.File{w}
	text, _ := c.CombinedOutput() // the exit code says it
	w.Close()
	if _, err := fmt.Fscan(r, &kib); err != nil {
		t.Fatalf("%v: its memory was not measured: %v\n%s", argv, err, text)
	}
	return string(text), kib, c.ProcessState.ExitCode()
}

// No header, however costly, takes more than 64 MiB of memory of the whole process:
// one of 8 MB once took 3.2 GB. The header of two million chunks counts too.
func TestAnyHeaderIsInspectedInLittleMemory(t *testing.T) {
	const most = 64 << 10 // KiB
	by, refit := program(t, "./testdata/peak"), program(t, "github.com/refit-dev/refit/cmd/refit")
	for _, path := range costly(t) {
		name := filepath.Base(path)
		began := time.Now()
		out, rss, code := peak(t, by, refit, "bundle", "inspect", path)
		took := time.Since(began)
		last := strings.TrimSpace(out)
		last = last[strings.LastIndexByte(last, '\n')+1:]
		t.Logf("%-40s %6d KiB in %4d ms, exit code %d: %.100s", name, rss, took.Milliseconds(), code, last)
		if rss > most {
			t.Errorf("%s: %d KiB of memory", name, rss)
		}
		if code != int(console.ExitOK) && code != int(console.ExitVerification) {
			t.Errorf("%s: exit code %d: %s", name, code, last)
		}
	}
}

// A pipe without a writer, and other special files, are refused at once.
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
				if r.code == console.ExitOK {
					t.Errorf("refit %s: accepted", strings.Join(args, " "))
				}
			case <-time.After(20 * time.Second):
				t.Errorf("refit %s: hangs", strings.Join(args, " "))
				// A waiting reader is released.
				if w, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
					w.Close()
				}
			}
		}
	}
}
