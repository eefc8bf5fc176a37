package updatecmd

import (
	"context"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/render"
)

// rehearseRestore has the node's agent rehearse a restore, and shows its result.
func (d *drillCommand) rehearseRestore(ctx context.Context) error {
	if !render.Known(d.output) {
		return console.UsageError(fmt.Errorf("-o %s is not known: use table, wide, json or yaml", d.output))
	}
	c, err := d.Client()
	if err != nil {
		return err
	}
	return d.requestRestore(ctx, c)
}

func (d *drillCommand) requestRestore(ctx context.Context, c client.Client) error {
	var nu v1alpha1.NodeUpdate
	key := client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: d.node}
	if err := c.Get(ctx, key, &nu); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return console.UsageError(fmt.Errorf("node %q has no agent of refit; see kubectl get nodeupdates -n %s", d.node, v1alpha1.NodesNamespace))
		}
		return fmt.Errorf("the API server did not answer: %w", err)
	}
	if err := d.confirmRestore(ctx); err != nil {
		return err
	}
	id := time.Now().UTC().Format("20060102T150405.000Z")
	patch := client.MergeFrom(nu.DeepCopy())
	if nu.Annotations == nil {
		nu.Annotations = map[string]string{}
	}
	nu.Annotations[v1alpha1.AnnotationRestoreDrill] = id
	if err := c.Patch(ctx, &nu, patch); err != nil {
		return fmt.Errorf("request the rehearsal of node %s: %w", d.node, err)
	}
	d.Note("rehearsal %s: requested from the agent of node %s", id, d.node)
	return d.awaitRestore(ctx, c, key, id)
}

func (d *drillCommand) confirmRestore(ctx context.Context) error {
	if d.yes {
		return nil
	}
	if err := console.RequireTerminal(os.Stdin, "refit drill --restore asks before it writes on a node"); err != nil {
		return err
	}
	return console.Confirm(ctx, os.Stdin, d.Err, fmt.Sprintf("Restore the newest snapshot of node %s into a scratch directory there, read it, and remove it?", d.node))
}

// awaitRestore waits until the agent has reported this rehearsal.
func (d *drillCommand) awaitRestore(ctx context.Context, c client.Client, key client.ObjectKey, id string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	for ctx.Err() == nil {
		var nu v1alpha1.NodeUpdate
		if err := c.Get(ctx, key, &nu); err == nil && nu.Status.RestoreDrill != nil && nu.Status.RestoreDrill.ID == id {
			return d.showRestore(nu.Status.RestoreDrill)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return console.WithExit(console.ExitInProgress, fmt.Errorf("the agent of node %s has not reported the rehearsal after %s; older agents do not know it: see refit status --nodes", d.node, d.timeout))
}

func (d *drillCommand) showRestore(r *v1alpha1.RestoreDrill) error {
	v := render.RestoreDrillView{APIVersion: "refit.dev/drill/v1", Kind: "RestoreDrill", Node: d.node, Restored: r.Problem == nil, Result: r}
	if err := render.RestoreDrill(d.Out, d.output, v); err != nil {
		return err
	}
	switch {
	case r.Problem == nil:
		return nil
	case r.Problem.Reason == v1alpha1.ReasonSnapshotUnusable:
		return console.SilentExit(console.ExitFailed)
	}
	return console.SilentExit(console.ExitBlocked)
}
