package apiclient

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
)

// Bundles reads all Bundle objects: which digests administrators approved.
func (c *Client) Bundles(ctx context.Context) ([]v1alpha1.Bundle, error) {
	var l v1alpha1.BundleList
	err := c.readObjects(ctx, "bundles", "", &l)
	return l.Items, err
}

// TrustPolicies reads all of them: trusted keys and revocations.
func (c *Client) TrustPolicies(ctx context.Context) ([]v1alpha1.TrustPolicy, error) {
	var l v1alpha1.TrustPolicyList
	err := c.readObjects(ctx, "trustpolicies", "", &l)
	return l.Items, err
}

// ClusterUpdate reads one by name.
func (c *Client) ClusterUpdate(ctx context.Context, name string) (*v1alpha1.ClusterUpdate, error) {
	out := &v1alpha1.ClusterUpdate{}
	return out, c.readObjects(ctx, "clusterupdates", name, out)
}

// ImageTrack reads one by name.
func (c *Client) ImageTrack(ctx context.Context, name string) (*v1alpha1.ImageTrack, error) {
	out := &v1alpha1.ImageTrack{}
	return out, c.readObjects(ctx, "imagetracks", name, out)
}

// ClusterUpdates reads all of them: which plans administrators started.
func (c *Client) ClusterUpdates(ctx context.Context) ([]v1alpha1.ClusterUpdate, error) {
	var l v1alpha1.ClusterUpdateList
	err := c.readObjects(ctx, "clusterupdates", "", &l)
	return l.Items, err
}

// NodeConfigs reads all of them.
func (c *Client) NodeConfigs(ctx context.Context) ([]v1alpha1.NodeConfig, error) {
	var l v1alpha1.NodeConfigList
	err := c.readObjects(ctx, "nodeconfigs", "", &l)
	return l.Items, err
}

// UpdatePools reads all of them.
func (c *Client) UpdatePools(ctx context.Context) ([]v1alpha1.UpdatePool, error) {
	var l v1alpha1.UpdatePoolList
	err := c.readObjects(ctx, "updatepools", "", &l)
	return l.Items, err
}

// OSImages reads all of them.
func (c *Client) OSImages(ctx context.Context) ([]v1alpha1.OSImage, error) {
	var l v1alpha1.OSImageList
	err := c.readObjects(ctx, "osimages", "", &l)
	return l.Items, err
}

// ConfigMap reads the data of one of namespace refit-nodes, nil if there is none.
func (c *Client) ConfigMap(ctx context.Context, name string) (*convert.ConfigMap, error) {
	out := &convert.ConfigMap{}
	err := c.readCore(ctx, "/api/v1/namespaces/"+v1alpha1.NodesNamespace+"/configmaps/"+name, out)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return out, err
}

// NodeLabels reads the labels of this node.
func (c *Client) NodeLabels(ctx context.Context) (map[string]string, error) {
	var n metav1.PartialObjectMetadata
	err := c.readCore(ctx, "/api/v1/nodes/"+c.node, &n)
	return n.Labels, err
}

// readCore reads a core object, which this client's decoder does not know.
func (c *Client) readCore(ctx context.Context, path string, into any) error {
	r, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	b, err := r.Get().AbsPath(path).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readObjects reads cluster-scoped objects: one by name, or all.
func (c *Client) readObjects(ctx context.Context, resource, name string, into runtime.Object) error {
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
