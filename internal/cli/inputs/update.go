package inputs

import (
	"context"
	"errors"
	"fmt"

	"github.com/refit-dev/refit/internal/cli/console"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// ChooseUpdate returns the current update: one that is not done, else the newest.
func ChooseUpdate(us []v1alpha1.ClusterUpdate) *v1alpha1.ClusterUpdate {
	var best *v1alpha1.ClusterUpdate
	rank := func(u *v1alpha1.ClusterUpdate) int {
		switch u.Status.Phase {
		case v1alpha1.PhaseUpdating, v1alpha1.PhaseHalted:
			return 2
		case v1alpha1.PhaseDone:
			return 0
		}
		return 1
	}
	for i := range us {
		u := &us[i]
		if best == nil || rank(u) > rank(best) || (rank(u) == rank(best) && best.CreationTimestamp.Before(&u.CreationTimestamp)) {
			best = u
		}
	}
	return best
}

// FindUpdate returns the named update, or the current one.
func FindUpdate(ctx context.Context, c client.Client, args []string) (*v1alpha1.ClusterUpdate, error) {
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, ListError(err)
	}
	if len(args) == 0 {
		if u := ChooseUpdate(list.Items); u != nil {
			return u, nil
		}
		return nil, console.UsageError(errors.New("there is no update: create one with refit plan --to BUNDLE"))
	}
	for i := range list.Items {
		if list.Items[i].Name == args[0] {
			return &list.Items[i], nil
		}
	}
	return nil, console.UsageError(fmt.Errorf("ClusterUpdate %q not found; see kubectl get clusterupdates", args[0]))
}
