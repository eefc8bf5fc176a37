package installcmd

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// installCluster applies kinds, permissions and the controller, and waits
// until it runs and every node has an agent.
func (o installer) installCluster(ctx context.Context, image string, hosts []host, f installFlags) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	if !f.daemonSet { // with a DaemonSet nodes pull the image, and the controller may start on any
		if err := o.labelHolders(ctx, c, image, hosts); err != nil {
			return err
		}
	}
	if err := o.recordAreas(ctx, c, f.areas); err != nil {
		return err
	}
	all, kept, agents, err := manifestsFor(image, f)
	if err != nil {
		return fmt.Errorf("internal: manifests: %w", err)
	}
	objects := slices.Concat(kept, agents)
	if err := adapt(ctx, c, objects, f.daemonSet); err != nil {
		return err
	}
	for _, obj := range objects {
		if err := applyObject(ctx, c, obj); err != nil {
			return err
		}
	}
	o.Note("applied %d objects", len(objects))
	if err := o.waitController(ctx, c, image, f.areas); err != nil {
		return err
	}
	// The controller of before, which had the areas, is gone.
	if err := o.removeAreas(ctx, c, all, kept, f.areas); err != nil {
		return err
	}
	return o.waitAgents(ctx, c)
}

// manifestsFor returns all objects of an installation, those that are kept when areas are left out,
// and those of agents that a DaemonSet installs.
func manifestsFor(image string, f installFlags) (all, kept, agents []*unstructured.Unstructured, err error) {
	if all, err = config.Manifests(image); err != nil {
		return nil, nil, nil, err
	}
	if f.daemonSet {
		agents, err = config.DaemonSet(image)
	}
	return all, config.Without(all, f.areas), agents, err
}

// labelHolders labels the nodes that have refit's image: those that loaded it just
// now, and those whose kubelet reports it, within half a minute.
func (o installer) labelHolders(ctx context.Context, c client.Client, image string, hosts []host) error {
	p := console.NewProgress(o.Err)
	for {
		var nodes corev1.NodeList
		err := c.List(ctx, &nodes)
		if err == nil {
			var holders []string
			if holders, err = labelNodes(ctx, c, nodes.Items, image, hosts); err == nil && len(holders) > 0 {
				o.Note("refit's image is on %s", strings.Join(holders, ", "))
				return nil
			}
		}
		p.PrintLine("waiting for a node to report refit's image " + image)
		if !sleep(ctx, time.Second) {
			return console.WithExit(console.ExitBlocked, errNoImage)
		}
	}
}

// labelNodes labels the nodes that have the image, and removes the label from others: they
// may have the previous version's.
func labelNodes(ctx context.Context, c client.Client, nodes []corev1.Node, image string, hosts []host) ([]string, error) {
	var holders []string
	for i := range nodes {
		n := &nodes[i]
		holds := reportsImage(n, image) || firstContact(n, hosts)
		if holds {
			holders = append(holders, n.Name)
		}
		if _, labelled := n.Labels[v1alpha1.LabelFirstContact]; labelled == holds {
			continue
		}
		patch := client.MergeFrom(n.DeepCopy())
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		if delete(n.Labels, v1alpha1.LabelFirstContact); holds {
			n.Labels[v1alpha1.LabelFirstContact] = ""
		}
		if err := c.Patch(ctx, n, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
			return nil, fmt.Errorf("cannot label node %s: %w", n.Name, err)
		}
	}
	return holders, nil
}

func reportsImage(n *corev1.Node, image string) bool {
	for _, i := range n.Status.Images {
		for _, name := range i.Names {
			if name == image {
				return true
			}
		}
	}
	return false
}

// firstContact reports whether a node is one of the hosts that had the stick.
func firstContact(n *corev1.Node, hosts []host) bool {
	for _, h := range hosts {
		if h.device == "" {
			continue
		}
		if h.name == n.Name {
			return true
		}
		for _, a := range n.Status.Addresses {
			if a.Address == h.name {
				return true
			}
		}
	}
	return false
}

