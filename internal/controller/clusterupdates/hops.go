package clusterupdates

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterresources"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
	"github.com/refit-dev/refit/internal/text"
)

// headersOf are the headers of the bundles of the current hop and of those after it. On an error,
// digest is the bundle whose header is not available.
func (w *rolloutSnapshot) headersOf(u *v1alpha1.ClusterUpdate) (headers []*bundle.Header, digest string, err error) {
	for _, d := range u.Bundles()[u.Hop():] {
		h, err := w.header(d)
		if err != nil {
			return nil, d, err
		}
		headers = append(headers, h)
	}
	return headers, "", nil
}

func targetOf(h *bundle.Header) model.Target {
	m := h.Metadata
	return model.Target{Bundle: h.Digest, Name: m.Name, Version: m.Version, Kubernetes: m.KubernetesVersion}
}

// hopsOf are the planner's hops after the first one.
func hopsOf(headers []*bundle.Header) []updateplan.Hop {
	var out []updateplan.Hop
	for _, h := range headers[1:] {
		out = append(out, updateplan.Hop{Target: targetOf(h), Payloads: payloads(h)})
	}
	return out
}

// storePlan stores the plan and names it in the status. Between hops the plan is the one that the
// update started with.
func (r *Reconciler) storePlan(ctx context.Context, st *status, headers []*bundle.Header, made *plans.Plan) error {
	st.setHops(headers, made.Plan)
	if st.u.BetweenHops() {
		stored, err := r.Plans.Read(ctx, st.u)
		if err != nil {
			return err
		}
		st.checkRest(changedNodes(stored.Plan, made.Plan))
		return nil
	}
	name, err := r.Plans.Write(ctx, made.Plan, made.Digest)
	if err != nil {
		return err
	}
	st.out.Plan, st.out.PlanDigest = name, made.Digest
	return nil
}

