package nodedistribution

import (
	"context"
	"encoding/json"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// fleetSnapshot is the input of one reconcile, sorted by name.
type fleetSnapshot struct {
	now time.Time
	// nodes are sorted by name; reports are their NodeUpdates in the same order, which
	// edition names. They belong to the index: do not change them.
	nodes   []*corev1.Node
	reports []*v1alpha1.NodeUpdate
	edition int
	// departed are the NodeUpdates of nodes that have left.
	departed []*v1alpha1.NodeUpdate
	// kinds counts the nodes by kind, counted is its result for this snapshot.
	kinds    *kindIndex
	counted  *kindCounts
	bundles  []v1alpha1.Bundle
	policies []v1alpha1.TrustPolicy
	sets     []v1alpha1.PinnedImageSet
	moves    []v1alpha1.ClusterUpdate
	pools    []v1alpha1.UpdatePool
	streams  []v1alpha1.BootImageStream
	contents map[string]*v1alpha1.Content
	// fetchers are the nodes that fetch bundles from registries, by digest.
	fetchers map[string]fetcher
	// retained is why nodes hold each approved bundle, by digest; freed remembers what
	// their removal frees.
	retained map[string]pin.Retention
	freed    *freedIndex
	// keptReasons says why sets stay that could go, by their names.
	keptReasons map[string]string
	// taintingPools are pools that want nodes to hold first.
	taintingPools []taintingPool
	lists         map[string]model.PinSet // of contents, as they were read
	selectors     nodeindex.Selectors
	// header answers for a bundle: the header, or why there is none.
	header func(digest string) (*bundle.Header, error)
	refit  string
}

func (r *Reconciler) gather(ctx context.Context) (*fleetSnapshot, error) {
	now := r.Now()
	v := r.nodes.Refresh()
	w := &fleetSnapshot{now: now, nodes: v.Nodes, reports: v.Reports, departed: v.Departed, edition: v.Edition, kinds: &r.kinds, contents: map[string]*v1alpha1.Content{}, refit: r.Refit, freed: &r.freed}
	var bundles v1alpha1.BundleList
	var policies v1alpha1.TrustPolicyList
	var sets v1alpha1.PinnedImageSetList
	var moves v1alpha1.ClusterUpdateList
	var pools v1alpha1.UpdatePoolList
	var streams v1alpha1.BootImageStreamList
	var contents v1alpha1.ContentList
	for _, l := range []client.ObjectList{&bundles, &policies, &sets, &moves, &pools, &streams, &contents} {
		if err := r.Client.List(ctx, l); err != nil {
			return nil, err
		}
	}
	w.bundles, w.policies, w.sets, w.moves = bundles.Items, policies.Items, sets.Items, moves.Items
	w.streams = streams.Items
	w.pools, w.taintingPools = pools.Items, taintingPools(pools.Items)
	sort.Slice(w.bundles, func(i, j int) bool { return w.bundles[i].Name < w.bundles[j].Name })
	sort.Slice(w.policies, func(i, j int) bool { return w.policies[i].Name < w.policies[j].Name })
	sort.Slice(w.sets, func(i, j int) bool { return w.sets[i].Name < w.sets[j].Name })
	sort.Slice(w.pools, func(i, j int) bool { return w.pools[i].Name < w.pools[j].Name })
	sort.Slice(w.moves, func(i, j int) bool { return w.moves[i].Name < w.moves[j].Name })
	for i := range contents.Items {
		w.contents[contents.Items[i].Name] = &contents.Items[i]
	}
	w.header = memoize(func(digest string) (*bundle.Header, error) {
		return r.Headers.Get(digest, func() []peerapi.Peer {
			return bundlefiles.AgentsWith(nodeindex.AllUpdates(w.reports, w.departed), digest)
		})
	})
	return w, nil
}

// memoize asks for each header once in a look: while one is not here yet, that goes
// through all nodes. One that comes meanwhile calls for another look.
func memoize(get func(string) (*bundle.Header, error)) func(string) (*bundle.Header, error) {
	type answer struct {
		h   *bundle.Header
		err error
	}
	known := map[string]answer{}
	return func(digest string) (*bundle.Header, error) {
		a, ok := known[digest]
		if !ok {
			a.h, a.err = get(digest)
			known[digest] = a
		}
		return a.h, a.err
	}
}

// readPinSet reads a hold list that was written before; empty if there is none.
func (w *fleetSnapshot) readPinSet(name string) model.PinSet {
	if h, ok := w.lists[name]; ok {
		return h
	}
	h := w.parsePinSet(name)
	if w.lists == nil {
		w.lists = map[string]model.PinSet{}
	}
	w.lists[name] = h
	return h
}

func (w *fleetSnapshot) parsePinSet(name string) model.PinSet {
	var h model.PinSet
	c := w.contents[name]
	if c == nil || v1alpha1.ContentName(v1alpha1.ContentPins, c.Data) != name {
		return h
	}
	_ = json.Unmarshal([]byte(c.Data), &h) // the name is its hash: it is what was written
	return h
}
