package lab_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/lab"
)

const upInHelper = "REFIT_LAB_TEST_UP_IN"

func killedName() string { return fmt.Sprintf("killed-%d", os.Getpid()) }

// TestHelperUp is no test: it is the process that the next one kills.
func TestHelperUp(t *testing.T) {
	base, name := os.Getenv(upInHelper), os.Getenv(upInHelper+"_NAME")
	if base == "" {
		t.Skip("only as a helper of another test")
	}
	if _, err := lab.Up(t.Context(), lab.Options{Name: name, StateDir: base, Nodes: 2, Bare: true}); err != nil {
		t.Fatal(err)
	}
}

// The process that creates a lab may be killed at any moment. Removing the lab, or
// creating it again, still works.
func TestDownAfterUpWasKilledAtAnyMoment(t *testing.T) {
	needsRoot(t)
	base, name := t.TempDir(), killedName()
	before := look()
	for _, moment := range []time.Duration{40, 60, 80, 100, 130, 170, 250, 400, 800} {
		up := exec.Command(os.Args[0], "-test.run", "^TestHelperUp$")
		up.Env = append(os.Environ(), upInHelper+"="+base, upInHelper+"_NAME="+name)
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(moment * time.Millisecond)
		_ = up.Process.Kill()
		_ = up.Wait()
		if err := lab.DownIn(timeLimit(t, patience), name, base); err != nil {
			t.Fatalf("killed after %d ms: %v", moment, err)
		}
		// A mkfs or a supervisor that was just started finds nothing to work on, and ends by itself.
		eventually(t, patience, func(context.Context) string {
			return leftBehind(filepath.Join(base, name), before, nil, 0)
		})
	}
}
