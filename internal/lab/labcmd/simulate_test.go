package labcmd

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/lab/simulate"
)

func TestARunThatFailsLeavesTheResultOfOneThatPassed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r   simulate.Result
		err error
	}{
		"a limit was missed": {r: simulate.Result{Problems: []string{"memory"}}},
		"it broke off":       {r: simulate.Result{OK: true}, err: errors.New("no API server")},
	} {
		file := filepath.Join(t.TempDir(), "simulate.json")
		if err := os.WriteFile(file, []byte("passed"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := printSimulation(io.Discard, file, c.r, c.err); err == nil {
			t.Errorf("%s: exit code 0", name)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "passed" {
			t.Errorf("%s: the file holds %q, %v", name, text, err)
		}
		if _, err := os.Stat(file + ".failed"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
