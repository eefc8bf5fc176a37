package nodeconfigs

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
)

// Missing says what of the NodeConfigs no plan can know yet: waits are those that
// were not rendered since they were edited, refused those that cannot be. nothing is
// true if a plan says that no node differs: while nodes are not as a NodeConfig wants
// it has not seen them yet, since a cache may be behind.
func Missing(ctx context.Context, c client.Reader, nothing bool) (waits, refused []model.Blocker, err error) {
	var list v1alpha1.NodeConfigList
	if err := c.List(ctx, &list); err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		nc := &list.Items[i]
		v := model.Blocker{Object: "NodeConfig/" + nc.Name, Reason: v1alpha1.ReasonConfigWaiting}
		stalled := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionStalled)
		switch {
		case !nc.DeletionTimestamp.IsZero():
		case nc.Status.ObservedGeneration < nc.Generation:
			v.Message, v.Waiting = "NodeConfig "+nc.Name+" was edited and is not rendered for its nodes yet", true
			waits = append(waits, v)
		case stalled != nil && stalled.Status == metav1.ConditionTrue:
			v.Reason, v.Message, v.Fix = stalled.Reason, stalled.Message, "correct NodeConfig "+nc.Name+", or delete it"
			refused = append(refused, v)
		case nothing && nc.Status.Current < nc.Status.Nodes:
			v.Message, v.Waiting = fmt.Sprintf("%d of the %d nodes of NodeConfig %s are not as it wants, and the plan does not have them yet", nc.Status.Nodes-nc.Status.Current, nc.Status.Nodes, nc.Name), true
			waits = append(waits, v)
		}
	}
	return waits, refused, nil
}