// changedNodes names the nodes that have other steps in the last hops of an approved plan than in
// a new plan of these hops.
func changedNodes(approved, now model.Plan) []string {
	have, want := approved.Hops(), now.Hops()
	have = have[max(0, len(have)-len(want)):]
	names := map[string]bool{}
	for i := range want {
		if i < len(have) && have[i].Digest() == want[i].Digest() {
			continue
		}
		before := map[string]string{}
		if i < len(have) {
			before = nodeDigests(have[i])
		}
		after := nodeDigests(want[i])
		maps.DeleteFunc(after, func(node, digest string) bool {
			same := before[node] == digest
			delete(before, node)
			return same
		})
		maps.Copy(after, before)
		for node := range after {
			names[node] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// nodeDigests are the digests of each node's share of a plan.
func nodeDigests(p model.Plan) map[string]string {
	out := map[string]string{}
	for i := range p.Nodes {
		out[p.Nodes[i].Node] = model.Plan{Nodes: p.Nodes[i : i+1]}.Digest()
	}
	return out
}

// settleHop is for how long after a hop the nodes may still report less than they have.
const settleHop = time.Minute

// checkRest adds why the next hop does not start while nodes are not as the approved plan expects.
// At first they may just not have reported everything yet.
func (s *status) checkRest(changed []string) {
	if len(changed) == 0 {
		return
	}
	i := s.u.Hop()
	v := model.Blocker{Reason: v1alpha1.ReasonPlanChanged, Object: "ClusterUpdate/" + s.u.Name,
		Message: fmt.Sprintf("hop %d of %d would not be what was approved for %s", i+1, len(s.u.Bundles()), text.FirstOf(changed, 3, ", ")),
		Fix:     "delete this ClusterUpdate and plan another one for the bundles that are left: refit plans it from what runs, and the nodes stay as they are"}
	if done := s.u.Status.Hops[i-1].FinishedAt; done != nil && s.now.Sub(done.Time) < settleHop {
		v.Reason, v.Waiting, v.Fix = v1alpha1.ReasonSettling, true, ""
		v.Message += "; the nodes may not have reported everything yet"
	}
	s.verdicts = append(s.verdicts, v)
}

// setHops writes what is planned for the current hop and those after it.
func (s *status) setHops(headers []*bundle.Header, plan model.Plan) {
	all, at := s.u.Bundles(), s.u.Hop()
	hops := plan.Hops()
	s.out.NodesTotal, s.out.NodesDone, s.out.NodesFailed = int32(len(plan.Nodes)), 0, 0
	s.out.Progress = fmt.Sprintf("0/%d", len(plan.Nodes))
	s.out.Version = headers[len(headers)-1].Metadata.Version
	if s.u.Spec.Bundle == "" {
		s.out.Version = nodeConfigTarget
	}
	if len(all) == 1 {
		return
	}
	before := s.out.Hops
	s.out.Hops = make([]v1alpha1.HopStatus, len(all))
	copy(s.out.Hops, before)
	for i := range headers {
		h := &s.out.Hops[at+i]
		h.Bundle, h.Version, h.Nodes = all[at+i], headers[i].Metadata.Version, int32(len(hops[i].Nodes))
	}
}

// startHop marks the current hop as started.
func (s *status) startHop() {
	now := metav1.NewTime(s.now)
	if s.out.StartedAt == nil {
		s.out.StartedAt = &now
	}
	if i := s.u.Hop(); i < len(s.out.Hops) {
		s.out.Hops[i].StartedAt = &now
	}
}

// finishHop marks the current hop as done; ok is false if it is the last one. The gate is asked
// again before the next one.
func (s *status) finishHop() (ok bool) {
	i := s.u.Hop()
	if i < len(s.out.Hops) && s.out.Hops[i].FinishedAt == nil {
		s.out.Hops[i].FinishedAt = metaNow(s.now)
	}
	if i >= len(s.u.Spec.Hops) {
		return false
	}
	s.phase(v1alpha1.PhasePreparing)
	s.verdicts, s.out.Estimate, s.out.External, s.out.Drains = nil, nil, nil, nil
	return true
}

// betweenHops are reasons for a started update not to start its next hop that no check of the
// gate has.
func betweenHops(u *v1alpha1.ClusterUpdate) []model.Blocker {
	if !u.BetweenHops() {
		return nil
	}
	i := u.Hop()
	v := model.Blocker{Reason: v1alpha1.ReasonPaused, Object: "ClusterUpdate/" + u.Name, Fix: "refit resume " + u.Name}
	switch {
	case u.Spec.Paused:
		v.Message = fmt.Sprintf("hop %d of %d is done, and the update is paused", i, len(u.Bundles()))
	case u.Spec.PauseAfter == u.Spec.Hops[i-1]:
		v.Message = fmt.Sprintf("hop %d of %d is done, and the update pauses after it (spec.pauseAfter). The cluster may stay like this: delete the update to end it here", i, len(u.Bundles()))
	default:
		return nil
	}
	return []model.Blocker{v}
}

// unfitHops are reasons why a bundle cannot be a hop. Resources of a hop could be compared only when
// the hops before it are done, so no administrator would have seen them before the approval. Of two images
// with one name a node holds one: the other could not be held before its hop.
func unfitHops(headers []*bundle.Header) []model.Blocker {
	var out []model.Blocker
	names := map[string]*bundle.Image{}
	for i, h := range headers {
		v := model.Blocker{Reason: v1alpha1.ReasonHopUnfit, Object: "Bundle/" + h.Digest}
		if i < len(headers)-1 && clusterresources.Has(h) {
			v.Message = fmt.Sprintf("bundle %s %s is a hop and has cluster resources; refit applies those of the last bundle only", h.Metadata.Name, h.Metadata.Version)
			v.Fix = "make an update of its own to that bundle, or build it without resources"
			out = append(out, v)
		}
		for k := range h.Metadata.Images {
			img := &h.Metadata.Images[k]
			if other := names[img.Name]; other != nil && other.Digest != img.Digest {
				v.Message = fmt.Sprintf("bundle %s %s has another image under the name %s than a hop before it", h.Metadata.Name, h.Metadata.Version, img.Name)
				v.Fix = "give the image another tag in one of the bundles, or make an update of its own to each bundle"
				out = append(out, v)
				break
			}
			names[img.Name] = img
		}
	}
	return out
}

// runUIDs are the identities of the hops of all updates that exist.
func (w *rolloutSnapshot) runUIDs() map[string]bool {
	alive := map[string]bool{}
	for i := range w.moves {
		for _, uid := range w.moves[i].RunUIDs() {
			alive[uid] = true
		}
	}
	return alive
}
