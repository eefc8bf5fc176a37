package installcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/distribution"
)

// NewUninstall is the command `refit uninstall`.
func NewUninstall(a *inputs.Access) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "uninstall --yes",
		Short: "Remove refit's objects from the cluster; images and agents stay on the nodes",
		Long: `Remove refit's objects from the cluster, with all refit objects and the additions
for Cluster API and boot images. Images and their pins stay on the nodes. To remove
the host service, run refit-agent uninstall on each node.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return console.UsageError(errors.New("this deletes every refit object of the cluster: confirm with --yes"))
			}
			return installer{a}.uninstall(cmd.Context())
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "really")
	return c
}

func (o installer) uninstall(ctx context.Context) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	if err := checkIdle(ctx, c); err != nil {
		return err
	}
	objects, err := installed()
	if err != nil {
		return fmt.Errorf("internal: manifests: %w", err)
	}
	left, err := agentNodes(ctx, c) // before their NodeUpdates are deleted
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := c.Delete(ctx, obj, client.PropagationPolicy("Background")); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("cannot delete %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	if err := errors.Join(setIfNotPresent(ctx, c, false, 0), removeStartupTaints(ctx, c)); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, listLeftovers(left))
	return nil
}

// agentNodes returns the nodes whose agent ever reported.
func agentNodes(ctx context.Context, c client.Client) ([]string, error) {
	var all v1alpha1.NodeUpdateList
	err := c.List(ctx, &all, client.InNamespace(v1alpha1.NodesNamespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil // nothing is installed any more
	}
	if err != nil {
		return nil, fmt.Errorf("list the nodes that have an agent: %w", err)
	}
	var out []string
	for i := range all.Items {
		if all.Items[i].Status.Agent != nil {
			out = append(out, all.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// maxNamed is how many nodes the message names.
const maxNamed = 20

// listLeftovers describes what stays on which nodes, and how to remove it.
func listLeftovers(nodes []string) string {
	if len(nodes) == 0 {
		return "removed; no node reported an agent. If one is installed, remove it with refit-agent uninstall"
	}
	names := strings.Join(nodes[:min(len(nodes), maxNamed)], ", ")
	if more := len(nodes) - maxNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	subject := fmt.Sprintf("%d nodes still have", len(nodes))
	if len(nodes) == 1 {
		subject = "1 node still has"
	}
	return fmt.Sprintf("removed from the cluster. %s the agent and its cold-start check (a drop-in of %s): %s\n"+
		"Run refit-agent uninstall on each of them.", subject, distribution.KubeletUnit, names)
}

// checkIdle refuses while an update runs.
func checkIdle(ctx context.Context, c client.Client) error {
	var updates v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &updates); err == nil {
		for _, u := range updates.Items {
			if u.Status.Phase == v1alpha1.PhaseUpdating {
				return console.WithExit(console.ExitBlocked, fmt.Errorf("ClusterUpdate %s is updating nodes: wait until it is done, or pause it and wait for the current node", u.Name))
			}
			if u.Status.Phase == v1alpha1.PhaseHalted { // no controller would end its interlocks
				return console.WithExit(console.ExitBlocked, fmt.Errorf("ClusterUpdate %s is halted, and autoscalers and health checks are paused: retry it, or delete it and wait a minute until they resume", u.Name))
			}
		}
	}
	return nil
}

// removeStartupTaints removes refit's taint from waiting nodes: after the uninstall no
// controller would.
func removeStartupTaints(ctx context.Context, c client.Client) error {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("cannot list the nodes to remove the taint %s: %w", v1alpha1.TaintImagesNotReady, err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		seen := n.DeepCopy()
		if !cleanNode(n) {
			continue
		}
		patch := client.MergeFromWithOptions(seen, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, n, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove the taint %s from node %s; run refit uninstall again: %w", v1alpha1.TaintImagesNotReady, n.Name, err)
		}
	}
	return nil
}

// cleanNode removes what the controller added to a joined node, and nothing else.
func cleanNode(n *corev1.Node) bool {
	before := len(n.Spec.Taints)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintImagesNotReady })
	_, noted := n.Annotations[v1alpha1.AnnotationAdmitted]
	delete(n.Annotations, v1alpha1.AnnotationAdmitted)
	return noted || len(n.Spec.Taints) < before
}

// installed returns everything that may be installed, in the order of removal. First
// the registration with Cluster API, or its controllers would call a missing server;
// then additions to an installation; the kinds last.
func installed() ([]*unstructured.Unstructured, error) {
	objects, err := config.Manifests("unused")
	if err != nil {
		return nil, err
	}
	boot, err := config.BootImages()
	if err != nil {
		return nil, err
	}
	alerts, err := config.Alerts()
	if err != nil {
		return nil, err
	}
	monitoring, err := config.Monitoring()
	if err != nil {
		return nil, err
	}
	joins, err := config.Joins()
	if err != nil {
		return nil, err
	}
	management, registration, workload, err := config.ClusterAPI()
	objects = slices.Concat(objects, boot, alerts, monitoring, joins, workload, management, registration)
	slices.Reverse(objects)
	return objects, err
}
