package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/model"
)

// fieldRollback is the field in which nodes report their rollback digest.
const fieldRollback = "os/rollback"

// quietTime is how long every node must match before nothing is left to do: the controller
// observes a change after its image.
const quietTime = 5 * time.Second

// rollbackPool pins a pool to an OSBuild, or lets it follow its OSImage again, and
// plans the result.
func (o *options) rollbackPool(ctx context.Context, f rollbackFlags) error {
	c, err := o.Client()
	if err != nil {
		return err
	}
	var p v1alpha1.UpdatePool
	if err := c.Get(ctx, client.ObjectKey{Name: f.pool}, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return console.UsageErrorf("UpdatePool %s not found: kubectl get updatepools lists all", f.pool)
		}
		return fmt.Errorf("read UpdatePool %s: %w", f.pool, err)
	}
	if err := o.chooseImage(ctx, c, &p, f); err != nil {
		return err
	}
	name, err := o.awaitWanted(ctx, c, &p, cmp.Or(f.timeout, planTime))
	if err != nil || name == "" {
		return err
	}
	u, err := o.createUpdate(ctx, c, name, v1alpha1.ClusterUpdateSpec{Start: v1alpha1.StartManual})
	if err != nil {
		return err
	}
	return o.showPlanBack(ctx, c, u, f.planFlags)
}

// chooseImage has the pool boot what the user asked for.
func (o *options) chooseImage(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, f rollbackFlags) error {
	if f.stock {
		return o.useStock(ctx, c, p, f.end)
	}
	build, err := o.requestedBuild(ctx, c, p, f)
	if err != nil {
		return err
	}
	if err := o.endRunning(ctx, c, f.end); err != nil {
		return err
	}
	if f.follow {
		if err := leaveStock(ctx, c, p); err != nil {
			return err
		}
	}
	return o.hold(ctx, c, p, build)
}

// hold pins the pool to a build, or to none, and prints the result.
func (o *options) hold(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, build string) error {
	if p.Spec.OSBuild != build {
		patch := client.MergeFrom(p.DeepCopy())
		p.Spec.OSBuild = build
		if err := c.Patch(ctx, p, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
			return fmt.Errorf("cannot pin UpdatePool %s: %w", p.Name, err)
		}
	}
	if build == "" {
		o.Note("pool %s follows OSImage %s and its NodeConfigs again", p.Name, p.Spec.OSImage)
	} else {
		o.Note("pool %s is pinned to the image and configuration of OSBuild %s, until refit rollback --pool %s --follow", p.Name, build, p.Name)
	}
	return nil
}

