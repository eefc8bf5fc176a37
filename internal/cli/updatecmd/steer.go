package updatecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientretry "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
)

// New makes the verbs.
func New(a *cluster.Access) []*cobra.Command {
	return []*cobra.Command{newPause(a, true), newPause(a, false), newRetry(a), newHold(a), newRelease(a), newAccept(a), newDrainOptions(a)}
}

func newPause(a *cluster.Access, pause bool) *cobra.Command {
	use, short, said := "resume [UPDATE]", "Let a paused update go on", "resumed"
	long := "Let a paused update go on."
	if pause {
		use, short = "pause [UPDATE]", "Start no further node; one that has started is finished"
		said = "paused: no further node starts; nodes that are being updated are finished first"
		long = "Start no further node. A node that has started is finished, so this is also how to stop after\nthe current node. A pool is paused by its own spec.paused, a single node by refit hold."
	}
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Change(cmd.Context(), a, args, func(u *v1alpha1.ClusterUpdate) (string, error) {
				u.Spec.Paused = pause
				return said, nil
			})
		},
	}
}

func newRetry(a *cluster.Access) *cobra.Command {
	var node string
	c := &cobra.Command{
		Use: "retry [UPDATE]", Short: "Try failed nodes again, all of them or one", Args: cobra.MaximumNArgs(1),
		Long: `Try failed nodes of an update again: all of them, or with --node one. Each is tried
as often as its pool's attempts say. A node that has not failed is left alone.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return Change(cmd.Context(), a, args, func(u *v1alpha1.ClusterUpdate) (string, error) { return retry(u, node) })
		},
	}
	c.Flags().StringVar(&node, "node", "", "try only this node again")
	return c
}

// retry raises the retry of an update, or of one node of it.
func retry(u *v1alpha1.ClusterUpdate, node string) (string, error) {
	if u.Status.Phase == v1alpha1.PhaseDone {
		return "", exit.Usage(fmt.Errorf("ClusterUpdate %s is done: there is nothing to try again", u.Name))
	}
	if node == "" {
		u.Spec.Retry++
		return "failed nodes are tried again", nil
	}
	for i := range u.Spec.RetryNodes {
		if u.Spec.RetryNodes[i].Name == node {
			u.Spec.RetryNodes[i].Retry++
			return "node " + node + " is tried again if it has failed", nil
		}
	}
	u.Spec.RetryNodes = append(u.Spec.RetryNodes, v1alpha1.NodeRetry{Name: node, Retry: 1})
	return "node " + node + " is tried again if it has failed", nil
}

// Change edits one update, the named one or the one that matters most, and says
// what was done.
func Change(ctx context.Context, a *cluster.Access, args []string, edit func(*v1alpha1.ClusterUpdate) (string, error)) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	name, said, err := change(ctx, c, args, edit)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s %s\n", name, said)
	return nil
}

// change edits what is there now: a list is written whole, so nothing is written
// over what somebody else has changed meanwhile, and the controller, which writes a
// status every few seconds, keeps nobody from being heard.
func change(ctx context.Context, c client.Client, args []string, edit func(*v1alpha1.ClusterUpdate) (string, error)) (name, said string, err error) {
	err = clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error {
		u, err := cluster.Update(ctx, c, args)
		if err != nil {
			return err
		}
		name, args = u.Name, []string{u.Name}
		patch := client.MergeFromWithOptions(u.DeepCopy(), client.MergeFromWithOptimisticLock{})
		if said, err = edit(u); err != nil {
			return err
		}
		if err := c.Patch(ctx, u, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
			return fmt.Errorf("cannot change ClusterUpdate %s: %w", u.Name, err)
		}
		return nil
	})
	return name, said, err
}

func newHold(a *cluster.Access) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "hold NODE --reason TEXT", Short: "Keep updates from starting on a node", Args: cobra.ExactArgs(1),
		Long: `Keep updates from starting on a node until it is released. A node that has started is
finished. Other nodes go on without a worker that is held; for a control-plane node they
wait, because no kubelet may be newer than the API servers. The update is complete when the
node was released and updated too.

The reason is in the annotation ` + v1alpha1.AnnotationHold + ` of the Node and is shown wherever the update waits.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return exit.Usage(errors.New("say why with --reason: whoever finds the node held wants to know"))
			}
			return onNode(cmd.Context(), a, args[0], func(n *corev1.Node) string {
				if n.Annotations == nil {
					n.Annotations = map[string]string{}
				}
				n.Annotations[v1alpha1.AnnotationHold] = reason
				if n.Annotations[v1alpha1.AnnotationUpdating] != "" {
					return "is being updated now and is finished; it is held from then on"
				}
				return "is held: no update starts on it until refit release " + n.Name
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for whoever sees the node wait")
	return c
}

func newRelease(a *cluster.Access) *cobra.Command {
	return &cobra.Command{
		Use: "release NODE", Short: "Let updates start on a node that was held", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onNode(cmd.Context(), a, args[0], func(n *corev1.Node) string {
				_, held := n.Annotations[v1alpha1.AnnotationHold]
				delete(n.Annotations, v1alpha1.AnnotationHold)
				if !held {
					return "was not held"
				}
				return "is released"
			})
		},
	}
}

func onNode(ctx context.Context, a *cluster.Access, name string, edit func(*corev1.Node) string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &n); apierrors.IsNotFound(err) {
		return exit.Usage(fmt.Errorf("there is no node %q; see kubectl get nodes", name))
	} else if err != nil {
		return fmt.Errorf("cannot read node %s: %w", name, err)
	}
	patch := client.MergeFrom(n.DeepCopy())
	said := edit(&n)
	if err := c.Patch(ctx, &n, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
		return fmt.Errorf("cannot change node %s: %w", name, err)
	}
	fmt.Fprintf(a.Out, "%s %s\n", name, said)
	return nil
}
