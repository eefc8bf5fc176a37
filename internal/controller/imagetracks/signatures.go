package imagetracks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/registry"
)

const (
	// validFor is how long a valid signature is not verified again: certificates expire.
	validFor = time.Hour
	// maxVerdicts bounds what is remembered; without it the registry is asked again.
	maxVerdicts = 4096
)

// signatureChecks are the rules of TrustPolicies for images, and verdicts by them.
type signatureChecks struct {
	mu       sync.Mutex
	rules    string
	demands  imageproof.Demands
	verdicts map[string]signatureVerdict
}

type signatureVerdict struct {
	track.Signature
	until time.Time
}

// update takes in the rules. Verdicts by others are forgotten.
func (c *signatureChecks) update(rules []imageproof.NamedRules) (imageproof.Demands, error) {
	raw, err := json.Marshal(rules)
	if err != nil {
		return imageproof.Demands{}, fmt.Errorf("rules for signatures: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(raw) != c.rules || c.verdicts == nil {
		c.rules, c.demands, c.verdicts = string(raw), imageproof.NewDemands(rules), map[string]signatureVerdict{}
	}
	return c.demands, nil
}

func (c *signatureChecks) known(key string, now time.Time) (track.Signature, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, known := c.verdicts[key]
	return v.Signature, known && now.Before(v.until)
}

func (c *signatureChecks) keep(key string, v signatureVerdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.verdicts) >= maxVerdicts {
		clear(c.verdicts)
	}
	c.verdicts[key] = v
}

// verifySignatures compares the candidates of a track with the rules for its repository. A
// candidate whose signature cannot be read now is refused until it can. Images in bundles are
// verified by the nodes.
func (r *Reconciler) verifySignatures(ctx context.Context, l *turn) error {
	l.signatures = nil
	if l.o.Spec.Source == v1alpha1.SourceBundles {
		return nil
	}
	var policies v1alpha1.TrustPolicyList
	if err := r.Client.List(ctx, &policies); err != nil {
		return fmt.Errorf("rules for signatures: %w", err)
	}
	demands, err := r.checks.update(convert.ImageRules(policies.Items))
	if err != nil || !demands.For(l.t.Repository) {
		return err
	}
	l.signatures = map[string]track.Signature{}
	for i := range l.state.Pointers {
		p := &l.state.Pointers[i]
		if p.Gone || l.state.Approved.Is(p.Digest) {
			continue
		}
		if l.signatures[p.Digest], err = r.signature(ctx, l, demands, p); err != nil {
			return err
		}
	}
	return nil
}

// signature is the verdict about one image, the remembered one if it still counts.
func (r *Reconciler) signature(ctx context.Context, l *turn, demands imageproof.Demands, p *track.Pointer) (track.Signature, error) {
	key := l.t.Repository + "@" + p.Digest
	if s, known := r.checks.known(key, l.now); known {
		return s, nil
	}
	s, err := r.readSignature(ctx, l, demands, p)
	var f *registry.Failure
	if errors.As(err, &f) {
		return track.Signature{Refused: "its signatures cannot be read: " + withoutRetryTime(f)}, nil
	}
	if err != nil {
		return s, err
	}
	until := l.now.Add(validFor)
	if s.Refused != "" { // the publisher may sign an image after it was pushed
		until = l.now.Add(time.Duration(l.o.Spec.IntervalSeconds) * time.Second / 2)
	}
	r.checks.keep(key, signatureVerdict{s, until})
	return s, nil
}

// readSignature asks the registry that answered for the tags, then, if a mirror does not have a
// valid signature, the repository itself.
func (r *Reconciler) readSignature(ctx context.Context, l *turn, demands imageproof.Demands, p *track.Pointer) (s track.Signature, err error) {
	keys, err := r.keys(ctx, l.o.Spec.PullSecret)
	if err != nil {
		return s, err
	}
	places := []string{l.status.Endpoint, l.t.Repository}
	if places[0] == "" {
		places = places[1:]
	}
	for _, place := range slices.Compact(places) {
		img := imageproof.Image{Name: l.t.Repository + ":" + p.Tag, Repository: l.t.Repository, Digest: p.Digest}
		var entries []imageproof.Entry
		if img, entries, err = r.Poller.Signatures(ctx, registry.Place{Repository: place, Keys: keys}, img, demands.EachPlatform(img.Repository)); err != nil {
			continue
		}
		refused := demands.Check([]imageproof.Image{img}, entries, l.now)
		if len(refused) == 0 {
			return track.Signature{Signer: signerOf(entries)}, nil
		}
		s = track.Signature{Refused: fmt.Sprintf("refused, %s: %s", refused[0].Reason, refused[0].Message)}
		if fix := refused[0].Fix; fix != "" {
			s.Refused += " (" + fix + ")"
		}
	}
	if s.Refused != "" {
		return s, nil
	}
	return s, err
}

func signerOf(entries []imageproof.Entry) string {
	for i := range entries {
		if entries[i].Signer != "" {
			return entries[i].Signer
		}
	}
	return "a trusted key"
}
