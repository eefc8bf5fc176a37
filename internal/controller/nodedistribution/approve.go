package nodedistribution

import (
	"fmt"
	"slices"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// maxBundles is how many bundles the desired state of a node lists.
const maxBundles = 8

// trust is what the policies say together.
func (w *fleetSnapshot) trust() model.Trust { return convert.TrustList(w.policies) }

// mediaBundle is a bundle on media that are plugged in.
type mediaBundle struct {
	digest, name, version string
	at                    []v1alpha1.BundleLocation
	// signedBy as the agents say; the controller looks itself before it believes it.
	signedBy []string
	// messages of agents that refused it.
	refusals []string
}

// foundBundles lists what is plugged in, by digest.
func (w *fleetSnapshot) foundBundles() map[string]*mediaBundle {
	out := map[string]*mediaBundle{}
	for _, i := range w.countKinds().media {
		n := w.nodes[i]
		for _, m := range w.reports[i].Status.Media {
			if !bundle.ValidDigest(m.Digest) {
				continue
			}
			f := out[m.Digest]
			if f == nil {
				f = &mediaBundle{digest: m.Digest, name: m.Name, version: m.Version, signedBy: m.SignedBy}
				out[m.Digest] = f
			}
			f.at = append(f.at, v1alpha1.BundleLocation{Node: n.Name, Device: m.Device})
			if m.State == v1alpha1.MediumRefused || m.State == v1alpha1.MediumUnreadable {
				f.refusals = append(f.refusals, fmt.Sprintf("%s %s: %s", n.Name, m.Device, m.Message))
			}
		}
	}
	return out
}

// unreadable lists media that could not be read, in words.
func (w *fleetSnapshot) unreadable() []string {
	var out []string
	for _, i := range w.countKinds().media {
		for _, m := range w.reports[i].Status.Media {
			if m.Digest == "" && m.State != v1alpha1.MediumFound {
				out = append(out, fmt.Sprintf("%s %s: %s", w.nodes[i].Name, m.Device, m.Message))
			}
		}
	}
	return out
}

// approval says whether a bundle may be loaded.
type approval struct {
	ok     bool
	reason string
	// message and fix when it may not.
	message, fix string
	signedBy     []string
	// candidate nodes have it on a medium and say that a trusted key signed it.
	// They alone may copy it, so that the controller can see the signatures itself.
	candidate []string
}

// approvalOf decides for one digest. approvedDigests are those that people named.
func (w *fleetSnapshot) approvalOf(digest string, people []string, trust model.Trust, f *mediaBundle) approval {
	if slices.Contains(trust.RevokedDigests, digest) {
		return approval{reason: v1alpha1.ReasonBundleRevoked, message: "bundle " + digest + " is revoked by a TrustPolicy",
			fix: "bring another bundle, or remove the digest from revokedDigests"}
	}
	if h, err := w.header(digest); err == nil {
		return w.evaluateBundle(h, people, trust, f)
	}
	if slices.Contains(people, digest) && !trust.RequireSignatures {
		return approval{ok: true, reason: v1alpha1.ReasonApprovedByDigest}
	}
	a := w.awaiting(digest, f)
	if f != nil && satisfies(f.signedBy, trust) {
		for _, l := range f.at {
			a.candidate = append(a.candidate, l.Node)
		}
		a.message = fmt.Sprintf("%s says that trusted keys signed it; the signatures are being checked", f.at[0].Node)
		a.fix = ""
	}
	return a
}

// evaluateBundle decides over a bundle whose header is here: its signatures count, not
// what an agent says of them.
func (w *fleetSnapshot) evaluateBundle(h *bundle.Header, people []string, trust model.Trust, f *mediaBundle) approval {
	d := bundle.Decide(h, people, trust, w.refit)
	switch {
	case d.Allowed && d.By == bundle.ByDigest:
		return approval{ok: true, reason: v1alpha1.ReasonApprovedByDigest, signedBy: d.SignedBy}
	case d.Allowed:
		return approval{ok: true, reason: v1alpha1.ReasonApprovedByKey, signedBy: d.SignedBy}
	case d.Blocker.Reason == v1alpha1.ReasonDigestMismatch || d.Blocker.Reason == v1alpha1.ReasonBundleNotApproved:
		a := w.awaiting(h.Digest, f)
		a.signedBy = d.SignedBy
		return a
	}
	return approval{reason: d.Blocker.Reason, message: d.Blocker.Message, fix: d.Blocker.Fix, signedBy: d.SignedBy}
}

func (w *fleetSnapshot) awaiting(digest string, f *mediaBundle) approval {
	a := approval{reason: v1alpha1.ReasonAwaitingApproval, message: "bundle " + digest + " is not approved", fix: "set spec.digest to " + digest}
	if f != nil && len(f.at) > 0 {
		a.message = fmt.Sprintf("found %s on %s %s; it is not approved", digest, f.at[0].Node, f.at[0].Device)
	}
	if w.trust().RequireSignatures {
		a.reason, a.fix = v1alpha1.ReasonSignaturesRequired, "have it signed by enough keys of one TrustPolicy (refit bundle sign), and plug the medium in"
		a.message = "bundle " + digest + " needs signatures, because a TrustPolicy requires them, and no node has shown them yet"
	}
	return a
}

// satisfies reports whether the names an agent gave would satisfy a policy.
func satisfies(signedBy []string, trust model.Trust) bool {
	for _, rule := range trust.Policies {
		n := 0
		for _, s := range signedBy {
			if _, ok := rule.Keys[s]; ok {
				n++
			}
		}
		if n >= max(1, rule.Threshold) {
			return true
		}
	}
	return false
}

// digestOf a Bundle object: what a person approved, else what it was made for.
func digestOf(b *v1alpha1.Bundle) string {
	if b.Spec.Digest != "" {
		return b.Spec.Digest
	}
	if d := b.Annotations[v1alpha1.AnnotationFoundDigest]; d != "" {
		return d
	}
	return b.Status.Digest
}

// peopleApproved lists the digests that people named.
func (w *fleetSnapshot) peopleApproved() []string {
	var out []string
	for _, b := range w.bundles {
		if b.Spec.Digest != "" && b.DeletionTimestamp.IsZero() {
			out = append(out, b.Spec.Digest)
		}
	}
	return out
}
