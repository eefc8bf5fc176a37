package story

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/refit-dev/refit/internal/cli"
)

var update = flag.Bool("update", false, "write the output that stories expect")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"refit": func() { os.Exit(cli.Main(append([]string{"refit"}, os.Args[1:]...))) },
	})
}

func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			site, err := os.ReadFile(filepath.Join("testdata", "site.yaml"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(e.WorkDir, "site.yaml"), site, 0o600)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"archive":  archive,
			"exitcode": exitCode,
			"flip":     flip,
			"contains": contains,
		},
	})
}

// contains: the first file has the line of the second one in it.
func contains(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: contains FILE WHAT")
	}
	if has := strings.Contains(ts.ReadFile(args[0]), strings.TrimSpace(ts.ReadFile(args[1]))); has == neg {
		ts.Fatalf("%s contains what is in %s: %v", args[0], args[1], has)
	}
}
