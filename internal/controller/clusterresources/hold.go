package clusterresources

import (
	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// of is a bundle's payload with resources, nil if it brings none.
func of(h *bundle.Header) *bundle.Payload { return h.PayloadByName(bundle.PayloadResources, "") }

// NotCompared says that an update must not start: it is not known yet what it does
// to the cluster's resources. nil if it brings none, or it is known.
func NotCompared(h *bundle.Header, have *v1alpha1.ResourcesStatus) *model.Verdict {
	if have != nil || of(h) == nil {
		return nil
	}
	return &model.Verdict{Reason: v1alpha1.ReasonResourcesPending, Waiting: true, Object: "Bundle/" + h.Digest,
		Message: "the cluster resources that the bundle brings are not compared with the cluster's yet"}
}

// Idle reports whether a bundle's resources are all as they should be, or it brings
// none: with nothing to do on the nodes there is nothing to start.
func Idle(h *bundle.Header, have *v1alpha1.ResourcesStatus) bool {
	return of(h) == nil || have != nil && have.State == v1alpha1.ResourcesCompared && have.Create+have.Change+have.Remove == 0
}

// Ahead says why no node of an update that has started may move yet: resources that
// come before the nodes are not there or do not work. nil if they do.
func Ahead(have *v1alpha1.ResourcesStatus) *model.Verdict {
	if have == nil || have.Before == 0 || have.BeforeApplied {
		return nil
	}
	return &model.Verdict{Reason: v1alpha1.ReasonResourcesPending, Waiting: have.State != v1alpha1.ResourcesConflict && have.State != v1alpha1.ResourcesFailed,
		Message: "no node moves before the resources with " + v1alpha1.AnnotationApply + ": " + v1alpha1.ApplyBeforeNodes + " are there: " + have.Message}
}

// Foreseen is what will not go well with a bundle's resources, said before it starts.
func Foreseen(have *v1alpha1.ResourcesStatus) []model.Verdict {
	if have == nil || have.State != v1alpha1.ResourcesConflict && have.State != v1alpha1.ResourcesFailed {
		return nil
	}
	return []model.Verdict{{Reason: v1alpha1.ReasonResourcesPending, Message: "the cluster resources of the bundle cannot all be applied: " + have.Message}}
}
