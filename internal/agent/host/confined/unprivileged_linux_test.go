package confined

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMain is also the unprivileged process: the argument says what it tries.
func TestMain(m *testing.M) {
	if len(os.Args) != 2 || !strings.HasPrefix(os.Args[1], "try-") {
		if raceDetector {
			os.Exit(withoutRaceDetector())
		}
		os.Exit(m.Run())
	}
	f, err := EnterUnprivileged()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	switch os.Args[1] {
	case "try-read":
		b, err := io.ReadAll(f)
		fmt.Printf("%s %v", b, err)
	case "try-status":
		b, _ := os.ReadFile("/proc/self/status") // refused where the kernel has Landlock
		fmt.Printf("Env: %d\n%s", len(os.Environ()), b)
		for _, path := range []string{"/etc/shadow", "/root/.ssh", "/var/lib/kubelet/pki"} {
			if _, err := os.ReadDir(path); err == nil {
				fmt.Printf("opened %s\n", path)
			}
			if _, err := os.Open(path); err == nil {
				fmt.Printf("opened %s\n", path)
			}
		}
		if l, err := net.Listen("tcp", "127.0.0.1:80"); err == nil {
			fmt.Printf("listens on %s\n", l.Addr())
		}
	case "try-memory":
		var all [][]byte
		for range 1 << 12 {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
		}
		fmt.Print(len(all))
	case "try-forever":
		for i := 0; ; i++ {
			_ = i
		}
	case "try-talk":
		for range 1 << 20 {
			fmt.Println("much to say")
		}
	}
	os.Exit(0)
}

// raceDetector: this program has it, and needs more memory than the unprivileged process
// may have. Nothing here runs at once with anything else.
var raceDetector bool

// withoutRaceDetector runs all tests of the package in a program without it.
func withoutRaceDetector() int {
	c := exec.Command("go", "test", "-count", "1", "-v", ".")
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func input(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// What was opened for it can be read, though its user could not open it.
func TestAnUnprivilegedProcessReadsItsFile(t *testing.T) {
	b, err := RunUnprivileged(t.Context(), input(t), 1<<10, "try-read")
	if err != nil || string(b) != "hello <nil>" {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestAnUnprivilegedProcessHasNoRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: there are no rights to give up")
	}
	b, err := RunUnprivileged(t.Context(), input(t), 64<<10, "try-status")
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	want := []string{"Env: 0\n"}
	if strings.Contains(got, "Uid:") {
		want = append(want, "Uid:\t65534\t65534\t65534\t65534", "Gid:\t65534\t65534\t65534\t65534", "Groups:\t \n", "CapInh:\t0000000000000000",
			"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1")
	} else {
		t.Log("the kernel has Landlock: the process cannot read its own status")
	}
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in\n%s", w, got)
		}
	}
	if strings.Contains(got, "opened") || strings.Contains(got, "listens") {
		t.Error(got)
	}
}

func TestAnUnprivilegedProcessIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		try, want string
		time      time.Duration
	}{
		"memory":  {"try-memory", "out of memory|pthread_create failed", time.Minute}, // a test program with cgo has threads to make
		"time":    {"try-forever", "did not end in time", 500 * time.Millisecond},
		"answer":  {"try-talk", "more than 1024 bytes", time.Minute},
		"no such": {"try-", "", time.Minute},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tc.time)
		b, err := RunUnprivileged(ctx, input(t), 1024, tc.try)
		cancel()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !regexp.MustCompile(tc.want).MatchString(err.Error())) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// slowWriter takes longer for a write than a process that ended may still be waited for.
type slowWriter struct{ strings.Builder }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(1500 * time.Millisecond)
	return w.Builder.Write(p)
}

// On a busy node the answer is stored long after the process has ended. That is no error of the process.
func TestAnAnswerIsStoredLongAfterTheProcess(t *testing.T) {
	var out slowWriter
	err := StreamUnprivileged(t.Context(), []*os.File{input(t)}, strings.NewReader(""), &out, "try-read")
	if err != nil || out.String() != "hello <nil>" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}
