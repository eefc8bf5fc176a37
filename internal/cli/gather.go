package cli

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
)

// gather reads the four lists of a view at a time.
func gather(ctx context.Context, c client.Reader, now time.Time) (explain.Facts, error) {
	var nodes corev1.NodeList
	var nus v1alpha1.NodeUpdateList
	var bundles v1alpha1.BundleList
	var updates v1alpha1.ClusterUpdateList
	for _, l := range []client.ObjectList{&nodes, &nus, &bundles, &updates} {
		if err := c.List(ctx, l); err != nil {
			return explain.Facts{}, inputs.ListError(err)
		}
	}
	return rolloutfacts.ViewFacts(now, nodes.Items, nus.Items, bundles.Items, updates.Items), nil
}
