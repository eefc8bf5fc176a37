package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/model"
)

// shelve puts what images that were made on the site have of their own into the store.
func (a *Agent) shelve(w *desired.State) (verdicts []model.Verdict) {
	failed := w.Shelve(a.library)
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		verdicts = append(verdicts, model.Verdict{Reason: v1alpha1.ReasonImagesMissing, Waiting: true, Object: "Node/" + a.conf.Node,
			Message: fmt.Sprintf("image %s cannot be put together: %v", name, failed[name]), // short: a status is
			Fix:     "it is tried again; if it stays, look at the OSImage's status and at the room on the node"})
	}
	return verdicts
}

// baseOf is the name that the base of an image that was made on the site has in its
// bundle, empty if there is none.
func (a *Agent) baseOf(img model.HeldImage) string {
	if img.Base == "" {
		return ""
	}
	shelf := a.library.Shelf(img.Bundle)
	if shelf == nil {
		return ""
	}
	if base := shelf.Bundle().ImageByDigest(img.Base); base != nil {
		return base.Name
	}
	return ""
}
