package nodeconfigs

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// ForNewNode is the configuration of a node that has not joined its pool yet, and the name
// of its Content. Both are empty if no NodeConfig selects the pool, or the pool does not
// exist. NodeConfigs that select nodes by label come later: a machine has no labels. It is
// rendered as for every other node, so that a machine with it is current when it joins.
func ForNewNode(ctx context.Context, live client.Client, pool string) (name string, c model.NodeConfig, verdicts []model.Blocker, err error) {
	var pools v1alpha1.UpdatePoolList
	var configs v1alpha1.NodeConfigList
	if err := live.List(ctx, &pools); err != nil {
		return "", c, nil, err
	}
	w := &configSnapshot{pools: pools.Items}
	if w.pool(pool) == nil {
		return "", c, nil, nil
	}
	if err := live.List(ctx, &configs); err != nil {
		return "", c, nil, err
	}
	w.configs = configs.Items
	sortConfigs(w.configs)
	if w.sources, err = Sources(ctx, live, w.configs); err != nil {
		return "", c, nil, err
	}
	if err := (&Reconciler{Client: live, Live: live}).gatherImages(ctx, w); err != nil {
		return "", c, nil, err
	}
	var names []string
	for i := range w.configs {
		if ForPool(&w.configs[i], pool) {
			names = append(names, w.configs[i].Name)
		}
	}
	r := w.render(names, pool)
	return r.name, r.config, r.verdicts, nil
}
