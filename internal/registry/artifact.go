package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Artifact reads the one layer of an artifact: the data, and the digest of its manifest. what
// is a tag or a digest; it does not read data of more than most bytes.
func (p *Poller) Artifact(ctx context.Context, at Place, what string, most int64) (data []byte, digest string, err error) {
	digest = what
	if !validDigest.MatchString(what) {
		if digest, err = p.Digest(ctx, at, what, 0); err != nil {
			return nil, "", err
		}
	}
	raw, err := p.readVerified(ctx, at, "manifests/", digest, strings.Join(manifestTypes, ", "))
	if err != nil {
		return nil, "", err
	}
	data, err = p.onlyFile(ctx, at, what, raw, most)
	return data, digest, err
}

// onlyFile reads the one file of an artifact by its manifest.
func (p *Poller) onlyFile(ctx context.Context, at Place, what string, manifest []byte, most int64) ([]byte, error) {
	var m struct {
		Layers []struct {
			Digest string `json:"digest"`
			Size   int64  `json:"size"`
		} `json:"layers"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("the manifest of %s is not JSON: %w", what, err))
	}
	switch {
	case len(m.Layers) != 1:
		return nil, at.failure(InvalidAnswer, fmt.Errorf("%s has %d layers, want an artifact of one file: push it with oras push REF FILE", what, len(m.Layers)))
	case m.Layers[0].Size > most:
		return nil, at.failure(InvalidAnswer, fmt.Errorf("the file in %s has %d bytes, at most %d are read", what, m.Layers[0].Size, most))
	}
	return p.readVerified(ctx, at, "blobs/", m.Layers[0].Digest, "")
}

// maxAttached bounds the artifacts of one type that are read.
const maxAttached = 8

// Attached reads the files of the artifacts of a type that refer to a digest, each of at most
// most bytes. One that is damaged is left out: everyone who can push can attach one.
func (p *Poller) Attached(ctx context.Context, at Place, digest, artifactType string, most int64) (files [][]byte, err error) {
	list, err := p.referrerList(ctx, at, digest)
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		if len(files) == maxAttached {
			break
		}
		if d.ArtifactType != artifactType {
			continue
		}
		raw, err := p.readVerified(ctx, at, "manifests/", d.Digest, strings.Join(manifestTypes, ", "))
		if err == nil {
			var data []byte
			if data, err = p.onlyFile(ctx, at, d.Digest, raw, most); err == nil {
				files = append(files, data)
			}
		}
		if err != nil && !isDamaged(err) {
			return nil, err
		}
	}
	return files, nil
}

// isDamaged reports whether a registry answered, and the answer is of no use.
func isDamaged(err error) bool {
	var f *Failure
	return isMissing(err) || errors.As(err, &f) && f.Kind == InvalidAnswer
}
