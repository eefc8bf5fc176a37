package nodedistribution

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/controller/nodeindex"
	"github.com/refit-dev/refit/internal/controller/ssa"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

var notDNS = regexp.MustCompile(`[^a-z0-9.]+`)

// objectName of a found bundle: its name and version, with the beginning of
// the digest if that name is taken.
func (f *mediaBundle) objectName(taken map[string]bool) string {
	name := strings.Trim(notDNS.ReplaceAllString(strings.ToLower(f.name+"-"+f.version), "-"), "-.")
	if len(name) > 200 {
		name = strings.Trim(name[:200], "-.")
	}
	if name == "" {
		name = "bundle"
	}
	if taken[name] {
		name += "-" + strings.TrimPrefix(f.digest, "sha256:")[:8]
	}
	return name
}

// progress of a bundle over the nodes.
type progress struct {
	want, loaded int
	// stalled is what stops one of the nodes, in words; more counts the others.
	reason, message string
	more            int
	copying         bool
	// conflict names an image whose tag another bundle gives to another image.
	conflict string
}

func (w *fleetSnapshot) progress(digest string) progress {
	var p progress
	h, headerErr := w.header(digest)
	lists := map[listKey]*listFacts{}
	t := w.countKinds()
	for i := range t.groups {
		g := &t.groups[i]
		if !w.wants(g.kind, digest) {
			continue
		}
		p.want += g.nodes
		if !g.reports || headerErr != nil {
			continue
		}
		key := listKey{g.hold, g.needs()}
		list := lists[key]
		if list == nil {
			list = &listFacts{pin.Covers(w.readPinSet(g.hold), h, key.needs), w.needOf(g.hold)}
			lists[key] = list
			p.conflict = w.conflict(g.hold, h)
		}
		if list.covers && list.need.met(g.kind) {
			p.loaded += g.nodes
			continue
		}
		p.addGroup(g, w.reports[g.first])
	}
	return p
}

// conflict finds an image of a bundle whose tag names another image in a hold list.
func (w *fleetSnapshot) conflict(hold string, h *bundle.Header) string {
	for _, i := range w.readPinSet(hold).Images {
		if img := h.ImageByName(i.Name); img != nil && img.Digest != i.Digest {
			return fmt.Sprintf("image %s is %s in this bundle and %s in bundle %s, whose turn it is", i.Name, img.Digest, i.Digest, i.Bundle)
		}
	}
	return ""
}

// addGroup takes down what keeps the nodes of a group; first is the report of the
// first of them.
func (p *progress) addGroup(g *group, first *v1alpha1.NodeUpdate) {
	p.copying = p.copying || g.copying
	if !g.stalled {
		return
	}
	if p.reason != "" {
		p.more += g.nodes
		return
	}
	c := stalledOf(first)
	p.reason, p.message, p.more = c.Reason, "node "+first.Name+": "+c.Message, g.nodes-1
}

// listKey names a pin set and what its nodes need: nodes with the same share the facts.
type listKey struct {
	hold  string
	needs pin.Needs
}

// listFacts are what the progress of a bundle needs of a hold list.
type listFacts struct {
	covers bool
	need   pinNeed
}

// pinNeed is how much a node with a pin set must have; there is false while the set is not
// known.
type pinNeed struct {
	there            bool
	images, payloads int32
	// fetched from registries; only sets of such wait for them.
	fetched int32
}

func (w *fleetSnapshot) needOf(hold string) pinNeed {
	list := w.readPinSet(hold)
	bundled, fetched := list.CountImages()
	return pinNeed{w.contents[hold] != nil, int32(bundled), int32(len(list.Payloads)), int32(fetched)}
}

