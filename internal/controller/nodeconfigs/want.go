package nodeconfigs

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// Reader reads rendered configurations for the planner, each once.
type Reader struct {
	// Client is a cache, Live is asked when it may be behind.
	Client, Live client.Reader
	known        map[string]*model.NodeConfig
}

// AddWanted puts what a node's rendered configuration wants among what is desired of
// it. nu may be nil.
func (r *Reader) AddWanted(ctx context.Context, nu *v1alpha1.NodeUpdate, n *updateplan.Node) error {
	if nu == nil || nu.Spec.Config == "" {
		return nil
	}
	name := nu.Spec.Config
	c, ok := r.known[name]
	if !ok {
		var err error
		if c, err = r.readConfig(ctx, name); err != nil {
			return err
		}
		if r.known == nil {
			r.known = map[string]*model.NodeConfig{}
		}
		r.known[name] = c
	}
	n.Config, n.ConfigName = c, name
	n.Unobserved = nu.Status.Observed == nil || nu.Status.Observed.Config != name
	n.Desired = updateplan.Fields(c.Fields())
	return nil
}

func (r *Reader) readConfig(ctx context.Context, name string) (*model.NodeConfig, error) {
	key := client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}
	var c v1alpha1.Content
	err := r.Client.Get(ctx, key, &c)
	if apierrors.IsNotFound(err) { // the cache may be behind
		err = r.Live.Get(ctx, key, &c)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", name, err)
	}
	if v1alpha1.ContentName(v1alpha1.ContentConfig, c.Data) != name {
		return nil, fmt.Errorf("configuration %s is not what its name says", name)
	}
	out := &model.NodeConfig{}
	if err := json.Unmarshal([]byte(c.Data), out); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return out, nil
}
