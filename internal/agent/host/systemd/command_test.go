package systemd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestKeep(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		exit int
	}{
		"a command that succeeds":              {[]string{"true"}, 0},
		"a command that fails":                 {[]string{"sh", "-c", "exit 3"}, 3},
		"a command that is killed":             {[]string{"sh", "-c", "kill -9 $$"}, 137},
		"a command that cannot be started":     {[]string{"/nonexistent/program"}, 127},
		"a command with output, which is kept": {[]string{"echo", "words"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log, result := filepath.Join(t.TempDir(), "d", "log"), filepath.Join(t.TempDir(), "result")
			if err := RecordCommand(t.Context(), log, result, c.argv); err != nil {
				t.Fatal(err)
			}
			r, err := ReadCommandResult(result)
			if err != nil || r == nil || r.Exit != c.exit {
				t.Fatalf("%+v %v", r, err)
			}
			if c.argv[0] == "echo" && TailLog(log, 1) != "words" {
				t.Fatalf("the log ends with %q", TailLog(log, 1))
			}
		})
	}
}

// Promise 6: at a shutdown everybody in the unit gets a signal. A command that it
// cut off has not failed; one that came to its own end has a result.
func TestAShutdownIsNoFailureOfTheCommand(t *testing.T) {
	for name, c := range map[string]struct {
		end string
		has bool
	}{
		"cut off":           {"kill -TERM $$", false},
		"came to its end":   {"exit 0", true},
		"failed at its end": {"exit 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			started, on, result := filepath.Join(dir, "started"), filepath.Join(dir, "on"), filepath.Join(dir, "result")
			ctx, shutdown := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- RecordCommand(ctx, filepath.Join(dir, "log"), result,
					[]string{"sh", "-c", "touch " + started + "; while [ ! -e " + on + " ]; do sleep 0.02; done; " + c.end})
			}()
			for {
				if _, err := os.Stat(started); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			shutdown()
			if err := os.WriteFile(on, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; (err == nil) != c.has {
				t.Errorf("ended with %v", err)
			}
			if r, err := ReadCommandResult(result); err != nil || (r != nil) != c.has {
				t.Fatalf("%+v %v", r, err)
			}
		})
	}
}
