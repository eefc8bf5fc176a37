package nodeapi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Bundles reads all Bundle objects: which digests administrators approved.
func (c *Client) Bundles(ctx context.Context) ([]v1alpha1.Bundle, error) {
	var l v1alpha1.BundleList
	err := c.read(ctx, "bundles", "", &l)
	return l.Items, err
}

// TrustPolicies reads all of them: trusted keys and revocations.
func (c *Client) TrustPolicies(ctx context.Context) ([]v1alpha1.TrustPolicy, error) {
	var l v1alpha1.TrustPolicyList
	err := c.read(ctx, "trustpolicies", "", &l)
	return l.Items, err
}

// ClusterUpdate reads one by name.
func (c *Client) ClusterUpdate(ctx context.Context, name string) (*v1alpha1.ClusterUpdate, error) {
	out := &v1alpha1.ClusterUpdate{}
	return out, c.read(ctx, "clusterupdates", name, out)
}

// ImageTrack reads one by name.
func (c *Client) ImageTrack(ctx context.Context, name string) (*v1alpha1.ImageTrack, error) {
	out := &v1alpha1.ImageTrack{}
	return out, c.read(ctx, "imagetracks", name, out)
}

// read reads cluster scoped objects: one by name, or all.
func (c *Client) read(ctx context.Context, resource, name string, into runtime.Object) error {
	r, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	req := r.Get().Resource(resource)
	if name != "" {
		req = req.Name(name)
	}
	if err := req.Do(ctx).Into(into); err != nil {
		return fmt.Errorf("%s %s: %w", resource, name, err)
	}
	return nil
}
