package clusterresources

import (
	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// resourcesPayload returns a bundle's payload with resources, nil if it has none.
func resourcesPayload(h *bundle.Header) *bundle.Payload {
	return h.PayloadByName(bundle.PayloadResources, "")
}

// PendingComparison returns why an update must not start yet: its changes to the cluster's
// resources are unknown. It is nil if they are known or the bundle has no resources.
func PendingComparison(h *bundle.Header, have *v1alpha1.ResourcesStatus) *model.Blocker {
	if have != nil || resourcesPayload(h) == nil {
		return nil
	}
	return &model.Blocker{Reason: v1alpha1.ReasonResourcesPending, Waiting: true, Object: "Bundle/" + h.Digest,
		Message: "the bundle's cluster resources were not compared with the cluster yet"}
}

// Has reports whether a bundle has cluster resources.
func Has(h *bundle.Header) bool { return resourcesPayload(h) != nil }

// Idle reports whether a bundle has no resources to change. If no node has to change either,
// there is nothing to start.
func Idle(h *bundle.Header, have *v1alpha1.ResourcesStatus) bool {
	return resourcesPayload(h) == nil || have != nil && have.State == v1alpha1.ResourcesCompared && have.Create+have.Change+have.Remove == 0
}

// PendingBeforeNodes returns why no node of a started update may move yet: resources that come
// before the nodes are missing or not ready. It is nil if they are ready.
func PendingBeforeNodes(have *v1alpha1.ResourcesStatus) *model.Blocker {
	if have == nil || have.Before == 0 || have.BeforeApplied {
		return nil
	}
	return &model.Blocker{Reason: v1alpha1.ReasonResourcesPending, Waiting: have.State != v1alpha1.ResourcesConflict && have.State != v1alpha1.ResourcesFailed,
		Message: "nodes wait until the resources with " + v1alpha1.AnnotationApply + ": " + v1alpha1.ApplyBeforeNodes + " are ready: " + have.Message}
}

// PredictProblems returns what will fail with a bundle's resources, before the update starts.
func PredictProblems(have *v1alpha1.ResourcesStatus) []model.Blocker {
	if have == nil || have.State != v1alpha1.ResourcesConflict && have.State != v1alpha1.ResourcesFailed {
		return nil
	}
	return []model.Blocker{{Reason: v1alpha1.ReasonResourcesPending, Message: "some cluster resources of the bundle cannot be applied: " + have.Message}}
}
