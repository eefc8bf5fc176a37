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
	// mostFound unapproved Bundles there are at most, and mostFoundOn of them for one
	// node: a node names what it likes.
	mostFound, mostFoundOn = 64, 8
	// foundRest is how long an unapproved Bundle stays that no node has any more.
	foundRest = time.Hour
)

// makeBundles makes an object with an empty spec for every bundle that was found, has
// none, and whose header the controller has read itself: its name and version are those
// of the header, not what a node says.
func (r *Reconciler) makeBundles(ctx context.Context, w *fleetSnapshot, media map[string]*found) error {
	known, names, on, total := w.foundSoFar()
	var errs []error
	for _, d := range slices.Sorted(maps.Keys(media)) {
		f := media[d]
		h, err := w.header(d)
		node := f.at[0].Node
		if err != nil && !known[d] {
			r.logUnreadHeader(ctx, d, node, err)
		}
		if known[d] || err != nil || total >= mostFound || on[node] >= mostFoundOn {
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
	if r.unread == nil || len(r.unread) >= mostFound {
		r.unread = map[string]string{}
	}
	r.unread[digest] = err.Error()
	log.FromContext(ctx).Error(err, "found bundle is not listed: its header was not read; it is retried", "bundle", digest, "node", node)
}

// foundSoFar counts the Bundles that nobody approved, in all and by the node that they
// were found on first.
func (w *fleetSnapshot) foundSoFar() (known, names map[string]bool, on map[string]int, total int) {
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

// dropFound deletes Bundles that the controller made, that nobody approved, and that no
// node has had for a while.
func (r *Reconciler) dropFound(ctx context.Context, w *fleetSnapshot, media map[string]*found) error {
	gone := map[types.UID]time.Time{}
	var errs []error
	for i := range w.bundles {
		b := &w.bundles[i]
		d := b.Annotations[v1alpha1.AnnotationFoundDigest]
		if b.Spec.Digest != "" || d == "" || media[d] != nil || w.served(d) {
			continue
		}
		since, before := r.foundGone[b.UID]
		if !before {
			since = w.now
		}
		gone[b.UID] = since
		if w.now.Sub(since) >= foundRest {
			err := r.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion})
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	r.foundGone = gone
	return errors.Join(errs...)
}
