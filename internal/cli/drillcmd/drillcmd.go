package drillcmd

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/confirm"
	"github.com/refit-dev/refit/internal/cli/exit"
	"github.com/refit-dev/refit/internal/pipeline/pin"
	"github.com/refit-dev/refit/internal/render"
)

type drill struct {
	*cluster.Access
	node, output string
	run, yes     bool
	timeout      time.Duration
}

// New makes the command.
func New(a *cluster.Access) *cobra.Command {
	d := &drill{Access: a}
	c := &cobra.Command{
		Use:   "drill --node NODE",
		Short: "Say whether a node would come back by itself after a power cut, and prove it",
		Long: `Say whether a node would come back by itself if its power were cut and its
container runtime's store were lost, with no registry, no network and no neighbour:
what it holds and pins, of what it has a copy of its own, what it would lack and
which neighbour has it, and which images of its pods are in no list.

With --run it is proved, after a question: the node restarts at once, without a
drain; before its kubelet starts, every held image is taken out
of its runtime and put back from the node's own copy, and every file of them is
compared. Pods of the node are away for that time. A node that would not come back is
not touched.

Exit codes: 0 it would come back, or did; 3 it would not, or nobody said yes;
4 it is not back yet; 5 it came back without some images.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.do(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&d.node, "node", "", "the node")
	f.BoolVar(&d.run, "run", false, "restart the node without its images, and see it come back")
	f.BoolVarP(&d.yes, "yes", "y", false, "with --run: do not ask")
	f.DurationVar(&d.timeout, "timeout", 15*time.Minute, "with --run: how long to wait for the node")
	f.StringVarP(&d.output, "output", "o", render.Table, "table, wide, json or yaml")
	_ = c.MarkFlagRequired("node")
	return c
}

func (d *drill) do(ctx context.Context) error {
	if !render.Known(d.output) {
		return exit.Usage(fmt.Errorf("-o %s is not known: use table, wide, json or yaml", d.output))
	}
	c, err := d.Client()
	if err != nil {
		return err
	}
	f, nu, err := gather(ctx, c, d.node)
	if err != nil {
		return err
	}
	v := view(f, nu)
	if !v.ComesBack || !d.run {
		if err := render.Drill(d.Out, d.output, v); err != nil {
			return err
		}
		if !v.ComesBack {
			return exit.Silent(exit.Blocked)
		}
		return nil
	}
	if err := d.confirm(ctx, v); err != nil {
		return err
	}
	return d.prove(ctx, c, nu, v)
}

// view is what is said beforehand.
func view(f pin.StartFacts, nu *v1alpha1.NodeUpdate) render.DrillView {
	v := render.DrillView{APIVersion: "refit.dev/drill/v1", Kind: "Drill", Node: f.Node, Start: pin.Foretell(f)}
	if nu != nil {
		v.LastStart = nu.Status.ColdStart
	}
	return v
}

func (d *drill) confirm(ctx context.Context, v render.DrillView) error {
	if d.yes {
		return nil
	}
	if err := confirm.Terminal(os.Stdin, "refit drill --run asks before it restarts a node"); err != nil {
		return err
	}
	if err := render.Drill(d.Err, render.Table, v); err != nil {
		return err
	}
	return confirm.Yes(ctx, os.Stdin, d.Err, fmt.Sprintf("\nRestart node %s now, without a drain, and take its %d images out of its runtime?", v.Node, len(v.Images)))
}

// prove asks the node's agent for the drill, and waits until the node is back.
func (d *drill) prove(ctx context.Context, c client.Client, nu *v1alpha1.NodeUpdate, v render.DrillView) error {
	begin := time.Now()
	id := begin.UTC().Format("20060102T150405Z")
	patch := client.MergeFrom(nu.DeepCopy())
	if nu.Annotations == nil {
		nu.Annotations = map[string]string{}
	}
	nu.Annotations[v1alpha1.AnnotationDrill] = id
	if err := c.Patch(ctx, nu, patch); err != nil {
		return fmt.Errorf("asking node %s for the drill: %w", d.node, err)
	}
	d.Note("drill %s: node %s is asked to restart without its images", id, d.node)
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	for ctx.Err() == nil {
		if d.back(ctx, c, id, &v) {
			v.Proof.Seconds = time.Since(begin).Seconds()
			if err := render.Drill(d.Out, d.output, v); err != nil {
				return err
			}
			if v.LastStart.Missing > 0 {
				return exit.Silent(exit.Failed)
			}
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return exit.With(exit.InProgress, fmt.Errorf("node %s is not back after %s; `refit drill --node %s` shows what is known of it", d.node, d.timeout, d.node))
}

// back reports whether the node has told of the drill and is Ready in another boot.
func (d *drill) back(ctx context.Context, c client.Client, id string, v *render.DrillView) bool {
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
