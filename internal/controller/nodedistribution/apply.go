package nodedistribution

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/model"
)

// contentRest is how long an unreferenced Content stays.
const contentRest = 10 * time.Minute

// apply decides and writes, in an order that a crash cannot hurt: what is
// named is written before what names it.
func (r *Reconciler) apply(ctx context.Context, w *fleetSnapshot) error {
	trust := w.trust()
	trustData, err := json.Marshal(trust)
	if err != nil {
		return err
	}
	media := w.foundBundles()
	people := w.peopleApproved()
	approvals := map[string]approval{}
	for d := range w.digests(media) {
		approvals[d] = w.approvalOf(d, people, trust, media[d])
	}
	r.Headers.Retain(w.headersWanted(approvals))
	w.retained = w.retain(approvals)
	order := w.order(approvals)
	w.fetchers = w.pickFetchers(order, approvals, func(nu *v1alpha1.NodeUpdate) bool { return r.heartbeats.Silent(nu, w.now) })
	w.letFetchersRead(approvals)
	holds := w.newPinSetBuilder(order)
	trustName := v1alpha1.ContentName(v1alpha1.ContentTrust, string(trustData))
	want := &desiredState{w: w, order: order, approvals: approvals, names: w.bundleNames(), holds: holds, trust: trustName, peers: r.peers.refresh(w, r.PublicKey), bandwidth: r.Bandwidth.Share(len(w.nodes))}
	var stale []staleNode
	stale, r.more = r.stale(w, want)
	waiting, doorErr := r.applyTaints(ctx, w, want)

	contents := map[string]content{trustName: {v1alpha1.ContentTrust, string(trustData)}}
	for name, data := range holds.data {
		contents[name] = content{v1alpha1.ContentPins, data}
	}
	return errors.Join(
		doorErr,
		r.makeBundles(ctx, w, media),
		r.deleteDiscovered(ctx, w, media),
		r.makeSets(ctx, w, order),
		r.writeSpecs(ctx, w, contents, withoutWaiting(stale, waiting)),
		r.writeBundles(ctx, w, approvals, media),
		r.writeSets(ctx, w),
		r.writePolicies(ctx, w),
		r.sweep(ctx, w, contents),
	)
}

type content struct{ kind, data string }

// digests are all bundle digests that an object or a medium names.
func (w *fleetSnapshot) digests(media map[string]*mediaBundle) map[string]bool {
	out := map[string]bool{}
	for d := range media {
		out[d] = true
	}
	for i := range w.bundles {
		if d := digestOf(&w.bundles[i]); d != "" {
			out[d] = true
		}
	}
	return out
}

func (w *fleetSnapshot) headersWanted(approvals map[string]approval) map[string]bool {
	out := map[string]bool{}
	for d := range approvals {
		out[d] = true
	}
	for _, s := range w.sets {
		out[s.Spec.Bundle] = true
	}
	for i := range w.moves {
		for _, d := range w.moves[i].Bundles() {
			out[d] = true
		}
	}
	return out
}

func (r *Reconciler) makeSets(ctx context.Context, w *fleetSnapshot, approved []string) error {
	var errs []error
	for _, d := range w.missingSets(approved) {
		errs = append(errs, ssa.Spec(ctx, r.Client, v1alpha1.FieldOwnerController, ssa.Object{Kind: "PinnedImageSet", Name: setName(d),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.FieldOwnerController}},
			&v1alpha1.PinnedImageSetSpec{Bundle: d, AllOfBundle: true}))
	}
	gone, err := r.unusedSets(ctx, w, w.removableSets(approved))
	errs = append(errs, err)
	for _, s := range gone {
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})))
	}
	return errors.Join(errs...)
}

// sweep deletes the NodeUpdates of nodes that left, and unreferenced Contents.
func (r *Reconciler) sweep(ctx context.Context, w *fleetSnapshot, contents map[string]content) error {
	named := w.named(contents)
	var errs []error
	for _, nu := range w.departed {
		named[nu.Spec.Pins], named[nu.Spec.Trust] = true, true
		errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, nu)))
	}
	for name, c := range w.contents {
		if slices.Contains([]string{v1alpha1.ContentConfig, v1alpha1.ContentOSConfig, v1alpha1.ContentOSImage, v1alpha1.ContentPackages, v1alpha1.ContentStream}, c.Type) {
			continue // the part that renders them knows who needs them
		}
		if !named[name] && w.now.Sub(c.CreationTimestamp.Time) > contentRest {
			errs = append(errs, client.IgnoreNotFound(r.Client.Delete(ctx, c)))
		}
	}
	return errors.Join(errs...)
}

// named are the Contents in use: those of this reconcile, plans and their parts, and those
// in the desired state of nodes.
func (w *fleetSnapshot) named(contents map[string]content) map[string]bool {
	named := map[string]bool{}
	for name := range contents {
		named[name] = true
	}
	for _, m := range w.moves {
		named[m.Status.Plan] = true
		if c := w.contents[m.Status.Plan]; c != nil {
			for _, part := range model.PlanParts(c.Data) {
				named[part] = true
			}
		}
	}
	for _, g := range w.countKinds().groups {
		named[g.hold], named[g.trust] = true, true
	}
	return named
}
