package machineobjects

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/controller/gatefacts"
)

// PoolChecks asks the health checks of UpdatePools.
type PoolChecks struct {
	// Live reads the objects of the checks without a cache.
	Live  client.Reader
	Pools []v1alpha1.UpdatePool
}

// Ask adds to a canary why health checks of the pool of its node do not pass. They are asked when
// nothing else keeps it from passing. A node of no pool, or in another cluster, has none.
func (p *PoolChecks) Ask(ctx context.Context, f *Inventory, c *bootimage.Canary, now time.Time) {
	if c.Node == "" || !c.ChecksDue(now) {
		return
	}
	var why []string
	for i := range p.Pools {
		s, err := metav1.LabelSelectorAsSelector(&p.Pools[i].Spec.NodeSelector)
		if err != nil || !s.Matches(labels.Set(f.labels[c.Node])) {
			continue
		}
		for _, b := range gatefacts.EvaluateChecks(ctx, p.Live, &p.Pools[i]) {
			why = append(why, b.Message)
		}
	}
	c.Unhealthy = strings.Join(why, "; ")
}
