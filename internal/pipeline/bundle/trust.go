package bundle

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/refit-dev/refit/internal/model"
)

// How a bundle came to be allowed.
const (
	ByDigest = "digest"
	ByKey    = "key"
)

// Reason words of Decide; the catalogue in the API has the same.
const (
	reasonDigestMismatch    = "DigestMismatch"
	reasonBundleNotApproved = "BundleNotApproved"
	reasonBundleRevoked     = "BundleRevoked"
	reasonBundleTooNew      = "BundleTooNew"
	reasonNotSigned         = "SignaturesRequired"
)

// Decision says whether a bundle may be copied and loaded.
type Decision struct {
	// Allowed to be copied and loaded. Running it takes its digest in a ClusterUpdate.
	Allowed bool
	// By is ByDigest or ByKey if allowed.
	By string
	// SignedBy names the trusted keys that signed it, sorted, also if that was
	// not enough.
	SignedBy []string
	// Blocker says why not; empty if allowed.
	Blocker model.Blocker
}

// Decide says whether a bundle may be loaded: its digest is approved, or it is
// signed by enough keys of one trust rule. If the trust list requires signatures,
// an approved digest alone is not enough. A revoked bundle is never loaded, nor one
// that needs a later refit. refit is the version of the reader, "" if unknown
// (then minRefit is not compared).
func Decide(h *Header, approved []string, trust model.Trust, refit string) Decision {
	satisfied, signedBy := Satisfies(h, trust)
	d := Decision{SignedBy: signedBy}
	found := fmt.Sprintf("%s %s (%s)", h.Metadata.Name, h.Metadata.Version, h.Digest)
	no := func(reason, message, fix string) Decision {
		d.Blocker = model.Blocker{Reason: reason, Message: message, Fix: fix, Object: "Bundle/" + h.Digest}
		return d
	}
	switch {
	case slices.Contains(trust.RevokedDigests, h.Digest):
		return no(reasonBundleRevoked, "bundle "+found+" is revoked by a TrustPolicy", "bring another bundle, or remove the digest from revokedDigests")
	case tooNew(h.Metadata.MinRefit, refit):
		return no(reasonBundleTooNew, fmt.Sprintf("bundle %s needs refit %s or later, this is %s", found, h.Metadata.MinRefit, refit), "update refit first")
	case trust.RequireSignatures && !satisfied && slices.Contains(approved, h.Digest):
		return no(reasonNotSigned, "bundle "+found+" is approved by its digest, and a TrustPolicy requires signatures; "+h.signatureStory(signedBy),
			"have it signed (refit bundle sign) by enough keys of one TrustPolicy, or set require: Digest in the TrustPolicy")
	case slices.Contains(approved, h.Digest):
		d.Allowed, d.By = true, ByDigest
	case satisfied:
		d.Allowed, d.By = true, ByKey
	case len(approved) > 0:
		return no(reasonDigestMismatch, fmt.Sprintf("found bundle %s, expected %s; %s", found, strings.Join(approved, " or "), h.signatureStory(signedBy)),
			"bring the expected bundle, or approve the digest that was found in a Bundle object")
	default:
		return no(reasonBundleNotApproved, fmt.Sprintf("found bundle %s, which no Bundle or TrustPolicy approves; %s", found, h.signatureStory(signedBy)),
			"approve its digest in a Bundle object, or trust its key in a TrustPolicy")
	}
	return d
}

// signatureStory says why the signatures were not enough.
func (h *Header) signatureStory(signedBy []string) string {
	var ids []string
	for _, e := range h.Signatures {
		for _, s := range e.Signatures {
			ids = append(ids, fmt.Sprintf("%.16q", s.KeyID))
		}
	}
	switch {
	case len(ids) == 0:
		return "it is not signed"
	case len(signedBy) == 0:
		return "no trusted key signed it (key ids in it: " + strings.Join(ids, ", ") + ")"
	}
	return "not enough trusted keys signed it (signed by " + strings.Join(signedBy, ", ") + ")"
}

// Satisfies reports whether a bundle's signatures satisfy one of the trust
// rules, and the names of all trusted keys that signed it, sorted. A key that
// is listed under two names counts once; one that cannot be read never counts.
func Satisfies(h *Header, trust model.Trust) (ok bool, signedBy []string) {
	names := map[string]bool{}
	for _, rule := range trust.Policies {
		keys := map[string]ed25519.PublicKey{}
		for name, text := range rule.Keys {
			if key, err := ParsePublicKeyPEM([]byte(text)); err == nil {
				keys[name] = key
			}
		}
		distinct := map[string]bool{}
		for _, name := range h.SignedBy(keys) {
			names[name] = true
			distinct[string(keys[name])] = true
		}
		if len(distinct) >= max(1, rule.Threshold) {
			ok = true
		}
	}
	for name := range names {
		signedBy = append(signedBy, name)
	}
	sort.Strings(signedBy)
	return ok, signedBy
}

func tooNew(minRefit, refit string) bool {
	need, err := semver.NewVersion(minRefit)
	if err != nil {
		return false
	}
	have, err := semver.NewVersion(refit)
	if err != nil {
		return false
	}
	core, err := have.SetPrerelease("") // a development build reads what its release will
	return err == nil && core.LessThan(need)
}