// deletionPatience is how long applyObject waits for an object that is being deleted.
const deletionPatience = 2 * time.Minute

// applyObject applies one object. The API server may need some time to serve a new kind. An object
// that is being deleted accepts the change and is gone a moment later, so applyObject applies it
// again until it stays.
func applyObject(ctx context.Context, c client.Client, obj *unstructured.Unstructured) error {
	for end := time.Now().Add(deletionPatience); ; {
		live := obj.DeepCopy()
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(live), client.FieldOwner(v1alpha1.FieldOwnerCLI), client.ForceOwnership)
		wait := meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
		if err == nil {
			if live.GetDeletionTimestamp() == nil {
				return nil
			}
			wait = time.Now().Before(end)
			err = fmt.Errorf("it is being deleted and waits for its finalizers %v: run the command again when it is gone", live.GetFinalizers())
		}
		if !wait || !sleep(ctx, 300*time.Millisecond) {
			return fmt.Errorf("cannot apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// sleep sleeps; it returns false if the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// waitController waits until a controller of the image is ready: during an upgrade, the
// previous one does not count.
func (o installer) waitController(ctx context.Context, c client.Client, image string, without areas.Set) error {
	p := console.NewProgress(o.Err)
	for {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"refit.dev/component": "controller"})
		if err == nil && slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return isReady(&p, image, without) }) {
			o.Note("the controller is ready")
			return nil
		}
		p.PrintLine("waiting for the controller to become ready")
		if !sleep(ctx, time.Second) {
			return console.WithExit(console.ExitInProgress, fmt.Errorf("the controller is not ready: %s", whyNotReady(c)))
		}
	}
}

// isReady reports whether a pod of an image without these areas is ready and not
// terminating.
func isReady(p *corev1.Pod, image string, without areas.Set) bool {
	return p.DeletionTimestamp == nil && config.WithoutOf(p.Spec.Containers).String() == without.String() && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Image == image }) &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// whyNotReady returns what the controller's pod waits for.
func whyNotReady(c client.Client) string {
	ctx, cancel := context.WithTimeout(context.Background(), inputs.RequestTimeout)
	defer cancel()
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		return err.Error()
	}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil {
				return fmt.Sprintf("pod %s on node %s: %s: %s", p.Name, p.Spec.NodeName, w.Reason, w.Message)
			}
		}
		for _, cond := range p.Status.Conditions {
			if cond.Status != corev1.ConditionTrue && cond.Message != "" {
				return fmt.Sprintf("pod %s: %s: %s", p.Name, cond.Reason, cond.Message)
			}
		}
	}
	return "it has no pod; see kubectl -n " + v1alpha1.SystemNamespace + " describe deployment refit-controller"
}

// waitAgents waits until every node has an agent, or names those without.
func (o installer) waitAgents(ctx context.Context, c client.Client) error {
	p := console.NewProgress(o.Err)
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		missing, err := missingAgents(ctx, c)
		if err == nil && len(missing) == 0 {
			fmt.Fprintln(o.Out, "installed: every node has an agent")
			return nil
		}
		p.PrintLine("waiting for the agents of " + strings.Join(missing, ", "))
		if !sleep(wait, time.Second) {
			if err != nil {
				return inputs.ListError(err)
			}
			return console.WithExit(console.ExitBlocked, fmt.Errorf("nodes without the agent: %s; run refit-agent install on each, or refit install --ssh with their names", strings.Join(missing, ", ")))
		}
	}
}

func missingAgents(ctx context.Context, c client.Client) ([]string, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, err
	}
	var nus v1alpha1.NodeUpdateList
	if err := c.List(ctx, &nus, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for i := range nus.Items {
		has[nus.Items[i].Name] = nus.Items[i].Status.Agent != nil
	}
	var missing []string
	for i := range nodes.Items {
		if !has[nodes.Items[i].Name] {
			missing = append(missing, nodes.Items[i].Name)
		}
	}
	sort.Strings(missing)
	return missing, nil
}
