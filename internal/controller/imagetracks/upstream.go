package imagetracks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/refit-dev/refit/internal/imagetag/track"
	"github.com/refit-dev/refit/internal/registry"
)

// upstreamTime bounds the additional requests to the repository itself: a site may reach
// only its mirror.
const upstreamTime = 5 * time.Second

// digestsBehindMirror asks the repository itself about the tags that a mirror answered. A repository
// that cannot be reached says nothing about its mirror.
func (a *asker) digestsBehindMirror(ctx context.Context, answered string, images []track.Image) map[string]string {
	if answered == a.t.Repository {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, upstreamTime)
	defer cancel()
	place := a.at
	place.Repository = a.t.Repository
	out := map[string]string{}
	for _, i := range images {
		d, err := a.Digest(ctx, place, i.Tag, shareFor(a.spec))
		if err == nil && d != i.Digest {
			out[i.Tag] = d
		}
		if f := (*registry.Failure)(nil); err != nil && (!errors.As(err, &f) || f.Kind != registry.TagDeleted) {
			break // the next tag would be asked in vain too
		}
	}
	return out
}

// missingDigests are the digests that neither a mirror nor the repository has. One that does
// not answer may have them.
func (a *asker) missingDigests(ctx context.Context, used []string) (gone []string) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTime)
	defer cancel()
	for _, d := range used {
		if a.isMissing(ctx, d) {
			gone = append(gone, d)
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

func (a *asker) isMissing(ctx context.Context, digest string) bool {
	for _, repository := range append(slices.Clone(a.t.Mirrors), a.t.Repository) {
		place := a.at
		place.Repository = repository
		_, err := a.Digest(ctx, place, digest, time.Duration(a.spec.DiscoverSeconds)*time.Second)
		if f := (*registry.Failure)(nil); !errors.As(err, &f) || f.Kind != registry.TagDeleted {
			return false
		}
	}
	return true
}
