package updatecmd

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/render"
	"github.com/refit-dev/refit/internal/text"
)

type drillCommand struct {
	*inputs.Access
	node, output string
	run, yes     bool
	restore      bool
	timeout      time.Duration
}

// NewDrill returns the command.
func NewDrill(a *inputs.Access) *cobra.Command {
	d := &drillCommand{Access: a}
	c := &cobra.Command{
		Use:   "drill --node NODE",
		Short: "Rehearse a power cut, or a restore of the datastore",
		Long: `Predict whether a node would recover by itself from a power cut that destroys its
container runtime's store, without registry, network and peers. Show its pinned
images, its local copies, the missing images and the peers that have them, and
images of its pods that are in no list.

With --run, prove it after a question: the node restarts at once, without a drain.
Before its kubelet starts, the agent removes every pinned image from the runtime,
restores it from the local copy, and compares every file. The node's pods are
unavailable meanwhile. The command does not restart a node that would not recover.

With --restore, rehearse a restore of the datastore after a question. On the node, the
agent restores the newest snapshot that an update left into a scratch directory, reads
every page of it, counts its objects, and removes it. The running datastore is not
touched, and no program is started.

Exit codes: 0 it would recover, or did; 3 it would not, or there was no yes; 4 it has
not recovered yet; 5 it recovered without some images. With --restore: 0 restored; 3 the
node has no snapshot, no room or an update, or there was no yes; 4 no answer yet; 5 the
snapshot is not usable.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.restore {
				return d.rehearseRestore(cmd.Context())
			}
			return d.showDrill(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&d.node, "node", "", "the node")
	f.BoolVar(&d.run, "run", false, "restart the node without its images, and wait until it recovers")
	f.BoolVar(&d.restore, "restore", false, "rehearse a restore of the newest snapshot of etcd or SQLite, in a scratch directory of the node")
	f.BoolVarP(&d.yes, "yes", "y", false, "with --run or --restore: do not ask")
	f.DurationVar(&d.timeout, "timeout", 15*time.Minute, "with --run or --restore: how long to wait for the node")
	f.StringVarP(&d.output, "output", "o", render.Table, "table, wide, json or yaml")
	_ = c.MarkFlagRequired("node")
	c.MarkFlagsMutuallyExclusive("run", "restore")
	return c
}

func (d *drillCommand) showDrill(ctx context.Context) error {
	if !render.Known(d.output) {
		return console.UsageError(fmt.Errorf("-o %s is not known: use table, wide, json or yaml", d.output))
	}
	c, err := d.Client()
	if err != nil {
		return err
	}
	f, nu, err := gatherStartFacts(ctx, c, d.node)
	if err != nil {
		return err
	}
	v := newDrillView(f, nu)
	if !v.ComesBack || !d.run {
		if err := render.Drill(d.Out, d.output, v); err != nil {
			return err
		}
		if !v.ComesBack {
			return console.SilentExit(console.ExitBlocked)
		}
		return nil
	}
	if err := d.confirm(ctx, v); err != nil {
		return err
	}
	return d.runDrill(ctx, c, nu, v)
}

// newDrillView returns the prediction.
func newDrillView(f pin.StartFacts, nu *v1alpha1.NodeUpdate) render.DrillView {
	v := render.DrillView{APIVersion: "refit.dev/drill/v1", Kind: "Drill", Node: f.Node, StartForecast: pin.PredictStart(f)}
	if nu != nil {
		v.LastStart = nu.Status.ColdStart
	}
	return v
}

func (d *drillCommand) confirm(ctx context.Context, v render.DrillView) error {
	if d.yes {
		return nil
	}
	if err := console.RequireTerminal(os.Stdin, "refit drill --run asks before it restarts a node"); err != nil {
		return err
	}
	if err := render.Drill(d.Err, render.Table, v); err != nil {
		return err
	}
	return console.Confirm(ctx, os.Stdin, d.Err, fmt.Sprintf("\nRestart node %s now, without a drain, and remove %s from its runtime?", v.Node, text.Count(len(v.Images), "image")))
}

// runDrill requests the drill from the node's agent, and waits until the node recovers.
func (d *drillCommand) runDrill(ctx context.Context, c client.Client, nu *v1alpha1.NodeUpdate, v render.DrillView) error {
	begin := time.Now()
	id := begin.UTC().Format("20060102T150405Z")
	patch := client.MergeFrom(nu.DeepCopy())
	if nu.Annotations == nil {
		nu.Annotations = map[string]string{}
	}
	nu.Annotations[v1alpha1.AnnotationDrill] = id
	if err := c.Patch(ctx, nu, patch); err != nil {
		return fmt.Errorf("request the drill of node %s: %w", d.node, err)
	}
	d.Note("drill %s: requested a restart of node %s without its images", id, d.node)
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	for ctx.Err() == nil {
		if d.hasRecovered(ctx, c, id, &v) {
			v.Proof.Seconds = time.Since(begin).Seconds()
			if err := render.Drill(d.Out, d.output, v); err != nil {
				return err
			}
			if v.LastStart.Missing > 0 {
				return console.SilentExit(console.ExitFailed)
			}
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return console.WithExit(console.ExitInProgress, fmt.Errorf("node %s has not recovered after %s; `refit drill --node %s` shows its state", d.node, d.timeout, d.node))
}

// hasRecovered reports whether the node has reported the drill and is Ready in another boot.
func (d *drillCommand) hasRecovered(ctx context.Context, c client.Client, id string, v *render.DrillView) bool {
	var n corev1.Node
	var nu v1alpha1.NodeUpdate
	// The API server may be on this very node.
	if c.Get(ctx, client.ObjectKey{Name: d.node}, &n) != nil || c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: d.node}, &nu) != nil {
		return false
	}
	s := nu.Status.ColdStart
	if s == nil || s.Drill != id || s.CheckedBoot != n.Status.NodeInfo.BootID {
		return false
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			v.LastStart, v.Proof = s, &render.DrillProof{ID: id, BootID: s.CheckedBoot}
			return true
		}
	}
	return false
}
