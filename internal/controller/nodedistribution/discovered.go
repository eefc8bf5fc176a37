package nodedistribution

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
)

const (
	// maxDiscovered unapproved Bundles there are at most, and mostFoundOn of them for one
	// node: a node names what it likes.
	maxDiscovered, maxDiscoveredPerNode = 64, 8
	// discoveredRetention is how long an unapproved Bundle stays that no node has any more.
	discoveredRetention = time.Hour
)

// makeBundles creates a Bundle with an empty spec for every discovered bundle without one,
// once the controller has read its header. Name and version are those of the header, not
// those that a node reports.
func (r *Reconciler) makeBundles(ctx context.Context, w *fleetSnapshot, media map[string]*mediaBundle) error {
	known, names, on, total := w.discoveredCounts()
	var errs []error
	for _, d := range slices.Sorted(maps.Keys(media)) {
		f := media[d]
		h, err := w.header(d)
		node := f.at[0].Node
		if err != nil && !known[d] {
			r.logUnreadHeader(ctx, d, node, err)
		}
		if known[d] || err != nil || total >= maxDiscovered || on[node] >= maxDiscoveredPerNode {
			continue
		}
		f.name, f.version = h.Metadata.Name, h.Metadata.Version
		name := f.objectName(names)
		names[name] = true
		on[node]++
		total++
		b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationFoundDigest: d, v1alpha1.AnnotationFoundOn: node}}}
		err = r.Client.Create(ctx, b, client.FieldOwner(v1alpha1.FieldOwnerController))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("make Bundle %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// logUnreadHeader logs, once for each reason, why a bundle that a node found is not listed.
func (r *Reconciler) logUnreadHeader(ctx context.Context, digest, node string, err error) {
	if errors.Is(err, bundlefiles.ErrPending) || r.unread[digest] == err.Error() {
		return
	}
	if r.unread == nil || len(r.unread) >= maxDiscovered {
		r.unread = map[string]string{}
	}
	r.unread[digest] = err.Error()
	log.FromContext(ctx).Error(err, "found bundle is not listed: its header was not read; it is retried", "bundle", digest, "node", node)
}

// discoveredCounts counts the unapproved Bundles, in all and by the node that reported them
// first.
func (w *fleetSnapshot) discoveredCounts() (known, names map[string]bool, on map[string]int, total int) {
	known, names, on = map[string]bool{}, map[string]bool{}, map[string]int{}
	for i := range w.bundles {
		b := &w.bundles[i]
		known[digestOf(b)], names[b.Name] = true, true
		if b.Spec.Digest == "" {
			total++
			on[b.Annotations[v1alpha1.AnnotationFoundOn]]++
		}
	}
	return known, names, on, total
}

// deleteDiscovered deletes unapproved Bundles that the controller created and that no node
// has had for discoveredRetention.
func (r *Reconciler) deleteDiscovered(ctx context.Context, w *fleetSnapshot, media map[string]*mediaBundle) error {
	gone := map[types.UID]time.Time{}
	var errs []error
	for i := range w.bundles {
		b := &w.bundles[i]
		d := b.Annotations[v1alpha1.AnnotationFoundDigest]
		if b.Spec.Digest != "" || d == "" || media[d] != nil || w.served(d) {
			continue
		}
		since, before := r.unseenSince[b.UID]
		if !before {
			since = w.now
		}
		gone[b.UID] = since
		if w.now.Sub(since) >= discoveredRetention {
			err := r.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion})
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	r.unseenSince = gone
	return errors.Join(errs...)
}
