package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The test binary starts itself again as the program that is to die.
func TestMain(m *testing.M) {
	if name := os.Getenv("FAILPOINT_CHILD"); name != "" {
		KillFrom(os.Getenv("FAILPOINT_CHILD_FILE"))
		for range 3 {
			Here(name)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(t *testing.T, env ...string) error {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), env...)
	return c.Run()
}

func killed(err error) bool {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return false
	}
	ws, ok := e.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

func TestKill(t *testing.T) {
	f := filepath.Join(t.TempDir(), "failpoint")
	for name, c := range map[string]struct {
		file string
		dies bool
	}{
		"there is no file: the program goes on":       {},
		"another point is named: the program goes on": {file: "other"},
		"the point is named: the program is killed":   {file: StepBefore + "\n", dies: true},
		"the third pass is named: it is killed there": {file: StepBefore + ":3", dies: true},
		"a pass that is never reached: goes on":       {file: StepBefore + ":4"},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(f)
			if c.file != "" {
				if err := os.WriteFile(f, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			env := []string{"FAILPOINT_CHILD=" + StepBefore, "FAILPOINT_CHILD_FILE=" + f}
			err := runChild(t, env...)
			if killed(err) != c.dies {
				t.Fatalf("child ended with %v, want killed=%v", err, c.dies)
			}
			if c.dies {
				if _, err := os.Stat(f); !os.IsNotExist(err) {
					t.Fatalf("the file must be gone so that a restart goes on, stat says %v", err)
				}
				if err := runChild(t, env...); err != nil {
					t.Fatalf("after the restart the program must go on, got %v", err)
				}
			}
		})
	}
}

func TestPause(t *testing.T) {
	f := filepath.Join(t.TempDir(), "failpoint")
	if err := os.WriteFile(f, []byte(StepBefore+":2 pause\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- runChild(t, "FAILPOINT_CHILD="+StepBefore, "FAILPOINT_CHILD_FILE="+f)
	}()
	for {
		if _, err := os.Lstat(f + PausedSuffix); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the program ended with %v before it paused", err)
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := os.Lstat(f); !os.IsNotExist(err) {
		t.Errorf("the file must be gone while the program pauses, so that another point can be named: stat says %v", err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the program ended with %v while it was to pause", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := os.Remove(f + PausedSuffix); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the program must go on after the pause, it ended with %v", err)
	}
}
