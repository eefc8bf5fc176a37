package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kills is the package that ends a process at a failpoint.
const kills = "github.com/refit-dev/refit/internal/failpoint/kill"

// A released agent cannot be killed by a file: the code is not in it. That of the tests is
// built with a tag.
func TestReleasedAgentHasNoFailpoints(t *testing.T) {
	for name, c := range map[string]struct {
		tags string
		want bool
	}{"released": {"", false}, "for tests": {"failpoint", true}} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "refit-agent")
			for _, args := range [][]string{{"list", "-deps"}, {"build", "-trimpath", "-ldflags", "-s -w", "-o", program}} {
				cmd := exec.Command("go", append(args, "-tags", c.tags, ".")...)
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("go %s: %v: %s", args[0], err, out)
				}
				if args[0] == "list" && strings.Contains(string(out), kills+"\n") != c.want {
					t.Errorf("its packages have %s: %v", kills, !c.want)
				}
			}
			b, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			// The names of functions stay in a stripped program.
			if bytes.Contains(b, []byte(kills+".")) != c.want {
				t.Errorf("the program has functions of %s: %v", kills, !c.want)
			}
			if bytes.Contains(b, []byte("REFIT_FAILPOINT")) {
				t.Error("the program reads REFIT_FAILPOINT")
			}
		})
	}
}
