package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/refit-dev/refit/internal/cli/bundlecmd"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/imagecmd"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/cli/installcmd"
	"github.com/refit-dev/refit/internal/cli/tagscmd"
	"github.com/refit-dev/refit/internal/cli/updatecmd"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

// options that every command shares.
type options struct {
	inputs.Access
	output string
}

// New returns the root command. name is refit, or "kubectl refit" as a plug-in.
func New(name string) *cobra.Command {
	return rootOf(name, &options{Access: inputs.Access{Out: os.Stdout, Err: os.Stderr}})
}

// rootOf returns the root command. All output goes through the writer that escapes
// control characters: names and messages are not refit's own.
func rootOf(name string, o *options) *cobra.Command {
	o.Out, o.Err = text.CleanWriter(o.Out), text.CleanWriter(o.Err)
	root := &cobra.Command{
		Use:   name,
		Short: "Update the nodes of a Kubernetes cluster in place, from a bundle, without a registry",
		Long: `Update the nodes of a Kubernetes cluster in place, from a bundle, without a registry.

refit status shows the progress and the next action. refit explain WORD explains a
reason word. Ending a command does not stop an update.

Exit codes: 0 done, 1 error, 2 wrong call, 3 a person must act, 4 in progress,
5 halted, 6 verification failed, 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
	}
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return console.UsageError(err) })
	pf := root.PersistentFlags()
	pf.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "path of the kubeconfig (default $KUBECONFIG, then ~/.kube/config)")
	pf.StringVar(&o.Context, "context", "", "context of the kubeconfig")
	group(root, "site", "At a site, in this order (install, approve, plan, apply, status):",
		installcmd.New(&o.Access), newApprove(o), newPlan(o), newApply(o), newStatus(o))
	group(root, "update", "While an update waits or runs:",
		append(updatecmd.New(&o.Access), newGate(o), newExplain(o), newLogs(o), newRollback(o))...)
	group(root, "make", "Bundles, images and configuration:",
		bundlecmd.New(&o.Access), bundlecmd.NewInventory(&o.Access), bundlecmd.NewKeys(), tagscmd.New(&o.Access), imagecmd.New(&o.Access), imagecmd.NewConfig(&o.Access), imagecmd.NewBoot(&o.Access), newSelfImage(o))
	group(root, "more", "More:", updatecmd.NewDrill(&o.Access), updatecmd.NewReceipt(&o.Access), updatecmd.NewReceipts(&o.Access), newSupport(o), newDocs(o), installcmd.NewMonitoring(&o.Access), installcmd.NewUninstall(&o.Access), newVersion(o))
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	fitHelp(root)
	completeNames(root, &o.Access)
	return root
}

// group adds commands under a heading of the help.
func group(root *cobra.Command, id, title string, all ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range all {
		c.GroupID = id
	}
	root.AddCommand(all...)
}

// interrupted is the message of a command that a signal ended.
const interrupted = "interrupted; a started update continues in the cluster. `refit status` shows it."

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second signal ends a command that hangs
	klog.SetLogger(logr.Discard()) // the client library's log is neither result nor progress
	name := "refit"
	if strings.HasPrefix(filepath.Base(args[0]), "kubectl-") {
		name = "kubectl refit"
	}
	return console.Execute(ctx, New(name), args[1:], interrupted)
}

// outputFlag adds -o to a command.
func (o *options) outputFlag(c *cobra.Command) {
	c.Flags().StringVarP(&o.output, "output", "o", render.Table, "table, wide, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{render.Table, render.Wide, render.JSON, render.YAML}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *options) checkOutput() error {
	if !render.Known(o.output) {
		return console.UsageError(fmt.Errorf("-o %s is not known: use table, wide, json or yaml", o.output))
	}
	return nil
}
