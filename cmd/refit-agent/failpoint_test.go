package main

import (
	"bytes"
	"testing"
)

// kills is the function that ends a process at a failpoint.
const kills = "github.com/refit-dev/refit/internal/failpoint.KillFrom"

// A released agent cannot be killed by a file: the code is not in it. That of the tests is
// built with a tag.
func TestReleasedAgentHasNoFailpoints(t *testing.T) {
	for name, c := range map[string]struct {
		tags []string
		want bool
	}{"released": {nil, false}, "for tests": {[]string{"failpoint"}, true}} {
		t.Run(name, func(t *testing.T) {
			b := buildAgent(t, c.tags...)
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
