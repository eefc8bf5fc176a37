package bundlecmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlewriter"
	"github.com/refit-dev/refit/internal/text"
)

// proofView is one signature or document that a bundle carries for an image.
type proofView struct {
	Image string `json:"image"`
	// Subject is the digest that it is attached to: the image's own, or that of one platform.
	Subject string `json:"subject"`
	// Kind is signature, sbom, provenance, attestation or other.
	Kind string `json:"kind"`
	// Format is cosign, dsse, sigstore-bundle, notation or unsigned.
	Format string `json:"format"`
	Type   string `json:"type,omitempty"`
	Digest string `json:"digest"`
	// Signer is the key or certificate that a policy trusted: that of --verify, else that of
	// refit bundle create. It is left out if no policy verified it.
	Signer string `json:"signer,omitempty"`
	// Problem is the reason why the document cannot be verified.
	Problem string `json:"problem,omitempty"`
}

// readProofs reads and verifies the archive of proofs of a bundle; a bundle without one has none.
func readProofs(f *bundlereader.File) ([]imageproof.Entry, error) {
	p := f.Header().PayloadByName(imageproof.PayloadName, "")
	if p == nil {
		return nil, nil
	}
	entries, err := imageproof.ReadArchive(f.Blob(p.Blob), nil)
	if err != nil {
		return nil, fmt.Errorf("payload %s: %w", p.Name, err)
	}
	return entries, nil
}

// proofImages are the images of a bundle with the platforms that are in it.
func proofImages(f *bundlereader.File) ([]imageproof.Image, error) {
	m := f.Header().Metadata
	var out []imageproof.Image
	for _, i := range m.Images {
		img := imageproof.Image{Name: i.Name, Repository: oci.Repository(i.Name), Digest: i.Digest}
		has := map[string]bool{}
		for _, b := range i.Blobs {
			has[m.Blobs[b].Digest] = true
			if m.Blobs[b].Digest != i.Digest || m.Blobs[b].Size > maxManifest {
				continue
			}
			raw, err := io.ReadAll(f.Blob(b))
			if err != nil {
				return nil, fmt.Errorf("image %s: %w", i.Name, err)
			}
			img.Platforms = imageproof.PlatformManifests(raw)
		}
		img.Platforms = slices.DeleteFunc(img.Platforms, func(d string) bool { return !has[d] })
		out = append(out, img)
	}
	return out, nil
}

// inspectProofs lists the proofs of a bundle, verified by a policy if there is one. The error
// lists every image that the policy refuses.
func inspectProofs(path string, policy *imageproof.Policy, now time.Time) ([]proofView, error) {
	f, err := openBundle(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := readProofs(f)
	if err != nil {
		return nil, withExitCode(err)
	}
	if policy == nil {
		return viewProofs(entries), nil
	}
	images, err := proofImages(f)
	if err != nil {
		return nil, withExitCode(err)
	}
	// The archive has no descriptors of images, so entries of other images say nothing here.
	entries = imageproof.Select(entries, images)
	if refused := policy.Check(images, entries, now); len(refused) > 0 {
		return viewProofs(entries), console.WithExit(console.ExitVerification, &bundlewriter.RefusedError{Refusals: refused})
	}
	return viewProofs(entries), nil
}

func viewProofs(entries []imageproof.Entry) []proofView {
	out := []proofView{}
	for _, e := range entries {
		v := proofView{Image: text.CleanLine(e.Image), Subject: e.Subject, Kind: string(e.Kind), Format: string(e.Format), Type: text.CleanLine(e.Manifest.ArtifactType), Digest: e.Manifest.Digest, Signer: text.CleanLine(e.Signer)}
		if len(e.Proofs) > 0 && e.Proofs[0].Predicate != "" {
			v.Type = text.CleanLine(e.Proofs[0].Predicate)
		}
		if len(e.Broken) > 0 {
			v.Problem = text.CleanLine(e.Broken[0].Error())
		}
		out = append(out, v)
	}
	return out
}

// proofRows prints the proofs for people.
func proofRows(row func(cells ...string), proofs []proofView, verified bool) {
	if len(proofs) == 0 {
		return
	}
	by := "SIGNED BY (AS CREATE VERIFIED)"
	if verified {
		by = "SIGNED BY (VERIFIED NOW)"
	}
	row("")
	row("PROOF OF", "KIND", "FORMAT", by, "PROBLEM")
	for _, p := range proofs {
		signer := p.Signer
		if signer == "" {
			signer = "not verified"
		}
		row(p.Image, p.Kind, p.Format, signer, orDash(p.Problem))
	}
}

// ProofSummary is a sentence about who signed the images of a bundle in a file, as the bundle's
// creator verified it; "" for a bundle without proofs.
func ProofSummary(path string) (string, error) {
	f, err := openBundle(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	entries, err := readProofs(f)
	if err != nil || len(entries) == 0 {
		return "", err
	}
	bySigner := map[string]map[string]bool{}
	signed := map[string]bool{}
	for _, e := range entries {
		if e.Kind != imageproof.KindSignature || e.Signer == "" {
			continue
		}
		if bySigner[e.Signer] == nil {
			bySigner[e.Signer] = map[string]bool{}
		}
		bySigner[e.Signer][e.Image], signed[e.Image] = true, true
	}
	var parts []string
	for s, images := range bySigner {
		parts = append(parts, fmt.Sprintf("%s by %s", text.Count(len(images), "image"), text.CleanLine(s)))
	}
	slices.Sort(parts)
	total := len(f.Header().Metadata.Images)
	if len(parts) == 0 {
		return fmt.Sprintf("the bundle carries signatures or documents of its %s, and none was verified when it was created", text.Count(total, "image")), nil
	}
	return fmt.Sprintf("signatures, as verified when the bundle was created: %s; %s without", strings.Join(parts, ", "), text.Count(total-len(signed), "image")), nil
}

// hasProofs reports whether a header lists an archive of proofs.
func hasProofs(h *bundle.Header) bool { return h.PayloadByName(imageproof.PayloadName, "") != nil }
