package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/refit-dev/refit/internal/cli/bootcmd"
	"github.com/refit-dev/refit/internal/cli/bundlecmd"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/configcmd"
	"github.com/refit-dev/refit/internal/cli/drillcmd"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/cli/imagecmd"
	"github.com/refit-dev/refit/internal/cli/installcmd"
	"github.com/refit-dev/refit/internal/cli/labcmd"
	"github.com/refit-dev/refit/internal/cli/steer"
	"github.com/refit-dev/refit/internal/cli/tagscmd"
	"github.com/refit-dev/refit/internal/cli/trackscmd"
	"github.com/refit-dev/refit/internal/render"
)

// options that every command shares.
type options struct {
	cluster.Access
	output string
}

// New is the root command. name is the name it is called by: refit, or
// "kubectl refit" as a plug-in.
func New(name string) *cobra.Command {
	return rootOf(name, &options{Access: cluster.Access{Out: os.Stdout, Err: os.Stderr}})
}

func rootOf(name string, o *options) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         "Update the nodes of a Kubernetes cluster in place, from a bundle, without a registry",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usage(err) })
	pf := root.PersistentFlags()
	pf.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "path of the kubeconfig (default $KUBECONFIG, then ~/.kube/config)")
	pf.StringVar(&o.Context, "context", "", "context of the kubeconfig")
	tags := tagscmd.New(&o.Access)
	tags.AddCommand(trackscmd.New(&o.Access)...)
	root.AddCommand(
		installcmd.New(&o.Access), installcmd.NewUninstall(&o.Access), newApprove(o), newPlan(o), newApply(o), newStatus(o),
		newRollback(o), newExplain(o), newGate(o), newVersion(o), newSelfImage(o),
		bundlecmd.New(&o.Access), bundlecmd.NewKeys(), bootcmd.New(&o.Access), configcmd.New(&o.Access), drillcmd.New(&o.Access), imagecmd.New(&o.Access), tags,
	)
	root.AddCommand(steer.New(&o.Access)...)
	labs := labcmd.New()
	labs.AddCommand(newDemo(o))
	root.AddCommand(labs)
	return root
}

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	klog.SetLogger(logr.Discard()) // the client library's own log is no answer and no progress
	name := "refit"
	if strings.HasPrefix(filepath.Base(args[0]), "kubectl-") {
		name = "kubectl refit"
	}
	root := New(name)
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exit.OK
	}
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "interrupted; what was started in the cluster goes on. `refit status` shows it.")
		return exit.Interrupted
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(os.Stderr, "error: "+msg)
	}
	if isUsage(err) {
		fmt.Fprintln(os.Stderr, "see: refit --help")
		return exit.UsageCode
	}
	return exit.Code(err)
}

// isUsage reports whether cobra itself refused the arguments.
func isUsage(err error) bool {
	var coded *exit.Error
	if errors.As(err, &coded) {
		return coded.Code == exit.UsageCode
	}
	for _, p := range []string{"unknown command", "unknown flag", "accepts ", "requires ", "required flag", "invalid argument"} {
		if strings.HasPrefix(err.Error(), p) {
			return true
		}
	}
	return false
}

// outputFlag adds -o to a command.
func (o *options) outputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&o.output, "output", "o", render.Table, "table, wide, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{render.Table, render.Wide, render.JSON, render.YAML}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *options) checkOutput() error {
	if !render.Known(o.output) {
		return exit.Usage(fmt.Errorf("-o %s is not known: use table, wide, json or yaml", o.output))
	}
	return nil
}
