package labcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

type demoFlags struct {
	name, from, to, result string
	controlPlane, cast     string
	nodes, controlPlanes   int
	keep                   bool
}

// newDemo is `refit-lab demo`.
func newDemo() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo",
		Short: "Update a real cluster in place from one USB stick, without a registry",
		Long: `Create a cluster with real kubeadm at the older release and a running workload.
		Insert a USB stick with a bundle of the newer release into one node, and approve it.
		The nodes load, spread and pin it. Then update every node, and print the measurements.
		Needs root.

Exit codes: 0 everything was as promised, 5 something was not (the result says what).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd, f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "demo", "name of the lab")
	fl.StringVar(&f.from, "from", "v1.35.4", "release the cluster starts at")
	fl.StringVar(&f.to, "to", "v1.36.3", "release the stick brings")
	fl.IntVar(&f.nodes, "nodes", 3, "number of nodes, the first with the control plane")
	fl.IntVar(&f.controlPlanes, "control-planes", 1, "how many of them run the control plane")
	fl.StringVar(&f.controlPlane, "control-plane", "", "how the control plane is replaced, as spec.controlPlane of an UpdatePool: Together or Kubeadm (default: no pool)")
	fl.StringVar(&f.result, "result", "", "write what was measured to this file as JSON")
	fl.StringVar(&f.cast, "cast", "", "record what is printed, with its times, to this file, for asciinema (asciicast v2)")
	fl.BoolVar(&f.keep, "keep", false, "leave the lab running")
	return c
}

func demo(cmd *cobra.Command, f demoFlags) error {
	ctx := cmd.Context()
	if err := lab.Preflight(); err != nil {
		return console.WithExit(console.ExitBlocked, err)
	}
	screen, end, err := recordTo(f.cast, cmd.ErrOrStderr(), fmt.Sprintf("refit-lab demo: %d nodes move from %s to %s", f.nodes, f.from, f.to))
	if err != nil {
		return console.UsageError(err)
	}
	s, err := scenario.New(scenario.Options{Name: f.name, From: f.from, To: f.to, Nodes: f.nodes, ControlPlanes: f.controlPlanes, ControlPlane: v1alpha1.ControlPlaneMethod(f.controlPlane), MediumNode: fmt.Sprintf("n%d", min(2, f.nodes)), Out: screen})
	if err != nil {
		return console.WithExit(console.ExitBlocked, errors.Join(err, end()))
	}
	r, err := s.Play(ctx)
	if err == nil {
		s.Show(ctx)
	}
	if !f.keep {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		err = errors.Join(err, s.Close(down))
	}
	err = errors.Join(err, end())
	if err != nil {
		r.OK = false
		r.Problems = append(r.Problems, err.Error())
	}
	return demoResult(cmd.OutOrStdout(), f.result, r, err)
}

func demoResult(out io.Writer, file string, r scenario.Result, err error) error {
	text, jerr := json.MarshalIndent(r, "", "  ")
	if jerr != nil {
		return jerr
	}
	text = append(text, '\n')
	if file != "" {
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
		return console.WithExit(console.ExitFailed, fmt.Errorf("not as promised: %v", r.Problems))
	}
	return nil
}
