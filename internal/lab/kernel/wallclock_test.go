//go:build linux && amd64

package kernel

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

func init() { children["REFIT_TEST_CLOCK"] = printClock }

// printClock is the program whose clock is set: at each line that it reads it prints the
// wall clock, and how long it has run by the monotonic one.
func printClock(string) {
	start := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Println(now.Unix(), int64(now.Sub(start)))
	}
}

func TestShift(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to write into another process")
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "REFIT_TEST_CLOCK=1")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), c.Wait() })
	lines := bufio.NewReader(out)
	ask := func() (wall int64, ran time.Duration) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(lines, &wall, &ran); err != nil {
			t.Fatal(err)
		}
		return wall, ran
	}
	ask()
	for _, by := range []time.Duration{6 * time.Hour, -6 * time.Hour, -50 * 365 * 24 * time.Hour, 0, time.Hour} {
		if err := ShiftClock(c.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
		wall, ran := ask()
		if d := wall - time.Now().Add(by).Unix(); d < -2 || d > 2 {
			t.Errorf("by %s: the wall clock is %d s off", by, d)
		}
		if ran < 0 || ran > time.Since(start) {
			t.Errorf("by %s: the program has run for %s", by, ran)
		}
	}
}
