package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/model"
)

// stockImageName is the OSImage with the stock image of a pool.
func stockImageName(pool string) string { return "stock-" + pool }

// useStock has a pool boot the image that its nodes ran before refit booted the first one. The pool
// keeps the name of its OSImage in an annotation, for --follow.
func (o *options) useStock(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, end bool) error {
	name := stockImageName(p.Name)
	if p.Spec.OSImage == name {
		return nil
	}
	if p.Spec.OSImage == "" {
		return console.UsageErrorf("UpdatePool %s names no OSImage: refit boots nothing on its nodes", p.Name)
	}
	reports, err := poolReports(ctx, c, p)
	if err != nil {
		return err
	}
	image, err := chooseStock(p.Name, reports)
	if err != nil {
		return err
	}
	if err := o.endRunning(ctx, c, end); err != nil {
		return err
	}
	if err := createStock(ctx, c, p, image); err != nil {
		return err
	}
	patch := client.MergeFrom(p.DeepCopy())
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[v1alpha1.AnnotationBeforeStock] = p.Spec.OSImage
	p.Spec.OSImage, p.Spec.OSBuild = name, ""
	if err := c.Patch(ctx, p, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
		return fmt.Errorf("cannot set the OSImage of UpdatePool %s: %w", p.Name, err)
	}
	o.Note("pool %s boots its stock image %s (OSImage %s), until refit rollback --pool %s --follow", p.Name, image, name, p.Name)
	return nil
}

// leaveStock gives a pool the OSImage that it had before useStock.
func leaveStock(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool) error {
	before := p.Annotations[v1alpha1.AnnotationBeforeStock]
	if before == "" {
		return nil
	}
	patch := client.MergeFrom(p.DeepCopy())
	delete(p.Annotations, v1alpha1.AnnotationBeforeStock)
	if p.Spec.OSImage == stockImageName(p.Name) { // otherwise a person has chosen another since
		p.Spec.OSImage = before
	}
	if err := c.Patch(ctx, p, patch, client.FieldOwner(v1alpha1.FieldOwnerCLI)); err != nil {
		return fmt.Errorf("cannot set the OSImage of UpdatePool %s: %w", p.Name, err)
	}
	return nil
}

// poolReports are the reports of the nodes of a pool, nil for a node without one.
func poolReports(ctx context.Context, c client.Reader, p *v1alpha1.UpdatePool) (map[string]*v1alpha1.NodeUpdate, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("nodes of UpdatePool %s: %w", p.Name, err)
	}
	var nodes corev1.NodeList
	var updates v1alpha1.NodeUpdateList
	if err := errors.Join(c.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: selector}), c.List(ctx, &updates, client.InNamespace(v1alpha1.NodesNamespace))); err != nil {
		return nil, fmt.Errorf("nodes of UpdatePool %s: %w", p.Name, err)
	}
	out := map[string]*v1alpha1.NodeUpdate{}
	for i := range nodes.Items {
		out[nodes.Items[i].Name] = nil
	}
	for i := range updates.Items {
		if _, mine := out[updates.Items[i].Name]; mine {
			out[updates.Items[i].Name] = &updates.Items[i]
		}
	}
	return out, nil
}

// chooseStock returns the one image that all nodes of a pool ran before refit. Hosts that boot no
// images do not count.
func chooseStock(pool string, reports map[string]*v1alpha1.NodeUpdate) (string, error) {
	byStock := nodesByStock(reports)
	var problems []string
	for _, stock := range slices.Sorted(maps.Keys(byStock)) {
		nodes := byStock[stock]
		slices.Sort(nodes)
		who := strings.Join(nodes, ", ")
		switch {
		case stock == "":
			problems = append(problems, "no stock image is on record for "+who+": refit has booted nothing there yet, or booted its first image before agents kept a record")
		case strings.HasPrefix(stock, model.ValueNone+":"):
			problems = append(problems, who+" ran no image that could be booted again ("+strings.TrimPrefix(stock, model.ValueNone+": ")+")")
		case len(byStock) > 1:
			problems = append(problems, who+" ran "+stock)
		}
	}
	switch {
	case len(byStock) == 0:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("pool %s has no node that boots images", pool))
	case len(problems) > 0:
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("the nodes of pool %s have no common stock image: %s. Name an image yourself: an OSImage with spec.image, and spec.osImage of the pool", pool, strings.Join(problems, "; ")))
	}
	for stock := range byStock {
		return stock, nil
	}
	return "", nil
}

// nodesByStock are the nodes by what they ran before refit, empty if that is not known.
func nodesByStock(reports map[string]*v1alpha1.NodeUpdate) map[string][]string {
	out := map[string][]string{}
	for name, r := range reports {
		fields := map[string]string{}
		if r != nil && r.Status.Observed != nil {
			fields = r.Status.Observed.Fields
		}
		if fields["os/unsupported"] == "" {
			out[fields[model.FieldOSStock]] = append(out[fields[model.FieldOSStock]], name)
		}
	}
	return out
}

// createStock makes the OSImage of a pool's stock image. Nodes fetch it with the Secret for the base
// of the pool's own images.
func createStock(ctx context.Context, c client.Client, p *v1alpha1.UpdatePool, image string) error {
	var was v1alpha1.OSImage
	if err := c.Get(ctx, client.ObjectKey{Name: p.Spec.OSImage}, &was); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read OSImage %s: %w", p.Spec.OSImage, err)
	}
	s := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: stockImageName(p.Name)}, Spec: v1alpha1.OSImageSpec{Image: image, PullSecret: stockSecret(&was.Spec)}}
	err := c.Create(ctx, s, client.FieldOwner(v1alpha1.FieldOwnerCLI))
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create OSImage %s for %s: %w", s.Name, image, err)
	}
	var there v1alpha1.OSImage
	if err := c.Get(ctx, client.ObjectKeyFromObject(s), &there); err != nil {
		return fmt.Errorf("read OSImage %s: %w", s.Name, err)
	}
	if there.Spec.Image != image {
		return console.WithExit(console.ExitBlocked, fmt.Errorf("OSImage %s exists and names %q, not the stock image %s: delete it, or set its spec.image", s.Name, there.Spec.Image, image))
	}
	return nil
}

func stockSecret(s *v1alpha1.OSImageSpec) *v1alpha1.PullSecret {
	switch {
	case s.Base != nil && s.Base.PullSecret != nil:
		return s.Base.PullSecret
	case s.PullSecret != nil:
		return s.PullSecret
	}
	return s.Secret
}
