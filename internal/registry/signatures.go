package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/imageproof"
)

const (
	indexType = "application/vnd.oci.image.index.v1+json"
	// maxReferrers bounds the artifacts of one digest that are read, maxSigned the digests.
	maxReferrers = 64
	maxSigned    = 16
)

// Signatures reads the signatures of an image from the registry at a place. They refer to it, by the
// referrers API or the tag that stands in for it, or they are under the tags of cosign. With
// platforms also those of the manifests of an index, which the returned image names.
func (p *Poller) Signatures(ctx context.Context, at Place, img imageproof.Image, platforms bool) (imageproof.Image, []imageproof.Entry, error) {
	if platforms {
		raw, err := p.readVerified(ctx, at, "manifests/", img.Digest, strings.Join(manifestTypes, ", "))
		if err != nil {
			return img, nil, err
		}
		img.Platforms = imageproof.PlatformManifests(raw)
		if len(img.Platforms) > maxSigned {
			return img, nil, at.failure(InvalidAnswer, fmt.Errorf("the image has %d platforms, signatures of at most %d are read", len(img.Platforms), maxSigned))
		}
	}
	var out []imageproof.Entry
	for _, subject := range append([]string{img.Digest}, img.Platforms...) {
		found, err := p.signaturesOf(ctx, at, img.Name, subject)
		if err != nil {
			return img, nil, err
		}
		out = append(out, found...)
	}
	return img, out, nil
}

func (p *Poller) signaturesOf(ctx context.Context, at Place, image, subject string) (out []imageproof.Entry, err error) {
	artifacts, err := p.referrers(ctx, at, subject)
	if err != nil {
		return nil, err
	}
	for _, tag := range imageproof.Tags(subject) {
		if strings.HasSuffix(tag, ".sbom") {
			continue
		}
		d, err := p.Digest(ctx, at, tag, 0)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		artifacts = append(artifacts, d)
	}
	if len(artifacts) > maxReferrers {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("%d artifacts refer to %s, at most %d are read", len(artifacts), subject, maxReferrers))
	}
	for _, d := range artifacts {
		e, err := p.signature(ctx, at, d)
		if err != nil {
			return nil, err
		}
		e.Image, e.Subject = image, subject
		out = append(out, e)
	}
	return out, nil
}

// isMissing reports whether a registry answered that it does not have what it was asked for.
func isMissing(err error) bool {
	var f *Failure
	return errors.As(err, &f) && (f.Kind == TagDeleted || f.Kind == RepositoryMissing || f.Kind == BlobMissing)
}

// referrers are the digests of the manifests that refer to a subject.
func (p *Poller) referrers(ctx context.Context, at Place, subject string) ([]string, error) {
	all, err := p.referrerList(ctx, at, subject)
	var out []string
	for _, m := range all {
		out = append(out, m.Digest)
	}
	return out, err
}

// referrerList are the manifests that refer to a subject, each once.
func (p *Poller) referrerList(ctx context.Context, at Place, subject string) ([]imageproof.Descriptor, error) {
	header := http.Header{"Accept": []string{indexType}}
	a, err := p.request(ctx, at, http.MethodGet, "referrers/"+subject, header)
	if isMissing(err) { // a registry without the API, as the specification of OCI describes
		a, err = p.request(ctx, at, http.MethodGet, "manifests/"+strings.Replace(subject, ":", "-", 1), header)
	}
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		Manifests []imageproof.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(a.body, &index); err != nil {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("the list of artifacts that refer to %s is not JSON: %w", subject, err))
	}
	var out []imageproof.Descriptor
	for _, m := range index.Manifests {
		known := slices.ContainsFunc(out, func(d imageproof.Descriptor) bool { return d.Digest == m.Digest })
		if m.MediaType != indexType && validDigest.MatchString(m.Digest) && !known {
			out = append(out, m)
		}
	}
	return out, nil
}

// signature reads the documents of an artifact that may be signatures. One that is damaged says
// so in the entry.
func (p *Poller) signature(ctx context.Context, at Place, d string) (e imageproof.Entry, err error) {
	raw, err := p.readVerified(ctx, at, "manifests/", d, strings.Join(manifestTypes, ", "))
	if err != nil {
		return e, err
	}
	e.Manifest = imageproof.Descriptor{Digest: d, Size: int64(len(raw))}
	m, err := imageproof.ParseManifest(raw)
	var problem *imageproof.Problem
	if errors.As(err, &problem) {
		e.Broken = append(e.Broken, problem)
		return e, nil
	}
	for _, l := range m.Layers {
		if !imageproof.Parsed(l.MediaType) || l.Size > imageproof.MaxSignature {
			continue
		}
		content, err := p.readVerified(ctx, at, "blobs/", l.Digest, "")
		if err != nil {
			return e, err
		}
		e.AddDocument(l, content)
	}
	return e, nil
}
