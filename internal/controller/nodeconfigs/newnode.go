package nodeconfigs

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// ForNewNode is the configuration that a node of a pool is to have which has not joined
// yet, and the name of its Content; both are empty if nobody wants anything, or there is
// no such pool. NodeConfigs that select nodes by label come later: a machine has none.
// It is made as for every other node, so a machine that was given it is as wanted when
// it joins.
func ForNewNode(ctx context.Context, live client.Client, pool string) (name string, c model.NodeConfig, verdicts []model.Verdict, err error) {
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
