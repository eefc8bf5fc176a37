package registry

import (
	"context"
	"encoding/json"
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
	var m struct {
		Layers []struct {
			Digest string `json:"digest"`
			Size   int64  `json:"size"`
		} `json:"layers"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, "", at.failure(InvalidAnswer, fmt.Errorf("manifest %s is not JSON: %w", digest, err))
	}
	switch {
	case len(m.Layers) != 1:
		return nil, "", at.failure(InvalidAnswer, fmt.Errorf("%s has %d layers, want an artifact of one file: push it with oras push REF FILE", what, len(m.Layers)))
	case m.Layers[0].Size > most:
		return nil, "", at.failure(InvalidAnswer, fmt.Errorf("the file in %s has %d bytes, at most %d are read", what, m.Layers[0].Size, most))
	}
	data, err = p.readVerified(ctx, at, "blobs/", m.Layers[0].Digest, "")
	return data, digest, err
}
