package bundlecmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// TestMain builds the program that renders charts and kustomizations, and puts it into PATH. Tests share
// API servers.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "refit-render-*")
	if err != nil {
		panic(err)
	}
	if err := build("github.com/refit-dev/refit/cmd/refit-render", filepath.Join(dir, "refit-render")); err != nil {
		panic(err)
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		panic(err)
	}
	code := apitest.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds a program as it is shipped. go run keeps what it linked in the build cache, which go build
// does not, and "runs" it here with cp.
func build(from, to string) error {
	c := exec.Command("go", "run", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-exec", "cp", from, to)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", from, err, text)
	}
	return nil
}

// A renderer that is missing, dies, never ends its answer, or says nothing useful, is reported.
func TestRendererFails(t *testing.T) {
	t.Chdir(t.TempDir())
	writeTree(t, app)
	path := os.Getenv("PATH")
	for script, want := range map[string]struct {
		code int
		says string
	}{
		"":                                     {console.ExitBlocked, "from the archive of refit's release"},
		"kill -9 $$":                           {console.ExitInternal, "signal: killed"},
		"echo broken; exit 0":                  {console.ExitInternal, "read the answer of refit-render"},
		"echo half >&2; exit 3":                {console.ExitInternal, "exit status 3: half"},
		"echo the reason >&2; exit 2":          {console.ExitUsage, "chart app: the reason"},
		"yes no | head -c 1000000 >&2; exit 2": {console.ExitUsage, "no\nno"},
		"test -z \"$SECRET_OF_TEST\" || exit 3; exit 0": {console.ExitOK, ""},
	} {
		t.Run(script, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("SECRET_OF_TEST", "x")
			t.Setenv("PATH", dir)
			if script != "" {
				t.Setenv("PATH", dir+string(os.PathListSeparator)+path)
				text := "#!/bin/sh\nPATH=/usr/bin:/bin\n" + script + "\n"
				if err := os.WriteFile(filepath.Join(dir, "refit-render"), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if r := refit(t, "bundle", "images", "chart:app"); r.code != want.code || !strings.Contains(r.err, want.says) || len(r.err) > 100_000 {
				t.Errorf("exit %d: %.300s", r.code, r.err)
			}
		})
	}
}
