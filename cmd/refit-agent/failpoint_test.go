package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// kills is the function that ends a process at a failpoint.
const kills = "github.com/refit-dev/refit/internal/failpoint.KillFrom"

// A released agent cannot be killed by a file: the code is not in it. That of the tests is
// built with a tag.
func TestReleasedAgentHasNoFailpoints(t *testing.T) {
	for name, c := range map[string]struct {
		tags string
		want bool
	}{"released": {"", false}, "for tests": {"failpoint", true}} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "refit-agent")
			cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "-tags", c.tags, ".")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("go build: %v: %s", err, out)
			}
			b, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			// The names of functions stay in a stripped program.
			if bytes.Contains(b, []byte(kills)) != c.want {
				t.Errorf("the program contains %s: %v", kills, !c.want)
			}
			if bytes.Contains(b, []byte("REFIT_FAILPOINT")) {
				t.Error("the program reads REFIT_FAILPOINT")
			}
		})
	}
}
