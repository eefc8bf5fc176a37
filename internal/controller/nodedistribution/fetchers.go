package nodedistribution

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/transfer"
)

// fetcher is the node that fetches a bundle from its registry.
type fetcher struct {
	node string
	// report is its NodeUpdate.
	report *v1alpha1.NodeUpdate
	// registry and generation are those of the Bundle.
	registry   *v1alpha1.BundleRegistry
	generation int64
}

// pickFetchers picks a node for each bundle in a registry that nodes may copy, or whose signatures
// must be read first. silent reports that an agent has not been heard of.
func (w *fleetSnapshot) pickFetchers(order []string, approvals map[string]approval, silent func(*v1alpha1.NodeUpdate) bool) map[string]fetcher {
	out := map[string]fetcher{}
	for i := range w.bundles {
		b := &w.bundles[i]
		d := b.Spec.Digest
		if b.Spec.Registry == nil || d == "" || !b.DeletionTimestamp.IsZero() || out[d].generation >= b.Generation {
			continue
		}
		if !slices.Contains(order, d) && approvals[d].reason != v1alpha1.ReasonSignaturesRequired {
			continue
		}
		if f, ok := w.pickFetcher(b, silent); ok {
			out[d] = f
		}
	}
	return out
}

func (w *fleetSnapshot) pickFetcher(b *v1alpha1.Bundle, silent func(*v1alpha1.NodeUpdate) bool) (f fetcher, ok bool) {
	selector := labels.Everything()
	if s := b.Spec.Registry.NodeSelector; s != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(s); err != nil {
			selector = labels.Nothing()
		}
	}
	var nodes []transfer.Candidate
	var reports []*v1alpha1.NodeUpdate
	for i, n := range w.nodes {
		nu := w.reports[i]
		if nu == nil || nu.Status.Agent == nil || nu.Status.Agent.Address == "" || !n.DeletionTimestamp.IsZero() || !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		reports = append(reports, nu)
		nodes = append(nodes, transfer.Candidate{Node: n.Name, Fetches: fetches(nu, b.Spec.Digest),
			Failed: func() bool { return cannotFetch(nu, b.Spec.Digest) || silent(nu) }})
	}
	i := transfer.PickFetcher(b.Spec.Digest, nodes)
	if i < 0 {
		return fetcher{}, false
	}
	return fetcher{nodes[i].Node, reports[i], b.Spec.Registry, b.Generation}, true
}

// fetches reports whether a bundle's fetch is a node's task now; of any bundle for "".
func fetches(nu *v1alpha1.NodeUpdate, digest string) bool {
	return slices.ContainsFunc(nu.Spec.Bundles, func(b v1alpha1.ApprovedBundle) bool {
		return b.Fetch > 0 && (digest == "" || b.Digest == digest)
	})
}

// failedFetch is what a node reports of a bundle that it could not fetch, nil if nothing.
func failedFetch(nu *v1alpha1.NodeUpdate, digest string) *v1alpha1.FailedFetch {
	i := slices.IndexFunc(nu.Status.FailedFetches, func(f v1alpha1.FailedFetch) bool { return f.Bundle == digest })
	if i < 0 {
		return nil
	}
	return &nu.Status.FailedFetches[i]
}

// cannotFetch reports whether another node may succeed where this one failed. None finds what the
// registry does not have, and a registry that asks to wait means all of them.
func cannotFetch(nu *v1alpha1.NodeUpdate, digest string) bool {
	f := failedFetch(nu, digest)
	return f != nil && f.Reason != v1alpha1.ReasonRegistryContentMissing && f.Reason != v1alpha1.ReasonRegistryRateLimited
}

// fetchGeneration is what a node's spec says about fetching a bundle: 0 if another node does.
func (w *fleetSnapshot) fetchGeneration(digest, node string) int64 {
	if f, ok := w.fetchers[digest]; ok && f.node == node {
		return f.generation
	}
	return 0
}

// letFetchersRead lets nodes fetch the header of a bundle whose signatures are required and
// not known yet.
func (w *fleetSnapshot) letFetchersRead(approvals map[string]approval) {
	for d, f := range w.fetchers {
		if a := approvals[d]; !a.ok && a.reason == v1alpha1.ReasonSignaturesRequired && !slices.Contains(a.candidate, f.node) {
			a.candidate = append(a.candidate, f.node)
			approvals[d] = a
		}
	}
}

// fetchReason is why a bundle does not come from its registry, or who fetches it; the reason is
// empty if it comes from no registry.
func (w *fleetSnapshot) fetchReason(digest string) (reason, message string) {
	f, ok := w.fetchers[digest]
	if ok {
		if failed := failedFetch(f.report, digest); failed != nil {
			return failed.Reason, "node " + f.node + ": " + failed.Message
		}
		return v1alpha1.ReasonCopying, fmt.Sprintf("node %s fetches it from %s", f.node, f.registry.Reference)
	}
	for i := range w.bundles {
		if b := &w.bundles[i]; b.Spec.Digest == digest && b.Spec.Registry != nil {
			return v1alpha1.ReasonNoSource, "no node with an agent may fetch it from " + b.Spec.Registry.Reference + ": spec.registry.nodeSelector selects none"
		}
	}
	return "", ""
}
