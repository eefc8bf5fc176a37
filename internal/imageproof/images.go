package imageproof

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Image is an image of a bundle.
type Image struct {
	Name, Repository string
	// Digest of its manifest or index, and Platforms: digests of the manifests in that index
	// that are in the bundle.
	Digest    string
	Platforms []string
}

// subjects are the digests to which proofs of the image may be attached.
func (i Image) subjects() []string { return append([]string{i.Digest}, i.Platforms...) }

// targets are the digests that a rule wants signed.
func (i Image) targets(r *Rule) []string {
	if r.EachPlatform && len(i.Platforms) > 0 {
		return i.Platforms
	}
	return []string{i.Digest}
}

// PlatformManifests are the digests of an index's images; attestations that build tools put
// into an index are none. A manifest has no platforms of its own.
func PlatformManifests(index []byte) []string {
	var doc struct {
		Manifests []struct {
			Digest   string `json:"digest"`
			Platform *struct {
				OS string `json:"os"`
			} `json:"platform"`
		} `json:"manifests"`
	}
	if json.Unmarshal(index, &doc) != nil {
		return nil
	}
	var out []string
	for _, m := range doc.Manifests {
		attestation := m.Platform != nil && m.Platform.OS == "unknown"
		if !attestation && ValidDigest(m.Digest) && !slices.Contains(out, m.Digest) {
			out = append(out, m.Digest)
		}
	}
	return out
}

// Refusal is why the policy refuses an image.
type Refusal struct {
	Image   string `json:"image"`
	Digest  string `json:"digest"`
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// String is one line with all of it.
func (r Refusal) String() string {
	return fmt.Sprintf("%s (%s): %s: %s. Fix: %s", r.Image, r.Digest, r.Reason, r.Message, r.Fix)
}

// fixes say what to do.
var fixes = map[Reason]string{
	Missing:       "sign the image, copy its signature to the place that the image is read from, or write a rule with accept: Unsigned",
	WrongKey:      "ask the publisher which key signs the image; add the key to the rule only if you trust it",
	WrongDigest:   "use the image that was signed, or sign this one; the tag may point to other content now",
	Replayed:      "use the repository that the signature names, or add it to signedAs if this image is a copy of it",
	WrongIdentity: "add the subject to identities only if you trust it",
	Expired:       "ask the publisher to sign the image again with a valid certificate, and check the clock of this computer",
	Damaged:       "copy the signature again from the publisher's registry",
	Unsupported:   "ask the publisher for a signature by a key (cosign sign --key) or a JWS signature of notation",
	NoRule:        "add a rule for the repository, or for *",
	InvalidRule:   "correct the TrustPolicy; its status names the rule",
}

// Check applies the policy to all images and returns every refusal. It writes the signer into
// each entry that a rule's key or certificate signed.
func (p *Policy) Check(images []Image, entries []Entry, now time.Time) []Refusal {
	var out []Refusal
	byImage := map[string][]*Entry{}
	for i := range entries {
		entries[i].Signer = ""
		byImage[entries[i].Image] = append(byImage[entries[i].Image], &entries[i])
	}
	for _, img := range images {
		r := p.RuleFor(img.Repository)
		if r == nil {
			out = append(out, refusal(img, img.Digest, problemf(NoRule, "no rule of the policy covers %s", img.Repository)))
			continue
		}
		if r.invalid != nil {
			out = append(out, refusal(img, img.Digest, problemf(InvalidRule, "the rule for %s cannot be read: %v", r.Images, r.invalid)))
			continue
		}
		own := byImage[img.Name]
		for _, e := range own {
			e.Signer = r.signerOf(e, img, now)
		}
		if r.AcceptUnsigned {
			continue
		}
		for _, d := range img.targets(r) {
			if problem := r.checkTarget(Target{img.Repository, d}, own, now); problem != nil {
				out = append(out, refusal(img, d, problem))
			}
		}
	}
	return out
}

func refusal(img Image, digest string, p *Problem) Refusal {
	return Refusal{Image: img.Name, Digest: digest, Reason: p.Reason, Message: p.Message, Fix: fixes[p.Reason]}
}

// signerOf is the first trusted signer of an artifact, of any kind.
func (r *Rule) signerOf(e *Entry, img Image, now time.Time) string {
	for _, p := range e.Proofs {
		if signer, problem := r.VerifyProof(Target{img.Repository, e.Subject}, p, now); problem == nil {
			return signer
		}
	}
	return ""
}

func (r *Rule) checkTarget(t Target, own []*Entry, now time.Time) *Problem {
	var proofs []*Proof
	var broken []*Problem
	for _, e := range own {
		if e.Subject != t.Digest {
			continue
		}
		proofs = append(proofs, e.Proofs...)
		broken = append(broken, e.Broken...)
	}
	return r.Verify(t, proofs, broken, now).Problem
}

// Select keeps the entries whose image and subject are among the images.
func Select(entries []Entry, images []Image) []Entry {
	subjects := map[string]bool{}
	for _, img := range images {
		for _, d := range img.subjects() {
			subjects[img.Name+" "+d] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return !subjects[e.Image+" "+e.Subject] })
}

// Tags are the tags under which cosign and registries without a referrers API keep artifacts of a digest.
func Tags(digest string) []string {
	base := strings.Replace(digest, ":", "-", 1)
	return []string{base + ".sig", base + ".att", base + ".sbom"}
}
