package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the unit runs: exit code 3 keeps what joins from starting, 0 lets it.
func TestFirstBoot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limits string
		code   int
	}{
		"no limits":                              {"", 0},
		"a machine that does not say what it is": {`{"apiVersion":"refit.dev/first-boot/v1","pool":"w","target":{},"rules":[{"name":"os","minimumOS":"9.6"}]}`, exitBlocked},
		"limits without rules":                   {`{"apiVersion":"refit.dev/first-boot/v1","pool":"w","target":{},"rules":[]}`, 0},
		"limits that cannot be read":             {`{`, exitBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tc.limits != "" {
				if err := os.MkdirAll(filepath.Join(dir, "etc/refit"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "etc/refit/first-boot.json"), []byte(tc.limits), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := root()
			var out bytes.Buffer
			c.SetOut(&out)
			c.SetArgs([]string{"first-boot", "--root", dir})
			code := 0
			err := c.ExecuteContext(context.Background())
			if err != nil {
				code = exitCode(err)
			}
			if code != tc.code || tc.code != 0 && !strings.Contains(out.String(), err.Error()) {
				t.Errorf("%d %v\n%s", code, err, out.String())
			}
		})
	}
}
