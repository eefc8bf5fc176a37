package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
)

// storeOverlays writes the layers that images assembled on the site add to their bases into
// the store.
func (l *imageLoop) storeOverlays(w *desired.State) (verdicts []model.Blocker) {
	failed := w.StoreOverlays(l.library)
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		verdicts = append(verdicts, model.Blocker{Reason: v1alpha1.ReasonImagesMissing, Waiting: true, Object: "Node/" + l.conf.Node,
			Message: fmt.Sprintf("assemble image %s: %v", name, failed[name]), // short: a status is limited
			Fix:     "The agent retries. If this stays, check the OSImage's status and the free space on the node."})
	}
	return verdicts
}
