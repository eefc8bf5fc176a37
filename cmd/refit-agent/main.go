// Command refit-agent is refit's host service on a node.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/bootimagecheck"
	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/install"
	"github.com/refit-dev/refit/internal/agent/service"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/text"
)

// Exit codes, the same as those of refit.
const (
	exitInternal     = 1
	exitUsage        = 2
	exitBlocked      = 3
	exitInProgress   = 4
	exitFailed       = 5
	exitVerification = 6
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	fsutil.LabelFiles("/")
	c := root()
	c.SetOut(text.CleanWriter(os.Stdout)) // names of bundles and devices must not reach a terminal raw
	c.SetErr(text.CleanWriter(os.Stderr))
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		if !errors.As(err, new(answerError)) {
			fmt.Fprintln(c.ErrOrStderr(), "refit-agent:", err)
		}
		os.Exit(exitCode(err))
	}
}

// usageError is a wrong call of the command.
type usageError struct{ error }

func exitCode(err error) int {
	var usage usageError
	var wrong *install.WrongBundleError
	var refused *bootimagecheck.RefusedError
	var undetected undetectedError
	var answer answerError
	switch {
	case errors.As(err, &answer):
		return answer.code
	case errors.As(err, &refused), errors.As(err, &undetected):
		return exitBlocked
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &wrong), isCorrupt(err):
		return exitVerification
	}
	return exitInternal
}

func root() *cobra.Command {
	var conf agentconfig.Config
	var file string
	c := &cobra.Command{Use: "refit-agent", Short: "Run refit's host service on a node", SilenceUsage: true, SilenceErrors: true}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.PersistentFlags()
	f.StringVar(&file, "config", env("REFIT_CONFIG", agentconfig.DefaultFile), "configuration file")
	f.StringVar(&conf.Node, "node", env("REFIT_NODE", ""), "this node's name (default: that of the kubelet's certificate)")
	f.StringVar(&conf.Kubeconfig, "kubeconfig", env("REFIT_KUBECONFIG", ""), "kubeconfig of the node's identity (default: the kubelet's)")
	f.StringVar(&conf.StateDir, "state-dir", env("REFIT_STATE_DIR", ""), "directory of the state (default "+agentconfig.DefaultStateDir+")")
	f.StringVar(&conf.Runtime, "runtime", env("REFIT_RUNTIME", ""), "the container runtime's socket (default: the kubelet's)")
	f.StringVar(&conf.Address, "address", env("REFIT_ADDRESS", ""), fmt.Sprintf("address for peers, host or host:port (default: towards the API server, port %d)", agentconfig.DefaultPort))
	load := func() agentconfig.Config { return merged(file, conf) }
	c.AddCommand(runCommand(load, func() string { return file }), installCommand(&conf), uninstallCommand(load), statusCommand(load), versionCommand(), keepCommand(), firstBootCommand(), preflightCommand(load), detectCommand(), contentsCommand(), deltaCommand(), exchangeCommand(load))
	return c
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// merged is the file with the values of flags.
func merged(file string, over agentconfig.Config) agentconfig.Config {
	c := agentconfig.ReadOrRecover(file)
	for _, f := range []struct{ to, from *string }{
		{&c.Node, &over.Node}, {&c.Kubeconfig, &over.Kubeconfig}, {&c.StateDir, &over.StateDir},
		{&c.Runtime, &over.Runtime}, {&c.Address, &over.Address},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	return c
}

func runCommand(load func() agentconfig.Config, file func() string) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the host service", Args: cobra.NoArgs,
		Long: `Run the host service. systemd runs this command; run it by hand only to debug it.

The configuration file is YAML with the fields node, kubeconfig, stateDir, runtime,
address, media (more files and devices to read), devices (more devices to accept
than removable ones and USB: patterns of names, paths, or all) and noDevices. Two
more show the state of this node: statusPage (HOST or HOST:PORT of a page for
browsers) and console (true: above the login prompt). Flags and REFIT_... variables
take precedence.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf := load()
			armFailpoints(conf)
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if len(conf.Problems) == 0 {
				if err := agentconfig.SaveLastValid(file()); err != nil {
					log.Warn("failed to save a copy of the configuration", "error", err)
				}
			}
			return service.Run(cmd.Context(), conf, log)
		},
	}
}

func say(w io.Writer) func(string, ...any) {
	return func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
}

func installCommand(conf *agentconfig.Config) *cobra.Command {
	o := install.Options{}
	var ontoHost, stay bool
	c := &cobra.Command{
		Use: "install [--from FILE|DEVICE]", Short: "Install the agent on this machine: binary, unit, and refit's image from a bundle", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ontoHost {
				return installOntoHost(cmd, stay)
			}
			o.Config, o.Printf = *conf, say(cmd.ErrOrStderr())
			r, err := install.Install(cmd.Context(), o)
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), r)
		},
	}
	c.Flags().StringVar(&o.From, "from", "", "bundle in a file, on a device, or in the file system of one (PATH#FILE if it has several bundles). Of a bundle in parts: their directory, or places with commas between them")
	c.Flags().StringVar(&o.Digest, "digest", "", "digest that the bundle must have")
	c.Flags().StringVar(&o.ImagePolicy, "image-policy", "", "file with rules for signatures (an ImageProofPolicy, as for refit bundle create --verify): images that it refuses are not loaded")
	c.Flags().BoolVar(&o.NoStart, "no-start", false, "install the files without starting the service")
	c.Flags().BoolVar(&ontoHost, "onto-host", false, "from a privileged pod with hostPID: install onto its node")
	c.Flags().BoolVar(&stay, "stay", false, "with --onto-host: wait for the end of the pod afterwards")
	return c
}

// installOntoHost is the command of the DaemonSet.
func installOntoHost(cmd *cobra.Command, stay bool) error {
	if err := install.OnHost(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
		return err
	}
	if stay {
		<-cmd.Context().Done()
	}
	return nil
}

func uninstallCommand(load func() agentconfig.Config) *cobra.Command {
	o := install.Removal{}
	c := &cobra.Command{
		Use: "uninstall", Short: "Remove the agent and its state", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Config, o.Printf = load(), say(cmd.ErrOrStderr())
			for _, p := range o.Config.Problems {
				o.Printf("%s", p.Message)
			}
			return install.Uninstall(cmd.Context(), o)
		},
	}
	c.Flags().BoolVar(&o.Unpin, "unpin", false, "unpin the images that refit pinned")
	c.Flags().BoolVar(&o.KeepState, "keep-state", false, "keep the state directory")
	return c
}

// patience is how long the command reports to the cluster that this machine was refused.
const patience = 100 * time.Second

// firstBootCommand is the command of refit-first-boot.service.
func firstBootCommand() *cobra.Command {
	var root string
	c := &cobra.Command{
		Use: "first-boot", Short: "Check that this machine's boot image is new enough to join", Args: cobra.NoArgs,
		Long: `Compare the image that this machine was started from with the limits in
` + convert.LimitsPath + `, before it joins.

Without limits, or if the image meets them, the exit code is 0, and the command
removes the limits: it checks them once. If the image does not meet them, or they
are unreadable, the exit code is 3. Units that need refit-first-boot.service then do
not start, and the console shows the reason.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bootimagecheck.Check(cmd.Context(), bootimagecheck.Options{Root: root, Now: time.Now, Out: cmd.OutOrStdout(), Patience: patience})
		},
	}
	c.Flags().StringVar(&root, "root", "", "check the machine with this root directory")
	return c
}