// endRunning ends an unfinished update, if the user asked for it.
func (o *options) endRunning(ctx context.Context, c client.Client, end bool) error {
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return inputs.ListError(err)
	}
	for i := range list.Items {
		if u := &list.Items[i]; u.Status.StartedAt != nil && u.Status.Phase != v1alpha1.PhaseDone {
			if err := o.endUpdate(ctx, c, u, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// requestedBuild returns the requested build, "" for none.
func (o *options) requestedBuild(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, f rollbackFlags) (string, error) {
	if f.follow {
		if f.to != "" {
			return "", console.UsageErrorf("--follow and --to exclude each other")
		}
		return "", nil
	}
	if p.Spec.OSImage == "" {
		return "", console.UsageErrorf("UpdatePool %s names no OSImage: its nodes have no image to roll back", p.Name)
	}
	var builds v1alpha1.OSBuildList
	var image v1alpha1.OSImage
	var nodes v1alpha1.NodeUpdateList
	if err := errors.Join(c.List(ctx, &builds), c.Get(ctx, client.ObjectKey{Name: p.Spec.OSImage}, &image), c.List(ctx, &nodes, client.InNamespace(v1alpha1.NodesNamespace))); err != nil {
		return "", fmt.Errorf("list builds of OSImage %s: %w", p.Spec.OSImage, err)
	}
	return chooseBuild(p.Name, f.to, &image, builds.Items, nodes.Items)
}

// chooseBuild returns the named build, or the newest of those that nodes report as their
// rollback image.
func chooseBuild(pool, named string, image *v1alpha1.OSImage, builds []v1alpha1.OSBuild, nodes []v1alpha1.NodeUpdate) (string, error) {
	good := goodBuilds(pool, named, image, builds)
	back := rollbacks(nodes)
	var names []string
	for _, b := range good {
		if b.Name == named || named == "" && back[b.Status.Digest] {
			return b.Name, nil
		}
		names = append(names, b.Name)
	}
	switch {
	case len(names) == 0:
		return "", console.UsageErrorf("OSImage %s has no earlier build with an image: there is nothing to roll back to", image.Name)
	case named != "":
		return "", console.UsageErrorf("OSImage %s has no successful build %s; it has %s", image.Name, named, strings.Join(names, ", "))
	}
	return "", console.UsageErrorf("no node reports a rollback image of this OSImage; name a build with --to: %s", strings.Join(names, ", "))
}

// goodBuilds returns the successful builds of an OSImage, the newest first. It omits the
// pool's current one unless it is named.
func goodBuilds(pool, named string, image *v1alpha1.OSImage, builds []v1alpha1.OSBuild) []v1alpha1.OSBuild {
	current := ""
	for _, p := range image.Status.Pools {
		if p.Name == pool {
			current = p.Build
		}
	}
	good := slices.DeleteFunc(slices.Clone(builds), func(b v1alpha1.OSBuild) bool {
		mine := b.Spec.OSImageUID == string(image.UID) && b.Status.Phase == v1alpha1.BuildSucceeded && b.DeletionTimestamp.IsZero()
		return !mine || b.Name == current && b.Name != named
	})
	slices.SortFunc(good, func(a, b v1alpha1.OSBuild) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return good
}

// rollbacks returns the rollback digests that nodes report.
func rollbacks(nodes []v1alpha1.NodeUpdate) map[string]bool {
	out := map[string]bool{}
	for i := range nodes {
		if seen := nodes[i].Status.Observed; seen != nil && seen.Fields[fieldRollback] != "" {
			out[seen.Fields[fieldRollback]] = true
		}
	}
	return out
}

// awaitWanted waits until the desired state of the nodes has the pool's image, and returns
// the name of an update for it; "" if all run it.
func (o *options) awaitWanted(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, limit time.Duration) (string, error) {
	deadline, since := time.Now().Add(limit), time.Now()
	for {
		says, err := poolMessage(ctx, c, p)
		if err != nil {
			return "", err
		}
		if says != "" {
			since = time.Now()
		} else {
			name, err := configsWaiting(ctx, c)
			if err != nil || name != "" {
				return name, err
			}
			if time.Since(since) > quietTime {
				o.Note("every node runs this image: there is nothing to do")
				return "", nil
			}
		}
		if time.Now().After(deadline) {
			return "", console.WithExit(console.ExitInProgress, fmt.Errorf("no answer within %s: %s", limit, says))
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// poolMessage returns why the pool, or a node of it, does not match while no NodeConfig waits
// for it yet; "" if it matches, or one waits.
func poolMessage(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool) (string, error) {
	var image v1alpha1.OSImage
	if err := c.Get(ctx, client.ObjectKey{Name: p.Spec.OSImage}, &image); err != nil {
		return "", fmt.Errorf("read OSImage %s: %w", p.Spec.OSImage, err)
	}
	i := slices.IndexFunc(image.Status.Pools, func(s v1alpha1.OSImagePool) bool { return s.Name == p.Name })
	if i < 0 {
		return "OSImage " + image.Name + " does not know the pool yet", nil
	}
	s := &image.Status.Pools[i]
	switch {
	case s.State == "Stuck":
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("OSImage %s: %s", image.Name, s.Message))
	case p.Spec.OSBuild != "" && s.Build == p.Spec.OSBuild, p.Spec.OSBuild == "" && (s.Build == s.Wanted || s.State == "Keep"):
		return behind(ctx, c, p, s.Image)
	}
	return s.State + ": " + s.Message, nil
}

// behind names a node of the pool that booted another image while no NodeConfig waits for
// it: the controller has not written the desired state yet.
func behind(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, image string) (string, error) {
	if name, err := configsWaiting(ctx, c); err != nil || name != "" {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	if err != nil {
		return "", fmt.Errorf("nodes of UpdatePool %s: %w", p.Name, err)
	}
	var nodes corev1.NodeList
	var reports v1alpha1.NodeUpdateList
	if err := errors.Join(c.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: selector}), c.List(ctx, &reports, client.InNamespace(v1alpha1.NodesNamespace))); err != nil {
		return "", fmt.Errorf("nodes of UpdatePool %s: %w", p.Name, err)
	}
	_, digest, _ := strings.Cut(image, "@")
	for i := range reports.Items {
		r := &reports.Items[i]
		mine := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == r.Name })
		if seen := r.Status.Observed; mine && seen != nil && seen.Fields[model.FieldOSImage] != digest {
			return "the desired state of node " + r.Name + " does not have " + image + " yet", nil
		}
	}
	return "", nil
}
