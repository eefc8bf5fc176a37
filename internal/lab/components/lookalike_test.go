package components

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The look-alike is built outside of this module, so nothing else compiles it. It unpacks
// its parts, executes them, and refuses a program without them. As k0s it prints its version alone.
func TestLookAlikeUnpacksItsParts(t *testing.T) {
	dir := t.TempDir()
	source, err := fs.Sub(sources, "_lookalike")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, source); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module lookalike\n\ngo 1.25.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := run("go", "vet", "."); out != "" {
		t.Fatal(out)
	}
	program, whole, data := filepath.Join(dir, "bare"), filepath.Join(dir, "k3s"), filepath.Join(dir, "data")
	if out := run("go", "build", "-ldflags", "-X main.version=v1.35.4+k3s2 -X main.base="+data, "-o", program, "."); out != "" {
		t.Fatal(out)
	}
	part := filepath.Join(dir, "part")
	if err := os.WriteFile(part, []byte("#!/bin/sh\necho the part runs with $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := appendParts(whole, program, map[string]entry{"kubectl": {source: part}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ program, argument, want string }{
		{whole, "--version", "k3s version v1.35.4+k3s2 (look-alike"},
		{whole, "kubectl", "the part runs with get"},
		{program, "kubectl", "carries no parts"},
		{whole, "upgrade", `unknown command "upgrade"`},
	} {
		if out := run(c.program, c.argument, "get"); !strings.Contains(out, c.want) {
			t.Errorf("%s %s: %s", c.program, c.argument, out)
		}
	}
	k0s := filepath.Join(dir, "k0s")
	if out := run("go", "build", "-ldflags", "-X main.face=k0s -X main.version=v1.36.3+k0s.2", "-o", k0s, "."); out != "" {
		t.Fatal(out)
	}
	if out := run(k0s, "version"); out != "v1.36.3+k0s.2\n" {
		t.Errorf("k0s prints the version alone, the look-alike: %q", out)
	}
}

func TestForLookAlikeRefuses(t *testing.T) {
	for _, version := range []string{"v1.35.4", "v1.35.4+k3s", "v1.35.4+k0s", "v1.0.0+k3s1"} {
		if l, err := ForLookAlike(t.Context(), version, nil); err == nil {
			t.Errorf("%s: %+v", version, l)
		}
	}
}
