package labcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/simulate"
)

// newSimulate is `refit-lab simulate`.
func newSimulate() *cobra.Command {
	var o simulate.Options
	var result, controller string
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Update many simulated nodes through a real API server and measure",
		Long: `Start a real etcd and kube-apiserver, the real controller in a process of its own,
		and simulated nodes that use the real API. Plug in a bundle, approve it, update every
		node within the budget, and kill the controller in the middle.

		Print the measurements: API writes per node, the controller's memory, the time of its
		decisions, and the wall time against the bound (nodes / budget * mean). The limit of
		decisions is on their processor time; their wall time is only shown. Needs no root without --huge-pages.

Exit codes: 0 every limit was kept, 5 one was missed (the result says which).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger(logr.Discard()) // the servers' starter and the watches have nothing to say to people
			if err := complete(cmd.Context(), &o, controller, cmd.ErrOrStderr()); err != nil {
				return console.WithExit(console.ExitBlocked, err)
			}
			r, err := simulate.Run(cmd.Context(), o)
			if err == nil {
				_ = os.RemoveAll(o.Dir)
			} else {
				fmt.Fprintln(cmd.ErrOrStderr(), "the controller's log is in "+o.Dir)
			}
			return printSimulation(cmd.OutOrStdout(), result, r, err)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Nodes, "nodes", 300, "number of simulated nodes")
	f.IntVar(&o.Budget, "budget", 0, "how many of them may be unavailable at once (default a twentieth)")
	f.DurationVar(&o.Mean, "mean", 45*time.Second, "how long a node takes for its steps, on average")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of every node's own time")
	f.BoolVar(&o.Restart, "restart", true, "kill the controller when half of the nodes are done")
	f.BoolVar(&o.HugePages, "huge-pages", false, "set transparent huge pages of this machine to always for the run (root)")
	f.StringVar(&result, "result", "", "write what was measured to this file as JSON, too; a run that fails writes FILE.failed")
	f.StringVar(&controller, "controller", "", "the controller's program (default refit-controller in the directory of this one)")
	return c
}

// complete finds what a run needs.
func complete(ctx context.Context, o *simulate.Options, controller string, out io.Writer) error {
	if o.Budget == 0 {
		o.Budget = max(1, o.Nodes/20)
	}
	if controller == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		controller = filepath.Join(filepath.Dir(self), "refit-controller")
	}
	if _, err := os.Stat(controller); err != nil {
		return fmt.Errorf("the controller's program: %w; `make build` makes it, --controller names another", err)
	}
	o.Controller = func(kubeconfig, metrics string) *exec.Cmd {
		return exec.Command(controller, "-kubeconfig", kubeconfig, "-metrics-address", metrics, "-health-address", "0", "-identity", "simulated")
	}
	versions := components.Versions()
	release, err := components.Release(ctx, versions[len(versions)-1], func(line string) { fmt.Fprintln(out, line) })
	if err != nil {
		return err
	}
	o.BinDir, o.Out, o.Commit = release.BinDir, out, commit()
	o.Dir, err = os.MkdirTemp("", "refit-simulate-")
	return err
}

// commit this program was built from, as far as the build knows it.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = " with changes"
			}
		}
	}
	if revision == "" { // a build without the revision: use the one of the measured tree
		out, _ := exec.Command("git", "rev-parse", "HEAD").Output()
		revision = string(out)
	}
	return strings.TrimSpace(strings.TrimSpace(revision) + modified)
}

func printSimulation(out io.Writer, file string, r simulate.Result, err error) error {
	text, jerr := json.MarshalIndent(r, "", "  ")
	if jerr != nil {
		return jerr
	}
	text = append(text, '\n')
	if file != "" {
		if err != nil || !r.OK { // the file may hold a run that kept every limit
			file += ".failed"
		}
		if werr := os.WriteFile(file, text, 0o644); werr != nil {
			return werr
		}
	}
	if _, werr := out.Write(text); werr != nil {
		return werr
	}
	if err != nil {
		return console.WithExit(console.ExitFailed, err)
	}
	if !r.OK {
		return console.WithExit(console.ExitFailed, fmt.Errorf("limits were missed: %s", strings.Join(r.Problems, "; ")))
	}
	return nil
}
