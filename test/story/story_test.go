package story

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/refit-dev/refit/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"refit": func() { os.Exit(cli.Main(append([]string{"refit"}, os.Args[1:]...))) },
	})
}

func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exitcode": exitCode,
			"flip":     flip,
		},
	})
}