func (r *Reconciler) writeBundles(ctx context.Context, w *fleetSnapshot, approvals map[string]approval, media map[string]*mediaBundle) error {
	var errs []error
	for i := range w.bundles {
		b := &w.bundles[i]
		if w.readsAgain(b) {
			continue
		}
		st := w.bundleStatus(b, approvals, media)
		if equality.Semantic.DeepEqual(b.Status, st) || r.deferProgress(w, b, &st) {
			continue
		}
		err := ssa.Status(ctx, r.Client, ssa.Object{Kind: "Bundle", Name: b.Name, UID: string(b.UID)}, &st)
		if err == nil {
			r.emitRetention(b, &st)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readsAgain reports whether the header of a bundle that its status describes is being read
// again, as after a start of the controller. The status stays until then: it says more.
func (w *fleetSnapshot) readsAgain(b *v1alpha1.Bundle) bool {
	d := digestOf(b)
	_, err := w.header(d)
	return errors.Is(err, bundlefiles.ErrPending) && b.Status.Digest == d && b.Status.Images > 0 && b.Status.ObservedGeneration == b.Generation
}

// progressEvery is how often mere progress is written: seldom in large clusters.
func progressEvery(nodes int) time.Duration {
	return max(10*time.Second, time.Duration(nodes)*time.Second/50)
}

// deferProgress keeps mere progress from being written too often; what changes the
// state of a bundle is written at once.
func (r *Reconciler) deferProgress(w *fleetSnapshot, b *v1alpha1.Bundle, st *v1alpha1.BundleStatus) bool {
	if r.progressAt == nil {
		r.progressAt = map[types.UID]time.Time{}
	}
	mere := equality.Semantic.DeepEqual(withoutProgress(&b.Status), withoutProgress(st))
	if mere && w.now.Sub(r.progressAt[b.UID]) < progressEvery(len(w.nodes)) {
		r.deferred = true
		return true
	}
	r.progressAt[b.UID] = w.now
	return false
}

func withoutProgress(st *v1alpha1.BundleStatus) *v1alpha1.BundleStatus {
	out := st.DeepCopy()
	out.Loaded = ""
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	return out
}

func (w *fleetSnapshot) bundleStatus(b *v1alpha1.Bundle, approvals map[string]approval, media map[string]*mediaBundle) v1alpha1.BundleStatus {
	d := digestOf(b)
	a, f := approvals[d], media[d]
	st := *b.Status.DeepCopy()
	st.ObservedGeneration, st.SignedBy, st.Locations, st.Loaded = b.Generation, a.signedBy, nil, ""
	if f != nil {
		st.Digest = d
		st.Locations = f.at[:min(len(f.at), 16)]
	}
	h, err := w.header(d)
	if err == nil {
		describe(&st, h)
	}
	p := w.progress(d)
	st.Retention = w.retentionStatus(b, d)
	st.FetchedBy = w.fetchers[d].node
	released := a.ok && w.released(d)
	if a.ok && (!released || p.want > 0) {
		st.Loaded = fmt.Sprintf("%d/%d", p.loaded, p.want)
	}
	loaded := a.ok && !released && p.want > 0 && p.loaded == p.want && err == nil
	reason, message := w.bundleReason(b, a, f, p, loaded)
	bundleConditions(&st, b.Generation, a, loaded, released, reason, message)
	return st
}

func bundleConditions(st *v1alpha1.BundleStatus, generation int64, a approval, loaded, released bool, reason, message string) {
	approved := withFix(a.message, a.fix)
	if a.ok {
		approved = "every byte under the digest may be copied, loaded and held"
	}
	waits := a.ok && !loaded && (reason == v1alpha1.ReasonCopying || reason == v1alpha1.ReasonLoading)
	for _, c := range []struct {
		kind            string
		ok              bool
		reason, message string
	}{
		{v1alpha1.ConditionApproved, a.ok, reasonText(a.reason), approved},
		{v1alpha1.ConditionLoaded, loaded, reason, message},
		{v1alpha1.ConditionReady, loaded || released, reason, message},
		{v1alpha1.ConditionReconciling, waits, reason, message},
		{v1alpha1.ConditionStalled, !loaded && !released && !waits, reason, message},
	} {
		setCondition(&st.Conditions, generation, c.kind, c.ok, c.reason, c.message)
	}
}

func describe(st *v1alpha1.BundleStatus, h *bundle.Header) {
	m := h.Metadata
	st.Digest, st.Name, st.Version, st.KubernetesVersion = h.Digest, m.Name, m.Version, m.KubernetesVersion
	st.Platforms = m.Platforms[:min(len(m.Platforms), 16)]
	st.Constraints = nil
	for _, c := range m.Constraints {
		st.Constraints = append(st.Constraints, v1alpha1.BundleConstraint{Name: c.Name, Min: c.Min, Max: c.Max})
	}
	st.Images, st.SizeBytes = int32(len(m.Images)), h.FileSize()
}

// bundleReason is the one sentence about a bundle: what stops it, else what it
// is busy with.
func (w *fleetSnapshot) bundleReason(b *v1alpha1.Bundle, a approval, f *mediaBundle, p progress, loaded bool) (reason, message string) {
	d := digestOf(b)
	switch {
	case d == "":
		return v1alpha1.ReasonAwaitingApproval, "this Bundle names no digest; set spec.digest to approve one"
	case !a.ok && a.reason == v1alpha1.ReasonAwaitingApproval && f != nil && len(a.candidate) == 0:
		return w.unapprovedReason(b, f)
	case !a.ok:
		return reasonText(a.reason), withFix(a.message, a.fix)
	case w.released(d):
		return v1alpha1.ReasonReleased, w.releasedMessage(d)
	case loaded:
		return v1alpha1.ReasonAsExpected, fmt.Sprintf("all %d nodes hold and pin it", p.want)
	}
	return w.notLoadedReason(d, f, p)
}

// notLoadedReason is what stops an approved bundle, else what it is busy with.
func (w *fleetSnapshot) notLoadedReason(d string, f *mediaBundle, p progress) (reason, message string) {
	switch {
	case f != nil && len(f.refusals) > 0:
		return v1alpha1.ReasonBundleCorrupt, f.refusals[0]
	case p.reason != "":
		return reasonText(p.reason), p.sentence()
	}
	if why, says := w.fetchReason(d); why != "" && why != v1alpha1.ReasonCopying {
		return why, says
	}
	return w.loadingReason(d, f, p)
}

// sentence about the node that is stopped, and how many others are.
func (p progress) sentence() string {
	if p.more == 0 {
		return p.message
	}
	return fmt.Sprintf("%s (and %d more nodes)", p.message, p.more)
}

// unapprovedReason is the status of an unapproved discovered bundle, with the digest that was
// expected.
func (w *fleetSnapshot) unapprovedReason(b *v1alpha1.Bundle, f *mediaBundle) (string, string) {
	found := fmt.Sprintf("found %s on %s %s", f.digest, f.at[0].Node, f.at[0].Device)
	if e := w.missingDigests(); len(e) > 0 {
		return v1alpha1.ReasonDigestMismatch, found + ", expected " + strings.Join(e, " or ") + "; nothing of it is loaded. Bring the expected one, or approve this one: set spec.digest of Bundle " + b.Name
	}
	return v1alpha1.ReasonAwaitingApproval, found + "; it is not approved. Set spec.digest of Bundle " + b.Name + " to approve it"
}

// missingDigests are the approved digests that are not on every node yet.
func (w *fleetSnapshot) missingDigests() []string {
	var out []string
	for i := range w.bundles {
		if d := w.bundles[i].Spec.Digest; d != "" && !w.released(d) {
			_, err := w.header(d)
			if p := w.progress(d); err != nil || p.want == 0 || p.loaded < p.want {
				out = append(out, fmt.Sprintf("%s (Bundle %s)", d, w.bundles[i].Name))
			}
		}
	}
	return out
}

// loadingReason is about an approved bundle that no node complains of.
func (w *fleetSnapshot) loadingReason(d string, f *mediaBundle, p progress) (string, string) {
	_, err := w.header(d)
	bad := w.unreadable()
	switch {
	case p.conflict != "":
		return v1alpha1.ReasonTagConflict, p.conflict
	case err == nil && p.copying:
		return v1alpha1.ReasonCopying, fmt.Sprintf("%d of %d nodes hold and pin it, others copy", p.loaded, p.want)
	case err == nil:
		return v1alpha1.ReasonLoading, fmt.Sprintf("%d of %d nodes hold and pin it", p.loaded, p.want)
	case f != nil || w.served(d):
		return v1alpha1.ReasonCopying, "the first node reads it"
	case w.fetchers[d].node != "":
		return w.fetchReason(d)
	case len(bad) > 0:
		return v1alpha1.ReasonBundleUnreadable, bad[0]
	}
	if other := w.unapprovedMedia(d); len(other) > 0 {
		return v1alpha1.ReasonDigestMismatch, "expected " + d + ", found " + strings.Join(other, ", ") + "; nothing of it is loaded"
	}
	return v1alpha1.ReasonNoSource, "approved, but no node has it and no medium with it is plugged in"
}

// served reports whether an agent has a bundle's header.
func (w *fleetSnapshot) served(digest string) bool {
	for nu := range nodeindex.AllUpdates(w.reports, w.departed) {
		if nu.Status.Agent != nil && slices.Contains(nu.Status.Bundles, digest) {
			return true
		}
	}
	return false
}

// unapprovedMedia are unapproved bundles on media, with their locations.
func (w *fleetSnapshot) unapprovedMedia(expected string) []string {
	people := w.peopleApproved()
	var out []string
	for _, i := range w.countKinds().media {
		for _, m := range w.reports[i].Status.Media {
			if m.Digest != "" && m.Digest != expected && !contains(people, m.Digest) {
				out = append(out, fmt.Sprintf("%s on %s %s", m.Digest, w.nodes[i].Name, m.Device))
			}
		}
	}
	return out[:min(len(out), 3)]
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func reasonText(reason string) string {
	if reason == "" {
		return v1alpha1.ReasonAwaitingApproval
	}
	return reason
}

func withFix(message, fix string) string {
	if fix == "" {
		return message
	}
	return message + ". " + strings.ToUpper(fix[:1]) + fix[1:]
}

func setCondition(list *[]metav1.Condition, generation int64, kind string, ok bool, reason, message string) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(list, metav1.Condition{Type: kind, Status: status, ObservedGeneration: generation, Reason: reason, Message: text.Truncate(message, 1024)})
}

func (r *Reconciler) writeSets(ctx context.Context, w *fleetSnapshot) error {
	var errs []error
	for i := range w.sets {
		s := &w.sets[i]
		st := w.setStatus(i)
		if !equality.Semantic.DeepEqual(s.Status, st) {
			errs = append(errs, ssa.Status(ctx, r.Client, ssa.Object{Kind: "PinnedImageSet", Name: s.Name, UID: string(s.UID)}, &st))
		}
	}
	return errors.Join(errs...)
}

func (w *fleetSnapshot) setStatus(set int) v1alpha1.PinnedImageSetStatus {
	s := &w.sets[set]
	st := v1alpha1.PinnedImageSetStatus{ObservedGeneration: s.Generation, Conditions: append([]metav1.Condition(nil), s.Status.Conditions...)}
	var known bool
	st.Images, known = w.imagesOf(s)
	want, done, stopped := w.pinCounts(set, known)
	st.Nodes = fmt.Sprintf("%d/%d", done, want)
	ready := known && done == want
	reason, message := v1alpha1.ReasonAsExpected, fmt.Sprintf("%d nodes hold and pin the set", want)
	if !ready {
		reason, message = v1alpha1.ReasonLoading, fmt.Sprintf("%d of %d nodes hold and pin the set", done, want)
	}
	if why := w.keptReasons[s.Name]; why != "" {
		message += "; it could go, and is kept: " + why
	}
	why, says := reason, message
	if stopped != nil { // slow is not stopped; a node that cannot go on is, and says why
		c := stalledOf(stopped)
		why, says = c.Reason, message+"; node "+stopped.Name+": "+c.Message
	}
	setCondition(&st.Conditions, s.Generation, v1alpha1.ConditionReady, ready, why, says)
	setCondition(&st.Conditions, s.Generation, v1alpha1.ConditionReconciling, !ready, reason, message)
	setCondition(&st.Conditions, s.Generation, v1alpha1.ConditionStalled, stopped != nil, why, says)
	return st
}

// pinCounts counts the nodes that are to hold a set and those that do; stopped is one
// that a person must see to, nil if there is none. known is false while it is not
// known what the set brings.
func (w *fleetSnapshot) pinCounts(set int, known bool) (want, done int, stopped *v1alpha1.NodeUpdate) {
	needs := map[string]pinNeed{}
	t := w.countKinds()
	for i := range t.groups {
		g := &t.groups[i]
		if !g.selectedBy(set) {
			continue
		}
		want += g.nodes
		if !known || g.hold == "" {
			continue
		}
		all, ok := needs[g.hold]
		if !ok {
			all = w.needOf(g.hold)
			needs[g.hold] = all
		}
		if all.metFor(g.kind, &w.sets[set]) {
			done += g.nodes
		} else if stopped == nil && g.stalled {
			stopped = w.reports[g.first]
		}
	}
	return want, done, stopped
}

// imagesOf counts a set's images; known is false while its bundle's header is
// not here.
func (w *fleetSnapshot) imagesOf(s *v1alpha1.PinnedImageSet) (n int32, known bool) {
	for _, g := range s.Spec.Groups {
		n += int32(len(g.Images))
	}
	if !s.Spec.AllOfBundle {
		return n, true
	}
	h, err := w.header(s.Spec.Bundle)
	if err != nil {
		return s.Status.Images, false
	}
	return n + int32(len(h.Metadata.Images)), true
}

func (r *Reconciler) writePolicies(ctx context.Context, w *fleetSnapshot) error {
	var errs []error
	for i := range w.policies {
		p := &w.policies[i]
		st := v1alpha1.TrustPolicyStatus{ObservedGeneration: p.Generation, Conditions: append([]metav1.Condition(nil), p.Status.Conditions...)}
		reason, message := v1alpha1.ReasonAsExpected, "in force"
		for _, k := range p.Spec.Keys {
			if _, err := bundle.ParsePublicKeyPEM([]byte(k.PublicKey)); err != nil {
				reason, message = v1alpha1.ReasonInvalidKey, fmt.Sprintf("key %s: %v; it never counts", k.Name, err)
			}
		}
		for _, n := range convert.ImageRules(w.policies[i : i+1]) {
			if _, err := imageproof.ParseRules(n.Rules, nil); err != nil {
				reason, message = v1alpha1.ReasonInvalidKey, fmt.Sprintf("images: %v; nodes refuse the images of this rule", err)
			}
		}
		setCondition(&st.Conditions, p.Generation, v1alpha1.ConditionReady, reason == v1alpha1.ReasonAsExpected, reason, message)
		setCondition(&st.Conditions, p.Generation, v1alpha1.ConditionStalled, reason != v1alpha1.ReasonAsExpected, reason, message)
		if !equality.Semantic.DeepEqual(p.Status, st) {
			errs = append(errs, ssa.Status(ctx, r.Client, ssa.Object{Kind: "TrustPolicy", Name: p.Name, UID: string(p.UID)}, &st))
		}
	}
	return errors.Join(errs...)
}
