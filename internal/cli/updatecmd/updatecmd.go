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
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// New returns the commands.
func New(a *inputs.Access) []*cobra.Command {
	return []*cobra.Command{newPause(a, true), newPause(a, false), newRetry(a), newHold(a), newRelease(a), newAccept(a), newDrainOptions(a)}
}

func newPause(a *inputs.Access, pause bool) *cobra.Command {
	use, short, said := "resume [UPDATE]", "Resume a paused update", "resumed"
	long := "Resume a paused update."
	if pause {
		use, short = "pause [UPDATE]", "Pause an update after the current nodes"
		said = "paused: no further node starts; started nodes finish first"
		long = "Pause an update: started nodes finish, and no further node starts. With --after-hop all nodes\nof the current hop finish, and the next hop does not start. To pause a pool, set its\nspec.paused; to keep a single node from starting, use refit hold."
	}
	afterHop := false
	c := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Change(cmd.Context(), a, args, func(u *v1alpha1.ClusterUpdate) (string, error) {
				if afterHop {
					return pauseAfterHop(u)
				}
				u.Spec.Paused = pause
				if !pause {
					resumeHops(u)
				}
				return said, nil
			})
		},
	}
	if pause {
		c.Flags().BoolVar(&afterHop, "after-hop", false, "finish the current hop of an update through hops, and start no further one")
	}
	return c
}

// pauseAfterHop lets an update pause when its current hop is done.
func pauseAfterHop(u *v1alpha1.ClusterUpdate) (string, error) {
	i := u.Hop()
	if u.BetweenHops() {
		i-- // the next one has not started
	}
	if i >= len(u.Spec.Hops) {
		return "", console.UsageError(fmt.Errorf("ClusterUpdate %s has no hop after the current one: refit pause without --after-hop pauses it after the current nodes", u.Name))
	}
	u.Spec.PauseAfter = u.Spec.Hops[i]
	return fmt.Sprintf("pauses after hop %d of %d: the next hop starts after refit resume %s", i+1, len(u.Bundles()), u.Name), nil
}

// resumeHops ends a pause between hops. A pause after a later hop stays.
func resumeHops(u *v1alpha1.ClusterUpdate) {
	if u.BetweenHops() && u.Spec.PauseAfter == u.Spec.Hops[u.Hop()-1] {
		u.Spec.PauseAfter = ""
	}
}

func newRetry(a *inputs.Access) *cobra.Command {
	var node string
	c := &cobra.Command{
		Use: "retry [UPDATE]", Short: "Retry failed nodes of an update", Args: cobra.MaximumNArgs(1),
		Long: `Retry the failed nodes of an update: all of them, or with --node one. The pool's
attempts limit the retries of each node. Nodes that have not failed do not change.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return Change(cmd.Context(), a, args, func(u *v1alpha1.ClusterUpdate) (string, error) { return retry(u, node) })
		},
	}
	c.Flags().StringVar(&node, "node", "", "retry only this node")
	return c
}

// retry raises spec.retry of an update, or of one node of it.
func retry(u *v1alpha1.ClusterUpdate, node string) (string, error) {
	if u.Status.Phase == v1alpha1.PhaseDone {
		return "", console.UsageError(fmt.Errorf("ClusterUpdate %s is done: there is nothing to retry", u.Name))
	}
	if node == "" {
		u.Spec.Retry++
		return "failed nodes will be retried", nil
	}
	for i := range u.Spec.RetryNodes {
		if u.Spec.RetryNodes[i].Name == node {
			u.Spec.RetryNodes[i].Retry++
			return "node " + node + " will be retried if it has failed", nil
		}
	}
	u.Spec.RetryNodes = append(u.Spec.RetryNodes, v1alpha1.NodeRetry{Name: node, Retry: 1})
	return "node " + node + " will be retried if it has failed", nil
}

// Change edits one update, the named or the current one, and prints the result.
func Change(ctx context.Context, a *inputs.Access, args []string, edit func(*v1alpha1.ClusterUpdate) (string, error)) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	name, said, err := changeUpdate(ctx, c, args, edit)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s %s\n", name, said)
	return nil
}

// changeUpdate edits the current object and retries on a conflict. A list is written whole, so
// a stale copy must not replace another user's change. The controller's frequent writes of
// the status must not make the command fail.
func changeUpdate(ctx context.Context, c client.Client, args []string, edit func(*v1alpha1.ClusterUpdate) (string, error)) (name, said string, err error) {
	err = clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error {
		u, err := inputs.FindUpdate(ctx, c, args)
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

func newHold(a *inputs.Access) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "hold NODE --reason TEXT", Short: "Put a node on hold: no update starts on it", Args: cobra.ExactArgs(1),
		Long: `Put a node on hold: no update starts on it until its release. A started node finishes
first. If a worker is on hold, other nodes continue. If a control-plane node is on hold,
they wait, because no kubelet may be newer than the API servers. The update is complete
when the node was released and updated too.

The reason is in the annotation ` + v1alpha1.AnnotationHold + ` of the Node. refit shows it where the update waits.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return console.UsageError(errors.New("--reason TEXT is missing: other administrators see it while the node is on hold"))
			}
			return onNode(cmd.Context(), a, args[0], func(n *corev1.Node) string {
				if n.Annotations == nil {
					n.Annotations = map[string]string{}
				}
				n.Annotations[v1alpha1.AnnotationHold] = reason
				if n.Annotations[v1alpha1.AnnotationUpdating] != "" {
					return "is being updated now and finishes first; then it is on hold"
				}
				return "is on hold: no update starts on it until refit release " + n.Name
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown while the node is on hold")
	return c
}

func newRelease(a *inputs.Access) *cobra.Command {
	return &cobra.Command{
		Use: "release NODE", Short: "Release a node from hold", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onNode(cmd.Context(), a, args[0], func(n *corev1.Node) string {
				_, held := n.Annotations[v1alpha1.AnnotationHold]
				delete(n.Annotations, v1alpha1.AnnotationHold)
				if !held {
					return "was not on hold"
				}
				return "is released"
			})
		},
	}
}

func onNode(ctx context.Context, a *inputs.Access, name string, edit func(*corev1.Node) string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &n); apierrors.IsNotFound(err) {
		return console.UsageError(fmt.Errorf("node %q not found; see kubectl get nodes", name))
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
