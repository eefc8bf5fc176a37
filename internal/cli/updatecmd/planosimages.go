package updatecmd

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// describeOSImages describes the new OS image of every pool: its build, and the changed packages.
// It returns nothing for a user who may not read OSImages.
func describeOSImages(ctx context.Context, c client.Reader, p model.Plan) ([]string, error) {
	pools := withAnotherImage(p)
	if len(pools) == 0 {
		return nil, nil
	}
	var images v1alpha1.OSImageList
	if err := c.List(ctx, &images); err != nil {
		if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) { // OS images may be left out
			err = nil
		}
		return nil, err
	}
	var out []string
	for i := range images.Items {
		for _, s := range images.Items[i].Status.Pools {
			if pools[s.Name] && s.Image != "" {
				out = append(out, "pool "+s.Name+" boots "+s.Image+": "+s.Message)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// withAnotherImage are the pools whose nodes boot another image.
func withAnotherImage(p model.Plan) map[string]bool {
	pools := map[string]bool{}
	for i := range p.Nodes {
		for _, s := range p.Nodes[i].Steps {
			if slices.ContainsFunc(s.Changes, func(c model.Change) bool { return c.Path == model.FieldOSImage }) {
				pools[p.Nodes[i].Pool] = true
			}
		}
	}
	return pools
}