// keepCommand runs a command that must outlive the agent.
func keepCommand() *cobra.Command {
	var log, result string
	c := &cobra.Command{
		Use: "keep --log FILE --result FILE -- COMMAND...", Short: "Run a command, and save its output and its exit status", Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			// A signal to this process must not end the command.
			return systemd.RecordCommand(cmd.Context(), log, result, argv)
		},
	}
	c.Flags().StringVar(&log, "log", "", "file for the output")
	c.Flags().StringVar(&result, "result", "", "file for the exit status")
	return c
}

// exchangeCommand runs in a unit of its own while the agent replaces a control plane, so
// that a kubelet it has stopped is started again also if the agent dies.
func exchangeCommand(load func() agentconfig.Config) *cobra.Command {
	return &cobra.Command{
		Use: "exchange FILE", Short: "Replace files of a node together", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf := load()
			armFailpoints(conf)
			x, err := kubeadm.ReadExchange(args[0])
			if err != nil {
				return err
			}
			return service.RunExchange(cmd.Context(), conf, x)
		},
	}
}

// contentsCommand is started by the agent, without rights, to parse file systems and unverified headers.
func contentsCommand() *cobra.Command {
	return &cobra.Command{
		Use: bundlestore.ContentsCommand, Short: "Find the bundles on a medium for the agent", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bundlestore.ReadContents(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

// deltaCommand is started by the agent, without rights, to apply patches of unverified deltas.
func deltaCommand() *cobra.Command {
	return &cobra.Command{
		Use: bundlestore.DeltaCommand, Short: "Read a delta bundle for the agent", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bundlestore.ReadDelta(cmd.Context(), cmd.InOrStdin(), text.RawWriter(cmd.OutOrStdout())) // bytes, not text
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "refit-agent %s (%s)\n", componentversion.Refit(), componentversion.Commit())
			return err
		},
	}
}

func printJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v) // one line: refit install shows the last line of ssh
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
